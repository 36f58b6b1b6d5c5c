"""How often and how long a judge is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class Patience:
    """How long and how often a judge is asked.

    Args:
        attempts: Most attempts that fail for other reasons than a 429, the first one included.
        attempt_timeout_s: How long one attempt may take.
        pause_s: Longest pause before the second attempt; doubled before each further one.
        breaker_s: How long a call waits for a judge that fails all the time.
    """

    attempts: int = 5
    attempt_timeout_s: float = 60.0
    pause_s: float = 0.5
    breaker_s: float = 30.0
