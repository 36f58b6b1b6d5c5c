"""From a raw record to a case: field names recognised by their aliases, everything checked."""

from __future__ import annotations

import hashlib
import json
import math
import unicodedata
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.answers import AgentResponse, MalformedAnswerError, Message, response_from_json
from assay.cases import Case, Turn
from assay.names import nearest, unknown_name

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ALIASES", "FieldMap", "derive_id", "foreign_format", "map_record"]

ALIASES: Mapping[str, tuple[str, ...]] = {
    "input": ("input", "question", "query", "user_query", "user_input", "prompt", "instruction"),
    "references": ("references", "reference_answer", "reference", "ground_truth", "ground_truths", "expected_answer",
                   "expected_output", "expected", "expected_response", "ideal", "target"),
    "id": ("id", "eval_id", "case_id", "example_id", "name"),
    "category": ("category", "type"),
    "tags": ("tags",),
    "variables": ("variables", "vars"),
    "parameters": ("parameters", "filters"),
    "contexts": ("contexts", "context", "retrieved_contexts"),
    "history": ("history", "messages"),
    "expected_sources": ("expected_sources", "reference_contexts", "expected_urls"),
    "metadata": ("metadata",),
    "recorded": ("recorded", "actual_output", "response", "output"),
}  # fmt: skip
"""Canonical field to the names it is recognised by, best first; case does not count, `-` and space are `_`."""

_MAX_ID_CHARS = 200
_SHOWN_CHARS = 60


@dataclass(slots=True)
class FieldMap:
    """Which field of the dataset holds what, decided record by record and remembered for people.

    Args:
        given: The user's own mapping, canonical name to the dataset's.
        seen: Canonical name to the dataset's, as recognised so far.
    """

    given: Mapping[str, str] = field(default_factory=dict)
    seen: dict[str, str] = field(default_factory=dict)
    _by_keys: dict[tuple[str, ...], dict[str, str]] = field(default_factory=dict)

    def problems(self) -> list[str]:
        """Return what is wrong with the user's mapping."""
        return [unknown_name("field in map", name, ALIASES) for name in self.given if name not in ALIASES]

    def resolve(self, record: Mapping[str, Any]) -> dict[str, str]:
        """Return, for one record, canonical name to the record's field."""
        keys = tuple(record)
        found = self._by_keys.get(keys)
        if found is None:
            found = self._resolve(keys)
            if len(self._by_keys) < 1000:
                self._by_keys[keys] = found
            for name, source in found.items():
                self.seen.setdefault(name, source)
        return found

    def _resolve(self, keys: tuple[str, ...]) -> dict[str, str]:
        folded: dict[str, str] = {}
        for key in keys:
            folded.setdefault(key.strip().lower().replace("-", "_").replace(" ", "_"), key)
        found = {}
        for name, aliases in ALIASES.items():
            if name in self.given:
                if self.given[name] in keys:
                    found[name] = self.given[name]
            else:
                source = next((folded[alias] for alias in aliases if alias in folded), None)
                if source is not None and source not in self.given.values():
                    found[name] = source
        # `answer` is the reference, unless another field is; then it is what an agent once answered.
        if "answer" in folded and folded["answer"] not in self.given.values():
            if "references" not in found and "references" not in self.given:
                found["references"] = folded["answer"]
            elif "recorded" not in found and "recorded" not in self.given:
                found["recorded"] = folded["answer"]
        return found


class _Fields:
    """The values of one record by canonical name; gathers what is wrong."""

    def __init__(self, record: Mapping[str, Any], names: Mapping[str, str]) -> None:
        self._record = record
        self._names = names
        self.problems: list[tuple[str, str]] = []

    def report(self, name: str, message: str) -> None:
        self.problems.append((self._names.get(name, name), message))

    def get(self, name: str) -> Any:
        return self._record[self._names[name]] if name in self._names else None

    def text(self, name: str) -> str:
        value = self.get(name)
        return "" if value is None else self.as_text(name, value)

    def as_text(self, name: str, value: object) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self.report(name, f"must be a text, not {_shown(value)}")
            return ""
        if isinstance(value, float) and not math.isfinite(value):
            self.report(name, f"must be a text, not {value}")
            return ""
        text = str(value)
        if "\0" in text or _has_surrogate(text):
            self.report(name, f"holds a character that no text may hold (NUL or half of a pair): {_shown(text)}")
            return ""
        return text

    def texts(self, name: str) -> tuple[str, ...]:
        value = self.get(name)
        if value is None:
            return ()
        if isinstance(value, list):
            return tuple(self.as_text(name, item) for item in value if item is not None)
        return (self.as_text(name, value),)

    def mapping(self, name: str) -> dict[str, Any]:
        value = self.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.report(name, f"must be a mapping, not {_shown(value)}")
            return {}
        return value


