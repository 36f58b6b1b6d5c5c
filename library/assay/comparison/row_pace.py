"""How long a further row of a run takes: the pace of its rows, without what the first of them waited for."""

from __future__ import annotations

import math
import statistics
from datetime import datetime


class Pace:
    """Takes the rows of a run and says how many seconds each further row would take.

    Models load and processes start before the first row ends. A run of few rows is mostly that, so its wall time says
    nothing about a run of many.
    """

    def __init__(self) -> None:
        self._ends_s: list[float] = []
        self._latencies_ms: list[float] = []

    def take(self, started_at: str | None, duration_ms: float | None, latency_ms: float | None) -> None:
        """Take one row.

        Args:
            started_at: When it was started, as ISO 8601; None where that is not known.
            duration_ms: How long it took from its question to its scores, in milliseconds.
            latency_ms: How long the agent took, in milliseconds.
        """
        if started_at and duration_ms is not None:
            self._ends_s.append(datetime.fromisoformat(started_at).timestamp() + duration_ms / 1000)
        if latency_ms is not None:
            self._latencies_ms.append(latency_ms)

    def row_s(self, concurrency: int) -> float | None:
        """Return the seconds for each further row: between the ends of rows, and at least the agent's share.

        Ends are taken between their quartiles: a row that fails at once does not wait for a model, the others do.

        Args:
            concurrency: How many questions the agent has at once.
        """
        paces = []
        if len(self._ends_s) > 1:
            first, _, third = statistics.quantiles(self._ends_s, n=4, method="inclusive")
            paces.append((third - first) / ((len(self._ends_s) - 1) / 2))
        if self._latencies_ms:
            mean_ms = math.fsum(self._latencies_ms) / len(self._latencies_ms)
            paces.append(mean_ms / 1000 / max(1, concurrency))
        return max(paces, default=None)
