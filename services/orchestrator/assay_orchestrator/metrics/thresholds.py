"""Comparing with a threshold; the tolerance only absorbs float noise."""

from __future__ import annotations

__all__ = ["TOLERANCE", "exceeds", "meets"]

TOLERANCE = 1e-9


def meets(value: float, threshold: float) -> bool:
    """Return whether a value is at least a threshold."""
    return value >= threshold or abs(value - threshold) <= TOLERANCE


def exceeds(value: float, threshold: float) -> bool:
    """Return whether a value is more than a threshold."""
    return value > threshold and abs(value - threshold) > TOLERANCE
