"""References to a choice of a multiple-choice question by its letter or number."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from assay.datasets.fields.aliases import OPTION_NAMES
from assay.datasets.records import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.datasets.values.field_values import Fields

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LETTER = re.compile(r"\(?([A-Za-z])[).:]?")
_WHOLE = re.compile(r"\d+\.0")


def with_choice(fields: Fields, references: tuple[str, ...], choices: Sequence[str]) -> tuple[str, ...]:
    """Return the references with the choice's letter and text, if the only reference names a choice.

    Args:
        fields: The record; collects the warnings.
        references: The case's references.
        choices: The case's choices, in order.
    """
    if len(references) != 1:
        return references
    source, _ = fields.find("references")
    reference = _bare(references[0], choices)
    if not choices:
        _warn_of_options(fields, source, reference)
        return references
    if reference in _LETTERS[: len(choices)] and len(reference) == 1:
        return (*dict.fromkeys((*references, reference)), *_by_letter(fields, source, reference, choices))
    if reference.isdecimal() and reference.isascii() and reference not in choices:
        return _by_number(fields, source, int(reference), choices) or references
    return references


def _bare(reference: str, choices: Sequence[str]) -> str:
    """Return "B" for "(b)" and "1" for "1.0" unless a choice is written that way."""
    text = reference.strip()
    if text in choices:
        return text
    if (letter := _LETTER.fullmatch(text)) is not None:
        return letter[1].upper()
    return text.removesuffix(".0") if _WHOLE.fullmatch(text) else text


def _warn_of_options(fields: Fields, source: str, reference: str) -> None:
    """Warn if the reference may name a choice in a field that is not read."""
    if not (len(reference) == 1 and reference in _LETTERS) and not reference.isdecimal():
        return
    for name in fields.layout.rest:
        options = fields.record[name]
        if name.lower() in OPTION_NAMES and isinstance(options, list | dict) and len(options) > 1:
            fields.warn(
                "options",
                source,
                f"may name one of the choices in {shown(name)}, which are not read: set `map: {{choices: {name}}}`",
            )
            return


def _by_letter(fields: Fields, source: str, letter: str, choices: Sequence[str]) -> tuple[str, ...]:
    text = choices[_LETTERS.index(letter)]
    if text == letter:
        return ()
    if letter in choices:
        fields.warn(
            "letter",
            source,
            f"{shown(letter)} is read as the letter of {shown(text)}, and is the text of another choice too: write "
            "the right choice's text",
        )
    return (text,)


def _by_number(fields: Fields, source: str, number: int, choices: Sequence[str]) -> tuple[str, ...]:
    """Return text and letter of a numbered choice, if the first records show where numbering starts."""
    first = fields.layout.first_choice
    index = number - (first or 0)
    if first is None or not 0 <= index < len(choices):
        fields.warn(
            "number",
            source,
            f"{number} is compared as text, though it may be the number of a choice: write the right choice's text",
        )
        return ()
    fields.warn(
        "number",
        source,
        f"{number} is read as the number of a choice, counted from {first}: {shown(choices[index])}; if it is not, "
        "write the right choice's text",
    )
    letters = (_LETTERS[index],) if index < len(_LETTERS) else ()
    return (choices[index], *letters)
