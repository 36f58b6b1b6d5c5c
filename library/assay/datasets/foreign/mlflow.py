"""MLflow's evaluation tables: inputs, expectations, outputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.datasets.foreign.answers import recorded_in
from assay.datasets.foreign.messages import place_inputs
from assay.datasets.foreign.parts import Parts, listed, text_of

NAME = "mlflow"

FIELDS = {
    "input": "inputs",
    "variables": "inputs",
    "parameters": "inputs",
    "references": "expectations.expected_response",
    "expected_sources": "expectations.expected_retrieved_context",
    "recorded": "outputs",
}
"""The format's own field names, by canonical field."""


def matches(record: Mapping[str, Any], keys: frozenset[str]) -> bool:
    """Return whether a record is a row of such a table.

    Args:
        record: The record by snake-case names.
        keys: Its field names.
    """
    return "inputs" in keys and "expectations" in keys


def convert(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain record of a row; expectations other than the response stay under their names in `expected`.

    Raises:
        BadRecordError: It cannot be read.
    """
    parts = Parts(record)
    expectations = parts.mapping("expectations")
    expected = {name: value for name, value in expectations.items() if name != "expected_response"}
    response = expectations.get("expected_response")
    tags = parts.take("tags")
    plain: dict[str, Any] = {
        "id": parts.take("id", "dataset_record_id", "request_id"),
        **place_inputs(parts.take("inputs"), parts.name("inputs")),
        "references": [] if response is None else [_response(response)],
        "expected_sources": _addresses(expectations.get("expected_retrieved_context")),
        "recorded": recorded_in(parts.take("outputs"), parts.name("outputs")),
        "expected": expected,
        "tags": None if isinstance(tags, Mapping) else tags,
    }
    return parts.finish(plain, tags if isinstance(tags, Mapping) else None)


def _response(value: object) -> str:
    return text_of(value, "expectations.expected_response")


def _addresses(value: object) -> list[str]:
    """Return the addresses of expected documents; documents without one are kept only in `expected`."""
    addresses = [item.get("doc_uri") for item in listed(value) if isinstance(item, Mapping)]
    return [address for address in addresses if isinstance(address, str) and address]
