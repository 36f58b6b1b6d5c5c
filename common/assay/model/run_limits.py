"""What a run says of its share of a shared installation."""

from __future__ import annotations

__all__ = ["MAX_RUN_WEIGHT", "MAX_TEAM_CHARS", "MIN_RUN_WEIGHT"]

MAX_TEAM_CHARS = 64
MIN_RUN_WEIGHT = 0.01
MAX_RUN_WEIGHT = 100
