"""Choice of fonts: for each character, the first installed font that has it."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from matplotlib.font_manager import findSystemFonts, fontManager
from matplotlib.ft2font import FaceFlags, FT2Font

from assay.reports.words.metric_text import count_text
from assay.text.unsafe_text import clean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.font_manager import FontEntry

FIRST = "DejaVu Sans"
"""The font of matplotlib, with Latin, Greek, Cyrillic, Arabic, Hebrew, Armenian, Georgian and many signs."""

_NO_LETTERS = re.compile("last ?resort|adobe blank|^cm[a-z]+10$|^STIXSize|^STIXNonUnicode", re.IGNORECASE)
"""Fonts that draw boxes for all characters, and fonts with mathematical signs in place of letters."""
_IGNORABLE = re.compile("[\u034f\u200c\u200d\ufe00-\ufe0f\U000e0100-\U000e01ef]")
"""Characters that only change the look of their neighbours; a text stays readable without them."""
_MOST_MARKS = 3
_MOST_SCRIPTS = 4


class Fonts:
    """The fonts of a report's charts, and the characters that no font has.

    Args:
        text: All characters to be drawn, in any order.
    """

    def __init__(self, text: str) -> None:
        self.families = [FIRST]
        """Names of font families, in the order in which they are searched for a character."""
        self._absent = {char for char in one_line(text) if not char.isascii()}
        self._codes: dict[str, str] = {}
        self._find_fonts()

    def _find_fonts(self) -> None:
        for entry in _entries():
            if not self._absent:
                return
            covered = _found_in(entry, self._absent)
            if covered and entry.name not in self.families:
                self.families.append(entry.name)
            self._absent -= covered

    def drawable(self, text: str) -> str:
        """Return a text as one line that can be drawn whole, with codes such as \\u6771 for what no font has.

        Args:
            text: Any text; controls are removed, bidi controls too, and more than three marks on one letter.
        """
        line = one_line(text)
        if line.isascii() or not self._absent:
            return line
        return "".join(self._code(char) if char in self._absent else char for char in line)

    def _code(self, char: str) -> str:
        if _IGNORABLE.match(char):
            return ""
        return self._codes.setdefault(char, f"\\u{ord(char):04x}" if char <= "\uffff" else f"\\U{ord(char):08x}")

    @property
    def missing(self) -> str | None:
        """A sentence on the characters drawn as codes, and the fonts to install; None without any."""
        if not self._codes:
            return None
        scripts = sorted({_script(char) for char in self._codes})
        named = ", ".join(scripts[:_MOST_SCRIPTS]) + (" and others" if len(scripts) > _MOST_SCRIPTS else "")
        return (
            f"charts: no installed font has {count_text(len(self._codes), 'character')} ({named}), drawn as codes such "
            f"as {next(iter(self._codes.values()))}: install a font that has them, such as Noto (Debian: "
            "fonts-noto-cjk for Chinese, Japanese and Korean, fonts-noto-core for others), and write the report again"
        )


def one_line(text: str) -> str:
    """Return a text as a single line, without control characters and stacked marks, which would cover other lines."""
    line = " ".join(clean(text).split())
    if line.isascii():
        return line
    kept, marks = [], 0
    for char in line:
        marks = marks + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        if marks <= _MOST_MARKS:
            kept.append(char)
    return "".join(kept)


def _entries() -> Iterator[FontEntry]:
    """Yield a plain face per family: the default, Noto, all others, and fonts installed after matplotlib's list was
    made.

    matplotlib caches its list of fonts in a file and does not refresh it.
    """
    listed = _plain_faces(fontManager.ttflist)
    yield listed[FIRST]
    yield from sorted(listed.values(), key=lambda entry: (not entry.name.startswith("Noto Sans"), entry.name))
    known = {entry.fname for entry in fontManager.ttflist}
    for path in sorted(set(findSystemFonts()) - known):
        try:
            fontManager.addfont(path)
        except (OSError, RuntimeError, ValueError):
            continue  # matplotlib cannot read the font
    added = _plain_faces([entry for entry in fontManager.ttflist if entry.fname not in known])
    yield from (added[name] for name in sorted(added.keys() - listed.keys()))


def _plain_faces(entries: list[FontEntry]) -> dict[str, FontEntry]:
    """Return for each family the upright face of normal width whose weight is closest to normal."""
    faces: dict[str, FontEntry] = {}
    for entry in entries:
        if not _NO_LETTERS.search(entry.name):
            faces[entry.name] = min(faces.get(entry.name, entry), entry, key=_distance)
    return faces


def _distance(entry: FontEntry) -> tuple[bool, bool, int]:
    weight = entry.weight if isinstance(entry.weight, int) else 400
    return entry.style != "normal", entry.stretch != "normal", abs(weight - 400)


def _found_in(entry: FontEntry, wanted: set[str]) -> set[str]:
    try:
        face = FT2Font(entry.fname, face_index=entry.index)
    except (OSError, RuntimeError, ValueError):
        return set()  # removed after the list was made, or damaged
    if FaceFlags.SCALABLE not in face.face_flags or FaceFlags.COLOR in face.face_flags:
        return set()  # matplotlib draws outlines, not pictures
    return {char for char in wanted if face.get_char_index(ord(char))}


def _script(char: str) -> str:
    """Return the script of a character, as the first word of its Unicode name says it."""
    name = unicodedata.name(char, "")
    if not name:
        return "private or unassigned"
    if not unicodedata.category(char).startswith(("L", "M")):
        return "symbols"
    return {"CJK": "Chinese", "HIRAGANA": "Japanese", "KATAKANA": "Japanese", "HANGUL": "Korean"}.get(
        first := name.split()[0], first.capitalize()
    )
