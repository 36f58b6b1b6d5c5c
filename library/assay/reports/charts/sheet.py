"""A sheet of slide size, with the drawing primitives of the charts.

All colours, fonts and widths are explicit, so that the user's process-wide matplotlib style does not affect charts.
pyplot is not used, since it keeps figures and looks for a display.
"""

from __future__ import annotations

import io
import re
import unicodedata
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Literal

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.textpath import text_to_path

from assay.reports.charts.palette import INK, Fill

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.artist import Artist

    from assay.reports.charts.fonts import Fonts

    Align = Literal["left", "center", "right"]

WIDTH, HEIGHT = 1280.0, 720.0
SMALL, NORMAL, LARGE, TITLE = 11.0, 12.0, 14.0, 18.0
"""Sizes of text in points; the smallest is readable on a slide of 1280 pixels."""

_INCHES = 12.8
_DPI = 150
_UNITS_PER_POINT = WIDTH / (_INCHES * 72)
_MIDDLE = 0.36 * _UNITS_PER_POINT
"""The distance from the middle of a line of text to its baseline, per point of its size."""
_BOLD = re.compile("[\x20-\x7e≥≤–…]*")
"""Characters drawn in bold; fonts of other scripts may lack bold letters."""
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


@dataclass(frozen=True, slots=True)
class Area:
    """A rectangle on a sheet, in its units; `top` is less than `bottom`."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        """The width."""
        return self.right - self.left

    @property
    def height(self) -> float:
        """The height."""
        return self.bottom - self.top


class Sheet:
    """A sheet of 1280 by 720 units; x from the left, y from the top.

    Args:
        fonts: Fonts for all characters of the sheet.
    """

    def __init__(self, fonts: Fonts) -> None:
        self._fonts = fonts
        self.figure = Figure((_INCHES, _INCHES * HEIGHT / WIDTH), _DPI, facecolor="white", linewidth=0, frameon=True)
        _without_style(self.figure.patch)

    def rectangle(self, area: Area, fill: Fill, *, outline: str = "") -> None:
        """Fill an area, with an outline if a colour is given for it."""
        self._add(
            Rectangle(
                (area.left / WIDTH, 1 - area.bottom / HEIGHT),
                area.width / WIDTH,
                area.height / HEIGHT,
                facecolor=fill.colour,
                edgecolor=outline or "none",
                linewidth=0.8 if outline else 0.0,
                hatch=fill.hatch or None,
                hatchcolor=fill.hatch_colour,
                hatch_linewidth=0.8,
                antialiased=True,
            )
        )

    def line(
        self, xs: Sequence[float], ys: Sequence[float], colour: str = INK, *, width: float = 1.0, dashed: bool = False
    ) -> None:
        """Draw a line through points; its width is in points."""
        style: tuple[float, Sequence[float]] | Literal["solid"] = (0, (4, 3)) if dashed else "solid"
        self._add(
            Line2D(
                *_places(xs, ys),
                color=colour,
                linewidth=width,
                linestyle=style,
                marker="",
                antialiased=True,
                solid_capstyle="butt",
                dash_capstyle="butt",
                solid_joinstyle="round",
                dash_joinstyle="round",
            )
        )

    def dots(self, xs: Sequence[float], ys: Sequence[float], colour: str, *, size: float, marker: str = "o") -> None:
        """Draw a mark at every point; its size is in points."""
        self._add(
            Line2D(
                *_places(xs, ys),
                color=colour,
                linewidth=0,
                linestyle="none",
                marker=marker,
                markersize=size,
                markeredgewidth=0,
                markeredgecolor=colour,
                markerfacecolor=colour,
                fillstyle="full",
                antialiased=True,
            )
        )

    def text(
        self,
        place: tuple[float, float],
        text: str,
        *,
        size: float = SMALL,
        colour: str = INK,
        bold: bool = False,
        align: Align = "left",
        width: float | None = None,
    ) -> float:
        """Draw a line of text and return its width.

        Args:
            place: Its x as `align` says, and the y of its middle.
            text: Any text; it is not read as a formula.
            size: In points.
            colour: As #rrggbb.
            bold: Whether Latin text is bold.
            align: The part of the text that stands at x.
            width: What it may take; a longer text is cut, with an ellipsis. None for no limit.
        """
        line = self._fonts.drawable(text)
        if width is not None:
            line = self._fitted(line, size, width, bold=bold)
        if not line:
            return 0.0
        (x, y) = place
        self._add(
            Text(
                x / WIDTH,
                1 - (y + size * _MIDDLE) / HEIGHT,
                line,
                color=colour,
                rotation=0,
                fontproperties=self._font(line, size, bold=bold),
                horizontalalignment=align,
                verticalalignment="baseline",
                usetex=False,
                parse_math=False,
                wrap=False,
                antialiased=True,
            )
        )
        return self._width(line, size, bold=bold)

    def width_of(self, text: str, *, size: float = SMALL, bold: bool = False) -> float:
        """Return the width of a line of text."""
        return self._width(self._fonts.drawable(text), size, bold=bold)

    def _width(self, line: str, size: float, *, bold: bool) -> float:
        font = self._font(line, size, bold=bold)
        return text_to_path.get_text_width_height_descent(line, font, ismath=False)[0] * _UNITS_PER_POINT

    def _font(self, line: str, size: float, *, bold: bool) -> FontProperties:
        weight = "bold" if bold and _BOLD.fullmatch(line) else "normal"
        return FontProperties(
            family=self._fonts.families, style="normal", variant="normal", weight=weight, stretch="normal", size=size
        )

    def _fitted(self, line: str, size: float, width: float, *, bold: bool) -> str:
        if self._width(line, size, bold=bold) <= width:
            return line
        (low, high) = 0, len(line)
        while low < high:
            middle = (low + high + 1) // 2
            if self._width(cut_line(line, middle), size, bold=bold) <= width:
                low = middle
            else:
                high = middle - 1
        return cut_line(line, low)

    def _add(self, artist: Artist) -> None:
        _without_style(artist)
        artist.set_clip_on(False)
        artist.set_zorder(len(self.figure.get_children()))  # what is drawn later is above
        self.figure.add_artist(artist)

    def write_png(self, file: IO[bytes]) -> None:
        """Write the sheet as PNG, 1920 by 1080 pixels; equal sheets give equal bytes."""
        canvas = FigureCanvasAgg(self.figure)
        canvas.print_png(file, metadata={"Software": None})  # type: ignore[no-untyped-call]  # as matplotlib declares it

    def write_svg(self, file: IO[bytes], title: str) -> None:
        """Write the sheet as SVG with letters as outlines, which needs no fonts; equal sheets give equal bytes.

        Args:
            file: Takes the bytes.
            title: What the picture shows, for readers that do not see it.
        """
        written = io.StringIO()
        metadata = {**_NO_METADATA, "Title": self._fonts.drawable(title)}
        canvas = FigureCanvasSVG(self.figure)
        canvas.print_svg(written, metadata=metadata)  # type: ignore[no-untyped-call]  # as matplotlib declares it
        file.write(_plain_svg(written.getvalue()).encode())


def _without_style(artist: Artist) -> None:
    """Reset the settings of the user's matplotlib style."""
    artist.set_sketch_params(None)
    artist.set_path_effects([])