def map_record(record: object, field_map: FieldMap) -> tuple[Case | None, list[tuple[str, str]]]:
    """Return the case of a record, or what is wrong with it as (field, message) pairs.

    A case without an id of its own gets the empty id; `derive_id` makes one.
    """
    if not isinstance(record, dict):
        return None, [("", f"must be an object with named fields, not {_shown(record)}")]
    if not all(isinstance(key, str) for key in record):
        return None, [("", "has a field name that is not a text")]
    names = field_map.resolve(record)
    fields = _Fields(record, names)
    value = fields.get("input")
    variables = fields.mapping("variables")
    text = ""
    if isinstance(value, dict):
        variables = {**value, **variables}
    elif value is not None:
        text = fields.as_text("input", value)
    case = Case(
        case_id=_case_id(fields),
        turns=(
            Turn(
                input=text,
                history=_history(fields),
                references=fields.texts("references"),
                expected_sources=fields.texts("expected_sources"),
            ),
        ),
        variables=variables,
        parameters=fields.mapping("parameters"),
        contexts=fields.texts("contexts"),
        category=fields.text("category"),
        tags=fields.texts("tags"),
        metadata={**fields.mapping("metadata"), **_unmapped(record, names)},
        recorded=_recorded(fields),
    )
    if not fields.problems and not text.strip() and not variables:
        fields.problems.append(_no_input(record, names))
    return (None if fields.problems else case), fields.problems


def derive_id(case: Case) -> str:
    """Return 12 hexadecimal digits that stay the same when cases are reordered or references edited."""
    content = [case.input, case.variables, case.parameters]
    text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(unicodedata.normalize("NFC", text).encode()).hexdigest()[:12]


def foreign_format(record: object) -> str:
    """Return the name of a format of other tools that this version does not read, or the empty string."""
    if not isinstance(record, dict):
        return ""
    keys = set(record)
    if "conversation" in keys or {"name", "data"} <= keys:
        return "an ADK eval set"
    if "expected_tool_use" in keys:
        return "an ADK test file, which is one conversation,"
    if "assert" in keys or ("vars" in keys and not keys & {"input", "question", "expected"}):
        return "a promptfoo test file"
    if {"output_1", "output_2"} <= keys:
        return "a file of pairwise labels"
    if isinstance(record.get("inputs"), dict) and keys & {"outputs", "expectations"}:
        return "an MLflow or LangSmith dataset"
    return ""


def _case_id(fields: _Fields) -> str:
    case_id = fields.text("id").strip()
    if len(case_id) > _MAX_ID_CHARS:
        fields.report("id", f"must have at most {_MAX_ID_CHARS} characters, not {len(case_id)}")
    elif any(unicodedata.category(char) in ("Cc", "Zl", "Zp") for char in case_id):
        fields.report("id", f"must not hold control characters: {_shown(case_id)}")
    return case_id


def _history(fields: _Fields) -> tuple[Message, ...]:
    value = fields.get("history")
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        fields.report("history", f"must be a list of messages with role and content, not {_shown(value)}")
        return ()
    return tuple(
        Message(
            role=fields.as_text("history", item.get("role", "user")),
            content=fields.as_text("history", item.get("content", "")),
        )
        for item in value
    )


def _recorded(fields: _Fields) -> AgentResponse | None:
    value = fields.get("recorded")
    if value is None:
        return None
    try:
        return response_from_json(value)
    except MalformedAnswerError as problem:
        fields.report("recorded", f"is no recorded answer: {problem}")
        return None


def _unmapped(record: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    used = set(names.values())
    return {key: value for key, value in record.items() if key not in used}


def _no_input(record: Mapping[str, Any], names: Mapping[str, str]) -> tuple[str, str]:
    if "input" in names:
        return names["input"], "is blank: every case needs a question"
    close = next((key for key in record if nearest(key, ALIASES["input"])), None)
    hint = f"; is it {close!r}? then set map: {{input: {close}}}" if close else ", or set map: {input: YOUR_FIELD}"
    found = ", ".join(list(record)[:12]) or "none"
    return "", f"has no input field (fields: {found}): name it {' or '.join(ALIASES['input'][:3])}{hint}"


def _has_surrogate(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def _shown(value: object) -> str:
    text = ascii(value) if isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN_CHARS else text[: _SHOWN_CHARS - 3] + "..."
