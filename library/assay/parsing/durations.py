"""Durations as people write them: 500ms, 30s, 2m, 1h."""

from __future__ import annotations

import math
import re

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)?")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}


def read_duration_s(value: object) -> float:
    """Return a duration in seconds, which a number without a unit has; not a number where it is none."""
    found = _DURATION.fullmatch(str(value).strip()) if isinstance(value, int | float | str) else None
    return float(found[1]) * _UNITS_S[found[2]] if found and not isinstance(value, bool) else math.nan
