"""Text on a case's expectations beside references: sources, tool calls, tables, checks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def expected_parts(expected: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a label and a text, both untrusted, for each thing that a row's case expects, e.g. "expected sources".

    Args:
        expected: As the rows of a run have it.
    """
    return [(name.replace("_", " "), _text(value)) for name, value in expected.items()]


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(map(_item, value))
    return _item(value)


def _item(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and "name" in value and value.keys() <= {"name", "arguments", "match"}:
        match = "" if value.get("match") in (None, "name") else f" ({value['match']})"
        return f"{value['name']}({_json(value.get('arguments', {}))}){match}"
    if isinstance(value, dict) and "type" in value:
        rest = {key: part for key, part in value.items() if key not in ("type", "value", "negate")}
        text = f"{'not-' if value.get('negate') else ''}{value['type']}"
        parts = [_json(part) for part in (value.get("value"), rest or None) if part is not None]
        return f"{text}: {' '.join(parts)}" if parts else text
    return _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
