"""Plain values for JSON documents."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from enum import Enum
from typing import Any

from assay.model.interval import Interval


def plain(value: Any) -> Any:
    """Return a value for JSON: objects and intervals become mappings, enum members texts, NaN and infinity null."""
    if isinstance(value, Interval):
        return {"low": plain(value.low), "high": plain(value.high)}
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
