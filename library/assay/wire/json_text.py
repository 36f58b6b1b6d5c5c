"""JSON values as text fields of messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from assay.model.answers.agent_response import clean_text
from assay.parsing.strict_json import DECODER

if TYPE_CHECKING:
    from collections.abc import Mapping


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def mapping_to_text(data: Mapping[str, Any]) -> str:
    """Return a mapping as JSON text; empty for an empty mapping."""
    return clean_text(_ENCODER.encode(dict(data))) if data else ""


def mapping_from_text(text: str) -> dict[str, Any]:
    """Return the mapping in a JSON text; an empty mapping for the empty text.

    Raises:
        ValueError: The text is not a JSON object.
    """
    if not text:
        return {}
    data = value_from_text(text)
    if not isinstance(data, dict):
        raise ValueError(f"a JSON object is due, not {text[:60]}")
    return data


def value_from_text(text: str) -> Any:
    """Return the value in a JSON text.

    Raises:
        ValueError: The text is not JSON.
    """
    try:
        data = DECODER.decode(text)
        if "\\u" in text:
            # An escape may stand for a lone surrogate, which no store or wire accepts.
            data = json.loads(clean_text(json.dumps(data, ensure_ascii=False)))
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None
    return data