def _places(xs: Sequence[float], ys: Sequence[float]) -> tuple[list[float], list[float]]:
    return [x / WIDTH for x in xs], [1 - y / HEIGHT for y in ys]


def cut_line(line: str, length: int) -> str:
    """Return the beginning of a line with an ellipsis, never cut within a composed character."""
    while 0 < length < len(line) and _belongs(line[length - 1], line[length]):
        length -= 1
    return line if length >= len(line) else line[:length].rstrip() + "…"


def _belongs(before: str, char: str) -> bool:
    """Return whether a character belongs to the previous one: a combining mark, or joined to it."""
    return unicodedata.category(char) in ("Mn", "Mc", "Me") or char in _JOINERS or before == "\u200d"


_JOINERS = {"\u200d", "\ufe0e", "\ufe0f", *(chr(tone) for tone in range(0x1F3FB, 0x1F400))}


def _plain_svg(text: str) -> str:
    """Return an SVG without what differs between equal pictures, what refers to other files, and comments.

    matplotlib gives random names to patterns and clips, and repeats every text in a comment.
    """
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<!DOCTYPE[^>]*>\s*|<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    names: dict[str, str] = {}
    for match in re.finditer(r'<(?:pattern|clipPath|path) id="([hpm][0-9a-f]{10})"', text):
        names.setdefault(match[1], f"shape{len(names) + 1}")
    return re.sub(
        r'(?<=id=")[hpm][0-9a-f]{10}(?=")|(?<=#)[hpm][0-9a-f]{10}\b', lambda match: names.get(match[0], match[0]), text
    )
