"""JSON as its standard has it: NaN and Infinity, which Python reads otherwise, are refused."""

from __future__ import annotations

import json
from typing import NoReturn

__all__ = ["DECODER"]


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
"""Raises ValueError where a text is not JSON, RecursionError where it is nested too deep."""
