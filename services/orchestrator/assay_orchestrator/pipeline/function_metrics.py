"""Metrics that are functions on the user's side: requests to clients, and the outcomes they return."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.metrics.python import Python
from assay.model.metric_call import MetricRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from assay.metrics.core.score import Metric
    from assay.model.answers.agent_request import AgentRequest
    from assay.model.case import Turn
    from assay.model.metric_call import MetricOutcome
    from assay_orchestrator.agents.hosted import HostedAgent
    from assay_orchestrator.pipeline.conversations import ScoredTurn


class FunctionMetrics:
    """The metric functions of a run, called by its attached clients.

    Args:
        host: The broker between the run and these clients.
        metrics: The functions.
    """

    def __init__(self, host: HostedAgent, metrics: Sequence[Python]) -> None:
        self._host = host
        self._names = tuple(metric.name for metric in metrics)
        self._timeout_s = max(metric.timeout_s for metric in metrics)

    async def outcomes(
        self, turns: Sequence[ScoredTurn], question_of: Callable[[ScoredTurn], AgentRequest]
    ) -> list[Mapping[str, MetricOutcome]]:
        """Return the outcomes of the functions for each turn with expectations, and for the last turn.

        A row whose agent failed has no outcomes.

        Args:
            turns: The scored turns of the row.
            question_of: Returns the question that a turn answers.

        Raises:
            NotAskedError: The run is being paused, and no client has the request.
        """
        if turns[-1].response.is_failed:
            return [{} for _ in turns]
        outcomes: list[Mapping[str, MetricOutcome]] = []
        for turn in turns:
            if turn.turn_index is not None and not _expects(turn.case.turns[-1]):
                outcomes.append({})
                continue
            question = question_of(turn)
            request = MetricRequest(
                request_id=f"{question.idempotency_key}#metrics",
                metrics=self._names,
                case=turn.case,
                question=question,
                response=turn.response,
                timeout_s=self._timeout_s,
            )
            outcomes.append(await self._host.compute(request))
        return outcomes


def _expects(turn: Turn) -> bool:
    return bool(turn.references or turn.expected_sources or turn.expected_tools)


def function_metrics(host: HostedAgent, metrics: Sequence[Metric]) -> FunctionMetrics | None:
    """Return the function metrics of a run; None if it has none."""
    functions = [metric for metric in metrics if isinstance(metric, Python)]
    return FunctionMetrics(host, functions) if functions else None
