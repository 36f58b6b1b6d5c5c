"""Comparing with a threshold; the tolerance only absorbs float noise."""

from __future__ import annotations

TOLERANCE = 1e-9


def meets(value: float, threshold: float) -> bool:
    """Return whether a value is at least a threshold."""
    return value >= threshold or abs(value - threshold) <= TOLERANCE


def exceeds(value: float, threshold: float) -> bool:
    """Return whether a value is more than a threshold."""
    return value > threshold and abs(value - threshold) > TOLERANCE


def holds(value: float, rule: str, threshold: float) -> bool:
    """Return whether a value stands to a threshold as a rule demands: "at_least", "more_than" or "at_most"."""
    match rule:
        case "at_least":
            return meets(value, threshold)
        case "more_than":
            return exceeds(value, threshold)
        case "at_most":
            return not exceeds(value, threshold)
    raise ValueError(f"there is no rule {rule!r}")
