"""Attempts, timeouts and backoff of calls."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Attempts, timeouts and backoff of a judge's calls.

    Args:
        attempts: Most attempts, including the first; attempts that end in a 429 do not count.
        attempt_timeout_s: Timeout of one attempt, in seconds.
        pause_s: Longest pause before the second attempt, in seconds; doubled before each further attempt.
        breaker_s: How long a call waits for an open circuit breaker, in seconds.
    """

    attempts: int = 5
    attempt_timeout_s: float = 60.0
    pause_s: float = 0.5
    breaker_s: float = 30.0
