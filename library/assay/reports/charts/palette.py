"""Colours of charts, safe for colour-blind readers; colour is never the only carrier of meaning.

Source of the hues: M. Okabe and K. Ito, "Color Universal Design", 2008.
"""

from __future__ import annotations

from dataclasses import dataclass

INK = "#1a1a1a"
MUTED = "#595959"
"""The colour of explanatory text; its contrast with white is 7 to 1."""
GRID = "#d9d9d9"
TRACK = "#eeeeee"
NEUTRAL = "#8c8c8c"
BLUE = "#0072b2"
SKY = "#56b4e9"
VERMILION = "#d55e00"
ORANGE = "#e69f00"


SERIES = (BLUE, VERMILION, "#009e73", ORANGE, "#cc79a7", SKY, "#7f6000", INK)
"""The colours of compared runs in their order; each run also has its own sign."""


@dataclass(frozen=True, slots=True)
class Fill:
    """Fill of an area.

    Args:
        colour: As #rrggbb.
        hatch: matplotlib's pattern over it; empty for none.
        hatch_colour: The colour of its lines.
    """

    colour: str
    hatch: str = ""
    hatch_colour: str = "white"


PLAIN = Fill(NEUTRAL)
GOOD = Fill(BLUE)
BAD = Fill(VERMILION, "//")
UNDECIDED = Fill("#bfbfbf", "..")
BROKEN = Fill(ORANGE, "xx")
MISSING = Fill("#f2f2f2", "--", NEUTRAL)
