"""Guessing which fields hold the question and the right answer, first by name, then by text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from assay.datasets.fields.aliases import ALIASES, is_reference_name, looks_like_answer, names_of
from assay.datasets.fields.field_names import folded
from assay.datasets.fields.languages import LANGUAGES
from assay.datasets.records import shown
from assay.parsing.names import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.datasets.fields.aliases import FieldMap

_MAX_FIELDS = 200
_SHOWN_FIELDS = 12
_QUESTION_WORDS = ("question", "query", "prompt", "ask", "request", "inquiry", "enquiry", "problem", "utterance")
_TEXT_NAMES = ("text", "body", "content", "message", "user", "human", "task", "title", "subject")
_NO_QUESTIONS = frozenset({"id", "uuid", "version", "date", "time", "created", "updated", "url", "lang", "language"})
_LETTERS = re.compile(r"[^\W\d_]")


def without_question(field_map: FieldMap, records: Sequence[Mapping[str, Any]]) -> str:
    """Return the message for a dataset without a question field.

    Args:
        field_map: The fields detected so far.
        records: The first records.
    """
    fields = list(dict.fromkeys(name for record in records for name in record))
    listed = ", ".join(map(shown, fields[:_SHOWN_FIELDS])) or "none"
    if len(fields) > _SHOWN_FIELDS:
        listed += f" and {len(fields) - _SHOWN_FIELDS:,} more"
    if source := field_map.user_map.get("input"):
        return f"map: input: no record has a field {shown(source)}; fields found: {listed}"
    free = [name for name in fields[:_MAX_FIELDS] if not any(name in names for names in field_map.seen.values())]
    example = {} if "references" in field_map.seen else _likely_reference(free)
    question = _likely_question([name for name in free if name not in example.values()], records)
    hint = "say which field is the question: `map: {input: ...}`"
    if question:
        mapping = ", ".join(f"{name}: {shown(field)}" for name, field in ({"input": question} | example).items())
        hint = f"say which it is, for example `map: {{{mapping}}}`"
    known = f"{', '.join(ALIASES['input'])}, and the word for it in {len(LANGUAGES)} other languages"
    return f"no field holds the question (fields found: {listed}; read as the question: {known}); {hint}"


def _likely_reference(fields: Sequence[str]) -> dict[str, str]:
    names = {field: folded(field) for field in fields}
    for fits in (is_reference_name, looks_like_answer, _is_nearly("references")):
        likely = next((field for field, name in names.items() if fits(name)), None)
        if likely is not None:
            return {"reference": likely}
    return {}


def _is_nearly(field: str) -> Any:
    known = [name for name in names_of(field) if len(name) > 4]
    return lambda name: nearest(name, known) is not None


def _likely_question(fields: Sequence[str], records: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the likely question: by its name, else the field with the longest texts."""
    lengths = {field: length for field in fields if (length := _mean_length(field, records)) > 0}
    names = {field: folded(field) for field in lengths}
    nearly = _is_nearly("input")
    fits = (
        lambda name: not _words(name).isdisjoint(_QUESTION_WORDS) or any(word in name for word in names_of("input")),
        nearly,
        lambda name: name in _TEXT_NAMES[:2],
    )
    for is_fit in fits:
        likely = next((field for field, name in names.items() if is_fit(name)), None)
        if likely is not None:
            return likely
    return max(lengths, key=lambda field: lengths[field], default=None)


def _words(name: str) -> set[str]:
    return set(name.split("_"))


def _mean_length(field: str, records: Sequence[Mapping[str, Any]]) -> float:
    """Return the mean length of a field's texts; 0 if none could be a question."""
    name = folded(field)
    if not _words(name).isdisjoint(_NO_QUESTIONS) or looks_like_answer(name):
        return 0.0
    texts = [value for record in records if isinstance(value := record.get(field), str) and value]
    worded = [text for text in texts if _LETTERS.search(text)]
    if not worded or 2 * len(worded) < len(texts):
        return 0.0
    return sum(map(len, worded)) / len(worded)
