"""Jobs for real scorer processes, including hostile ones."""

from __future__ import annotations

import operator
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from assay.metrics import build_metric, complete_parameters
from assay.metrics.core.score import Row
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import MetricSpec
from assay_orchestrator.scorers.pool import ScorerPool
from assay_orchestrator.scorers.row_scorer import RowScorer
from assay_orchestrator.settings import ScoringLimits


class Effect:
    """Makes the scorer that receives it evaluate an expression before the actual job."""

    def __init__(self, expression: str, then: object = None) -> None:
        self._expression, self._then = expression, then

    def __reduce__(self) -> tuple[Any, ...]:
        return operator.itemgetter(1), ((_Evaluated(self._expression), self._then),)


class _Evaluated:
    def __init__(self, expression: str) -> None:
        self._expression = expression

    def __reduce__(self) -> tuple[Any, ...]:
        return eval, (self._expression,)


@pytest.fixture
def effect() -> type[Effect]:
    """Return the class of such jobs."""
    return Effect


@pytest.fixture
async def make_pool() -> AsyncIterator[Callable[..., ScorerPool]]:
    """Return a function that builds a pool with some limits; the pool is closed after the test."""
    made: list[ScorerPool] = []

    def make(scorers: int = 1, timeout_s: float = 60.0, memory_mib: int = 256) -> ScorerPool:
        made.append(ScorerPool(ScoringLimits(scorers, timeout_s, memory_mib)))
        return made[-1]

    yield make
    for pool in made:
        await pool.aclose()


@pytest.fixture
def scorer_of() -> Callable[..., RowScorer]:
    """Return a function that builds the scorer of a run with some metrics."""

    def make(pool: ScorerPool, *metrics: tuple[str, dict[str, Any]], run_id: str = "run") -> RowScorer:
        settings = [MetricSpec(kind, complete_parameters(kind, given, where="m")) for kind, given in metrics]
        return RowScorer(pool, run_id, settings, [build_metric(one) for one in settings])

    return make


@pytest.fixture
def row_of() -> Callable[..., Row]:
    """Return a function that builds a row from an answer and its references."""

    def make(text: str = "", *references: str, **fields: Any) -> Row:
        return Row(Case("c", (Turn("q", references=references),)), AgentResponse(text=text, **fields))

    return make
