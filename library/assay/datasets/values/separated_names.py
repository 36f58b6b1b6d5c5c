"""Splitting a text into names, as people write them into a table cell."""

from __future__ import annotations

import html
import re

_MARKS = re.compile(r"[;；؛|｜\n\t]|<br ?/?>")
_TOOL_MARKS = re.compile(r"[;；؛|｜\n\t,，،、]|<br ?/?>")
_COMMAS = re.compile(r"[,，،、]")
_BULLET = re.compile(r"(?:[-*•·–]|\d{1,3}[.)])\s+")
_FILE_END = re.compile(r"\w\.[a-z]{2,4}\b", re.IGNORECASE)
_ADDRESS = re.compile(r"\s*[;|,\s]\s*(?=[a-zA-Z][a-zA-Z0-9+.-]*://)")
_NO_WORD = re.compile(r"[._/#:\d-]")
_BLANK = re.compile(r"\s")
_BRACKETS = re.compile(r"[(){}\[\]<>\"']")
_CHOICE_MARKS = ("\n", "|", ";", ",")


def split_sources(text: str) -> tuple[list[str], str]:
    """Return the titles or addresses in a text, and the chosen reading if the text is ambiguous.

    `;`, `|` and line ends separate names. A comma separates names such as `a.pdf,b.pdf`, but may be part of a title. An
    address may contain any of these, so only a mark before another address separates addresses.
    """
    if "://" in text:
        names = _cut(_ADDRESS, text)
        return names, "an address" if any(_MARKS.search(name) for name in names) else ""
    if html.unescape(text) != text and ";" in text:
        return [text], "one name" if _MARKS.search(text) else ""
    names = _cut(_MARKS, text)
    if len(names) > 1:
        is_odd = "|" in text and any(map(_BLANK.search, names))
        return names, f"{len(names)} names" if is_odd else ""
    by_comma = _cut(_COMMAS, text)
    if len(by_comma) > 1 and all(_NO_WORD.search(name) and not _BLANK.search(name) for name in by_comma):
        return by_comma, ""
    is_odd = len(by_comma) > 1 or len(_FILE_END.findall(text)) > 1
    return names or [text], "one name" if is_odd else ""


def split_tools(text: str) -> tuple[list[str], str]:
    """Return the tool names in a text, and the chosen reading if the text is ambiguous."""
    names = _cut(_TOOL_MARKS, text)
    if any(map(_BRACKETS.search, names)):
        return [text.strip()], "the name of one tool"
    return names or [text], "the name of one tool" if any(map(_BLANK.search, names)) else ""


def split_choices(text: str) -> tuple[list[str], str]:
    """Return the choices in a text that has at least two."""
    mark = next((mark for mark in _CHOICE_MARKS if mark in text), None)
    return (_cut(re.compile(re.escape(mark)), text) if mark else [text]), ""


def _cut(marks: re.Pattern[str], text: str) -> list[str]:
    """Return the names between marks, without bullets or quotes that all of them have."""
    names = [name for part in marks.split(text) if (name := part.strip())]
    if len(names) > 1 and all(map(_BULLET.match, names)):
        names = [_BULLET.sub("", name, count=1) for name in names]
    if len(names) > 1 and all(len(name) > 2 and name[0] == name[-1] and name[0] in "\"'" for name in names):
        names = [name[1:-1] for name in names]
    return names
