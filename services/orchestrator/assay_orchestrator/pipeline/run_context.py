"""The context of a run's shards: built once from its spec."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assay_orchestrator.budgets.run_budget import RunBudget
from assay_orchestrator.instruments import ObservedRun
from assay_orchestrator.pipeline.case_traces import CaseTraces
from assay_orchestrator.pipeline.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.metrics.core.embedding import EmbeddingSettings
    from assay.metrics.core.score import Metric
    from assay.model.answers.approvals import Approval
    from assay.model.case import Case
    from assay_orchestrator.agents import RetryingAgent
    from assay_orchestrator.agents.hosted import HostedAgent
    from assay_orchestrator.evidence.embedding_client import EmbeddingClient
    from assay_orchestrator.evidence.run_judges import RunJudges
    from assay_orchestrator.pipeline.function_metrics import FunctionMetrics
    from assay_orchestrator.scorers.row_scorer import RowScorer
    from assay_orchestrator.store.rows.stops import StopLook


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a run needs, built once from its spec: limits, agent, metrics and clients.

    Args:
        case_count: Cases in the dataset.
        repeats: How many times each case runs.
        concurrency: Maximum questions in flight at the agent.
        timeout_s: Maximum time of one attempt, in seconds.
        agent: Asks the questions.
        metrics: In report order.
        scorer: Computes the metrics of a row.
        optional: Names of the metrics that the run may end without: if one fails, the others decide the row.
        embedders: A client for each kind of vectors that the metrics need; empty if none needs any, or if only checks
            of cases may need some and there is no embedder.
        judge: The judge or jury; None if there is none, or no metric needs it.
        pausing: Set when the run is about to pause: questions in flight end and are stored, no more are asked.
        max_attempts: Attempts at a row before it is a dead letter.
        turns: How many rows of all runs a round of the event loop may start and score.
        turn_score: How a conversation is valued, one of `assay.model.run_spec.TURN_SCORES`.
        is_replay: Whether the answers are recorded, in the dataset or by another run.
        source_run_id: The run whose stored answers are scored; empty for none.
        stop_look: Checks whether the run stops early; None if it asks all cases.
        stopped: Set when the run has stopped early: rows that have not begun are not asked.
        functions: The metrics that are functions on the user's side; None without any.
        host: The broker of the clients that host the agent or these metrics; None if no client hosts either.
        team: The team of the run.
        observed: The run's instruments.
        traces: The place of its cases in a trace.
        budget: The run's share of its team's money and tokens.
        approvals: The decisions for interrupts of the agent, in cases without approvals of their own.
    """

    run_id: str
    case_count: int
    repeats: int
    concurrency: int
    timeout_s: float
    agent: RetryingAgent
    metrics: Sequence[Metric]
    scorer: RowScorer
    embedders: Mapping[EmbeddingSettings, EmbeddingClient]
    judge: RunJudges | None = None
    optional: frozenset[str] = frozenset()
    pausing: asyncio.Event = field(default_factory=asyncio.Event)
    max_attempts: int = 3
    turns: Turns = field(default_factory=Turns)
    turn_score: str = "mean"
    is_replay: bool = False
    source_run_id: str = ""
    stop_look: StopLook | None = None
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    functions: FunctionMetrics | None = None
    host: HostedAgent | None = None
    team: str = ""
    observed: ObservedRun = field(default_factory=ObservedRun)
    traces: CaseTraces = field(default_factory=CaseTraces)
    budget: RunBudget = field(default_factory=RunBudget)
    approvals: tuple[Approval, ...] = ()

    def turn_score_of(self, case: Case) -> str:
        """Return how a case's conversation is valued: by its last answer if the case recorded only that."""
        return "last" if self.is_replay and not case.has_recorded_turns else self.turn_score
