"""Parsing of quantities in a spec: durations (500ms, 30s, 2m, 1h) and shares (0.05, 5%)."""

from __future__ import annotations

import math
import re

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)?")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}
_PERCENT = re.compile(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*%\s*")


def read_duration_s(value: object) -> float:
    """Return a duration in seconds, the default unit; NaN if the value is not a duration."""
    match = _DURATION.fullmatch(str(value).strip()) if isinstance(value, int | float | str) else None
    return float(match[1]) * _UNITS_S[match[2]] if match and not isinstance(value, bool) else math.nan


def read_share(value: object) -> float | None:
    """Return the share that a number or a text such as "5%" means; None if the value is not a share.

    A plain 1 is refused because it may mean 1% or 100%.
    """
    if isinstance(value, str):
        match = _PERCENT.fullmatch(value) if len(value) <= 40 else None
        share = float(match[1]) / 100 if match is not None else -1.0
        return share if 0 <= share <= 1 else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1 else None
