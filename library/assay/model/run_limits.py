"""What a run says of its share of a shared installation, and of the runs that it advances with."""

from __future__ import annotations

MAX_TEAM_CHARS = 64
MAX_GROUP_CHARS = 64
MIN_RUN_WEIGHT = 0.01
MAX_RUN_WEIGHT = 100
