"""Attempts, timeouts and backoff of calls."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how long a call of a judge is attempted.

    Args:
        attempts: Most attempts that fail for other reasons than a 429, the first one included.
        attempt_timeout_s: How long one attempt may take.
        pause_s: Longest pause before the second attempt; doubled before each further one.
        breaker_s: How long a call waits for an open circuit breaker, in seconds.
    """

    attempts: int = 5
    attempt_timeout_s: float = 60.0
    pause_s: float = 0.5
    breaker_s: float = 30.0
