"""What the shards of a run work with: decided once, from its spec."""

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
    from assay_orchestrator.evidence.jury import RunJury
    from assay_orchestrator.pipeline.function_metrics import FunctionMetrics
    from assay_orchestrator.scorers.row_scorer import RowScorer
    from assay_orchestrator.store.rows.stops import StopLook


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a run needs, built once from its spec: limits, agent, metrics and clients.

    Args:
        case_count: Cases in the dataset.
        repeats: How often each case is run.
        concurrency: Most questions in flight at the agent.
        timeout_s: Longest wait for one attempt.
        agent: How to ask.
        metrics: In report order.
        scorer: Computes them on a row.
        optional: Names of the metrics that the run may end without: their failure leaves a row to the others.
        embedders: A client for each kind of vectors that the metrics need; empty where none needs any, or where only
            checks of cases may need some and there is no embedder.
        judge: The judge or jury; None where there is none, or no metric needs it.
        pausing: Set when the run is to be paused: what is being asked ends and is stored, nothing more is asked.
        max_attempts: Attempts at a row before it is a dead letter.
        turns: How many rows a round of the event loop may start and score, of all runs of the process.
        turn_score: What the value of a conversation is, one of `assay.model.run_settings.TURN_SCORES`.
        is_replay: Whether the answers are those that the dataset, or another run, recorded.
        source_run_id: The run whose stored answers are scored; empty for none.
        stop_look: Looks whether the run stops early; None where it asks all cases.
        stopped: Set when it has: no row is asked that has not begun.
        functions: The metrics that are functions on the user's side; None where there are none.
        host: The broker of the clients that answer for the agent, or for these metrics; None where neither is theirs.
        team: The team that it is for.
        observed: Takes what is counted and measured of it.
        traces: Where its cases belong in a trace.
        budget: What it may spend of its team's money and tokens.
        approvals: What is decided where the agent waits for a person, in cases without approvals of their own.
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
    judge: RunJury | None = None
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
        """Return what the value of a case's conversation is: of one that recorded its last answer alone, that."""
        return "last" if self.is_replay and not case.recorded_turns else self.turn_score
