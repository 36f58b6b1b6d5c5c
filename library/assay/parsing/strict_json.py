"""Standard JSON: NaN, Infinity and 1e999, which Python's parser accepts, are refused."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn


class DuplicateKeyError(ValueError):
    """An object has the same key twice, and readers differ in which value they use."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:40]} is more than a number can be")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) < len(pairs):
        raise DuplicateKeyError("an object has the same key twice")
    return data


DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)
"""Raises ValueError for a text that is not JSON, RecursionError for one that is nested too deep."""

REPLY_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_unique)
"""For replies of agents, models and judges: like DECODER, but also raises DuplicateKeyError."""
