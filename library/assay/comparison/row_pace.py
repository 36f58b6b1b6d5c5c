"""The wall time of a further row of a run, without the start-up before its first rows."""

from __future__ import annotations

import math
import statistics
from datetime import datetime


class Pace:
    """Estimates from the rows of a run how many seconds each further row takes.

    Models load and processes start before the first row ends. In a run of few rows that is most of the wall time, which
    says nothing about a run of many rows.
    """

    def __init__(self) -> None:
        self._ends_s: list[float] = []
        self._latencies_ms: list[float] = []

    def take(self, started_at: str | None, duration_ms: float | None, latency_ms: float | None) -> None:
        """Add a row.

        Args:
            started_at: The time of its start, ISO 8601; None if unknown.
            duration_ms: The time from its question to its scores, in milliseconds.
            latency_ms: The agent's time, in milliseconds.
        """
        if started_at and duration_ms is not None:
            self._ends_s.append(datetime.fromisoformat(started_at).timestamp() + duration_ms / 1000)
        if latency_ms is not None:
            self._latencies_ms.append(latency_ms)

    def row_s(self, concurrency: int) -> float | None:
        """Return the seconds for each further row: between the ends of rows, and at least the agent's share.

        Only ends between the quartiles count, since a row that fails at once does not wait for a model.

        Args:
            concurrency: The number of questions that the agent answers at once.
        """
        paces = []
        if len(self._ends_s) > 1:
            first, _, third = statistics.quantiles(self._ends_s, n=4, method="inclusive")
            paces.append((third - first) / ((len(self._ends_s) - 1) / 2))
        if self._latencies_ms:
            mean_ms = math.fsum(self._latencies_ms) / len(self._latencies_ms)
            paces.append(mean_ms / 1000 / max(1, concurrency))
        return max(paces, default=None)
