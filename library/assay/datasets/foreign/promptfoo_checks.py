"""promptfoo's checks: the grammar of `__expected` cells, and the parts that are refused."""

from __future__ import annotations

import csv
import json
import math
import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from assay.datasets.records import BadRecordError, shown
from assay.parsing.yaml_nodes import parse_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping

_TYPES = frozenset({
    "answer-relevance", "assert-set", "bleu", "classifier", "conversation-relevance", "contains", "contains-all",
    "contains-any", "contains-html", "contains-json", "contains-sql", "contains-xml", "context-faithfulness",
    "context-recall", "context-relevance", "cost", "equals", "factuality", "finish-reason", "g-eval", "gleu",
    "guardrails", "icontains", "icontains-all", "icontains-any", "is-html", "is-json", "is-refusal", "is-sql",
    "is-valid-function-call", "is-valid-openai-function-call", "is-valid-openai-tools-call", "is-xml", "latency",
    "levenshtein", "llm-rubric", "max-score", "meteor", "model-graded-closedqa", "model-graded-factuality",
    "moderation", "perplexity", "perplexity-score", "pi", "regex", "rouge-n", "search-rubric", "select-best",
    "similar", "similar:cosine", "similar:dot", "similar:euclidean", "starts-with", "tool-call-f1",
    "trace-error-spans", "trace-span-count", "trace-span-duration", "trajectory:goal-success",
    "trajectory:tool-sequence", "trajectory:tool-used", "word-count",
})  # fmt: skip
_CODE_TYPES = frozenset({"javascript", "python", "ruby", "webhook"})
_CODE_CELL = re.compile(r"(not-)?(javascript|fn|eval|python|ruby|webhook|exec)(?:\([^)]*\))?:|file://|package:")
_LANGUAGES = {"python": "python", "ruby": "ruby", "webhook": "webhook"}
_LANGUAGE_OF_FILES = {".py": "python", ".rb": "ruby"}
_SPLIT = frozenset({"contains-all", "contains-any", "icontains-all", "icontains-any"})
_WITHOUT_VALUE = frozenset(kind for kind in _TYPES if kind.startswith("is-")) | {"contains-json"}
_CELL = re.compile(r"(not-)?([a-z]+(?:-[a-z0-9]+)*(?::[a-z-]+(?=[(:]))?)(?:\(([^)]*)\))?(?::(.*))?", re.DOTALL)
_PLACE = re.compile(r"\{\{-?\s*([A-Za-z_]\w*)\s*-?\}\}")
_TEMPLATE = re.compile(r"\{\{|\{%|\{#")
_CODE = "is code, which is never run: write it as a check such as contains, regex or is-json"


def check_of_cell(cell: str, field: str) -> dict[str, Any]:
    """Return the check in a cell: `[not-]type(threshold):value`, or a text that the answer must equal.

    Code is kept as text: nothing executes it, and no run makes such a check.

    Args:
        cell: The cell's text.
        field: Its column, for messages.

    Raises:
        BadRecordError: The cell is not a check.
    """
    text = cell.strip()
    if code := _CODE_CELL.match(text):
        by_file = next((name for ending, name in _LANGUAGE_OF_FILES.items() if ending in text), "javascript")
        language = by_file if code[2] is None else _LANGUAGES.get(code[2], "javascript")
        return {"type": (code[1] or "") + language, "value": text}
    if text.startswith("grade:"):
        return {"type": "llm-rubric", "value": text.removeprefix("grade:").strip()}
    parts = _parts(text)
    if parts is None:
        _refuse_slip(text, field)
        return {"type": "equals", "value": text}
    negation, kind, threshold, value = parts
    check: dict[str, Any] = {"type": negation + kind}
    if threshold is not None:
        check["threshold"] = number(threshold, field)
    if value is not None and value.strip():
        check["value"] = _cell_value(kind, value.strip(), field)
    return check


