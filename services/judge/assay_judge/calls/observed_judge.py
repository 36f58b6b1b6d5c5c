"""The instruments of one judge, looked up once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.telemetry.instruments import bounded_label
from assay_judge.calls.prices import NANO
from assay_judge.instruments import BREAKER_OPEN, CALL_SECONDS, CALLS, COST, RETRIES, TOKENS

if TYPE_CHECKING:
    from assay_judge.calls.usage import CallAttempt


class ObservedJudge:
    """The instruments of one judge.

    Args:
        model: Its model's id.
    """

    def __init__(self, model: str) -> None:
        self._model = model = bounded_label("model", model)
        self._seconds = CALL_SECONDS.series(model)
        self._input, self._output = (TOKENS.series(model, direction) for direction in ("input", "output"))
        self._cost = COST.series(model)
        self.retries = RETRIES.series(model)
        self.breaker = BREAKER_OPEN.series(model)
        self.breaker.set(0)

    def ended(self, attempt: CallAttempt) -> None:
        """Count a call that has ended."""
        direct = attempt.latency_ms is not None
        CALLS.series(self._model, "direct" if direct else "batch", attempt.outcome).inc()
        if attempt.latency_ms is not None:
            self._seconds.observe(attempt.latency_ms / 1000)
        self._input.inc(attempt.input or 0)
        self._output.inc(attempt.output or 0)
        self._cost.inc((attempt.cost or 0) / NANO)
