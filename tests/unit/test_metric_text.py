"""Values and bounds of metrics in words."""

from __future__ import annotations

import pytest

from assay.reports.words.metric_text import bound_text, value_text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0.0000"),
        (0.80714, "0.8071"),
        (-0.00012, "-0.0001"),
        (1e-17, "0.0000"),  # noise of floating point
        (0.0000023, "2.3e-06"),
        (-0.00004, "-4e-05"),
        (123456789.5, "123456789.5000"),
        (2.5e200, "2.5e+200"),
    ],
)
def test_a_value_of_any_size_can_be_read(value: float, shown: str) -> None:
    """A formula may have values that four decimals would show as 0, or in a line of two hundred digits."""
    assert value_text("", value) == shown


@pytest.mark.parametrize(
    ("unit", "bound", "shown"),
    [
        ("", 0.75, "0.75"),
        ("", 0.00002, "2e-05"),
        ("%", 0.8505, "85.05%"),
        ("s", 0.005, "0.005 s"),
        ("tokens", 1500.0, "1500"),
    ],
)
def test_a_bound_has_every_digit_that_it_has(unit: str, bound: float, shown: str) -> None:
    """A threshold of 5 ms is not shown as one of 10."""
    assert bound_text(unit, bound) == shown