def _parts(text: str) -> tuple[str, str, str | None, str | None] | None:
    """Return negation, type, threshold and value of a cell; None for a text that does not begin with a type."""
    match = _CELL.fullmatch(text)
    if match is None:
        return None
    negation, kind, threshold, value = match.groups()
    if kind not in _TYPES and ":" in kind:
        kind, _, rest = kind.partition(":")
        # The apparent second half of a type is the value.
        threshold, value = None, text[len(negation or "") + len(kind) + 1 :] if rest else value
    if kind not in _TYPES or (threshold is None and value is None and kind not in _WITHOUT_VALUE):
        return None
    return negation or "", kind, threshold, value


def _refuse_slip(text: str, field: str) -> None:
    kind, colon, _ = text.partition(":")
    kind = kind.removeprefix("not-").partition("(")[0]
    close = get_close_matches(kind, _TYPES, n=1, cutoff=0.85) if colon and len(kind) > 4 else []
    if close and kind not in _TYPES and " " not in kind:
        raise BadRecordError(
            f"unknown check {kind!r}; did you mean {close[0]!r}? To compare with that very text, put equals: before it",
            field,
        )


def _cell_value(kind: str, value: str, field: str) -> Any:
    if kind in _SPLIT:
        cells = next(csv.reader([value.replace("\r", " ").replace("\n", " ")], skipinitialspace=True), [])
        return [cell.strip() for cell in cells if cell.strip()]
    if is_json_check(kind):
        schema = schema_in(value)
        if isinstance(schema, str):
            raise BadRecordError(f"must hold a JSON schema after {kind}:, not {shown(value)}", field)
        return schema
    return value


def is_json_check(kind: object) -> bool:
    """Return whether a check of this type, negated or not, contains a schema."""
    return isinstance(kind, str) and kind.removeprefix("not-") in ("is-json", "contains-json")


def schema_in(text: str) -> Any:
    """Return the schema in a text of JSON or YAML, or the text."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        schema, _ = parse_yaml(text, file="", problems=[])
    return schema if isinstance(schema, dict) else text


def number(value: object, field: str) -> float:
    """Return a finite number from a number or its digits.

    Raises:
        BadRecordError: The value is not a number.
    """
    result = math.nan
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            result = float(value)
        except (ValueError, OverflowError):
            result = math.nan
    if not math.isfinite(result):
        raise BadRecordError(f"must be a number, not {shown(value)}", field)
    return result


def is_code(check: Mapping[str, Any]) -> bool:
    """Return whether a check is a program, which no run executes."""
    kind = check.get("type")
    return isinstance(kind, str) and kind.strip().removeprefix("not-") in _CODE_TYPES


def refuse_code(check: Mapping[str, Any], field: str) -> None:
    """Refuse code inside a check of another type, and a file that may be code.

    Raises:
        BadRecordError: The check contains code.
    """
    for name in ("transform", "contextTransform", "config"):
        if check.get(name):
            raise BadRecordError(_CODE, f"{field}.{name}")
    value = check.get("value")
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, str) and item.lstrip().startswith(("file://", "package:")):
            raise BadRecordError(
                f"{shown(item)} names a file, which is not read: write the value here", f"{field}.value"
            )


def render(value: Any, variables: Mapping[str, Any], field: str) -> Any:
    """Return the value with every `{{name}}` in its texts replaced by the test's variable.

    Raises:
        BadRecordError: The template is more complex, or names a variable that the test lacks.
    """
    if isinstance(value, str):
        return _rendered(value, variables, field) if "{" in value else value
    if isinstance(value, list):
        return [render(item, variables, f"{field}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: render(item, variables, f"{field}.{key}") for key, item in value.items()}
    return value


def _rendered(text: str, variables: Mapping[str, Any], field: str) -> str:
    rest = _PLACE.sub("", text)
    if _TEMPLATE.search(rest):
        raise BadRecordError(
            f"{shown(text)} holds more of a template than {{{{name}}}}, which is not evaluated: write the text out",
            field,
        )

    def filled(place: re.Match[str]) -> str:
        content = variables.get(place[1])
        if content is None:
            raise BadRecordError(f"names the variable {place[1]!r}, which the test does not have", field)
        if isinstance(content, bool):
            return "true" if content else "false"
        if isinstance(content, str | int | float):
            return str(content)
        raise BadRecordError(f"puts the variable {place[1]!r} into a text, but it is {shown(content)}", field)

    return _PLACE.sub(filled, text)
