"""Parts of a schema that name their draft: none gets the keywords of another implementation."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from assay.metrics.checks.schema_validation import schema_complaints, schema_problem, schema_validator

if TYPE_CHECKING:
    from collections.abc import Callable

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def nested(pattern: str) -> list[dict[str, Any]]:
    """Return schemas in which the part with the pattern names its draft."""
    part = {"$schema": DRAFT, "pattern": pattern}
    return [
        part,
        {"$ref": "#/$defs/a", "$defs": {"a": part}},
        {"allOf": [part]},
        {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"not": {"not": part}}]}}},
    ]


@pytest.mark.parametrize("schema", nested(r"^\d+$"), ids=range(4))
def test_a_part_that_names_its_draft_keeps_our_patterns(schema: dict[str, Any]) -> None:
    r"""Patterns are RE2's, whose \d is ASCII; Python's own would match any digit, and take for ever on others."""
    validator = schema_validator(json.dumps(schema))
    assert not schema_complaints("12", validator)
    assert schema_complaints("١٢", validator)


@pytest.mark.parametrize("schema", nested("^(a+)+$"), ids=range(4))
def test_a_pattern_that_python_would_not_end_ends(schema: dict[str, Any]) -> None:
    """Its steps double with every letter there."""
    assert schema_complaints("a" * 5_000 + "!", schema_validator(json.dumps(schema)))


def test_what_additional_properties_leave_to_patterns_is_decided_by_our_patterns() -> None:
    r"""A name in digits of another script matches Python's \d, not RE2's: it is an additional property."""
    schema = {"patternProperties": {r"^\d+$": {"type": "string"}}, "additionalProperties": False}
    validator = schema_validator(json.dumps(schema))
    assert not schema_complaints({"12": "a"}, validator)
    assert schema_complaints({"١٢": "a"}, validator) == ["$: Additional properties are not allowed: '١٢'"]


@pytest.mark.parametrize("wrap", [lambda part: part, lambda part: {"properties": {"a": part}}])
def test_an_id_that_is_no_address_is_refused(wrap: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Also where nothing refers to it."""
    assert "has an $id or $ref that cannot be read" in schema_problem(wrap({"$id": "http://["}))
    assert not schema_problem(wrap({"$id": "https://example.org/a"}))


def test_a_number_beyond_floats_departs_from_a_multiple() -> None:
    """It is divided by a float: that is a complaint of its row, not an error of ours."""
    validator = schema_validator(json.dumps({"multipleOf": 0.1}))
    assert schema_complaints(10**4_000, validator) == [
        "$: holds a number that is too large to be compared with the schema"
    ]
