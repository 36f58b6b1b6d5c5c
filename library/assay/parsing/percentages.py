"""Shares as people write them: 0.05, or 5%."""

from __future__ import annotations

import re

_PERCENT = re.compile(r"\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*%\s*")


def read_share(value: object) -> float | None:
    """Return the share that a number or a text such as "5%" means; None for anything that is no share.

    A plain 1 is no share: it may mean 1% or 100%.
    """
    if isinstance(value, str):
        found = _PERCENT.fullmatch(value) if len(value) <= 40 else None
        share = float(found[1]) / 100 if found is not None else -1.0
        return share if 0 <= share <= 1 else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 <= value < 1 else None
