"""Fields of a spec by kind: what is read, what is reported, and the default in the place of what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from assay.parsing.fields import Fields


@pytest.mark.parametrize(
    ("value", "read", "expected", "said"),
    [
        (None, lambda fields: fields.whole("x", 3, 1, 9), 3, ""),
        (4.0, lambda fields: fields.whole("x", 3, 1, 9), 4, ""),
        (4.5, lambda fields: fields.whole("x", 3, 1, 9), 3, "must be a whole number from 1 to 9, not 4.5"),
        (True, lambda fields: fields.whole("x", 3), 3, "must be a whole number, not True"),
        (10, lambda fields: fields.whole("x", 3, 1, 9_000), 10, ""),
        ("10", lambda fields: fields.whole("x", 3, 1, 9_000), 3, "must be a whole number from 1 to 9,000, not '10'"),
        (None, lambda fields: fields.number("x"), None, ""),
        (2, lambda fields: fields.number("x"), 2.0, ""),
        (3, lambda fields: fields.number("x", 1.0, 0.5, 2), 1.0, "must be a number from 0.5 to 2, not 3"),
        (float("nan"), lambda fields: fields.number("x", 1.0, 0, 2), 1.0, "must be a number from 0 to 2, not nan"),
        (1, lambda fields: fields.text("x"), "", "must be a string, not 1"),
        ("yes", lambda fields: fields.flag("x"), False, "must be true or false, not 'yes'"),
        (None, lambda fields: fields.choice("x", ("a", "b")), "a", ""),
        ("c", lambda fields: fields.choice("x", ("a", "b")), "a", "must be a or b, not 'c'"),
        (["a"], lambda fields: fields.choice("x", ("a", "b", "c")), "a", "must be one of a, b, c, not ['a']"),
        ("2m", lambda fields: fields.duration_s("x", 30, 1, 3600, "a duration"), 120.0, ""),
        ("2h", lambda fields: fields.duration_s("x", 30, 1, 3600, "a time"), 30, "must be a time, not '2h'"),
        ("soon", lambda fields: fields.duration_s("x", 30, 1, 3600, "a time"), 30, "must be a time, not 'soon'"),
    ],
)
def test_a_field_is_read_by_its_kind(value: object, read: Any, expected: object, said: str) -> None:
    """A wrong value is reported once, and its default lets the others be checked."""
    reported: list[tuple[str, str]] = []
    assert read(Fields({"x": value}, lambda name, message: reported.append((name, message)))) == expected
    assert reported == ([("x", said)] if said else [])


def test_fields_that_there_are_not_are_reported() -> None:
    """Each with the field that may have been meant."""
    reported: list[tuple[str, str]] = []
    Fields({"targt": 1, "target": 2}, lambda name, message: reported.append((name, message))).unknown(("target",))
    assert reported == [("targt", "unknown field 'targt'; did you mean 'target'?")]
