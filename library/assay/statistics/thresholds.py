"""Comparisons with a threshold, with a tolerance for float noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

TOLERANCE = 1e-9
_LARGE = 1e15


def meets(value: float, threshold: float) -> bool:
    """Return whether a value is at least a threshold."""
    return value >= threshold or abs(value - threshold) <= TOLERANCE


def exceeds(value: float, threshold: float) -> bool:
    """Return whether a value exceeds a threshold."""
    return value > threshold and abs(value - threshold) > TOLERANCE


def holds(value: float, rule: str, threshold: float) -> bool:
    """Return whether a value meets a threshold by a rule: "at_least", "more_than" or "at_most"."""
    match rule:
        case "at_least":
            return meets(value, threshold)
        case "more_than":
            return exceeds(value, threshold)
        case "at_most":
            return not exceeds(value, threshold)
    raise ValueError(f"there is no rule {rule!r}")


def text_apart(value: float, bounds: Collection[float], digits: int = 4) -> str:
    """Return a value with enough digits to look different from its bounds.

    Args:
        value: The value; digits before its point are shown in full.
        bounds: The bounds that it is compared with.
        digits: The least number of digits.
    """
    for count in (digits, digits + 3, 12):
        text = f"{value:.{count}g}"
        text = f"{value:.0f}" if "e+" in text and abs(value) < _LARGE else text
        if float(text) not in bounds or abs(float(text) - value) <= TOLERANCE:
            return text
    return repr(value)
