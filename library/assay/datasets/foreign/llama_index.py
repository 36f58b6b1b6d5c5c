"""LlamaIndex's labelled examples: query, reference answer, reference contexts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.datasets.foreign.parts import Parts, text_of

NAME = "llama-index"

FIELDS = {"input": "query", "references": "reference_answer"}
"""The format's own field names, by canonical field."""


def matches(record: Mapping[str, Any], keys: frozenset[str]) -> bool:
    """Return whether a record is an example.

    Args:
        record: The record by snake-case names.
        keys: Its field names.
    """
    return "query" in keys and ({"reference_answer", "reference_contexts"} <= keys or "query_by" in keys)


def convert(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain record of an example; reference contexts are passages and go to `expected`.

    Raises:
        BadRecordError: It cannot be read.
    """
    parts = Parts(record)
    contexts = parts.texts("reference_contexts")
    query = parts.take("query")
    plain: dict[str, Any] = {
        "input": None if query is None else text_of(query, parts.name("query")),
        "references": parts.texts("reference_answer"),
        "expected": {"reference_contexts": contexts} if contexts else {},
    }
    return parts.finish(plain)
