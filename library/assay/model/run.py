"""The results of a run: its state, rows and summary.

The names match `protos/assay/v1/run.proto` and the files that it imports. A missing value is None, never 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from assay.model.answers.agent_response import AgentResponse, AgentStatus
from assay.model.run_spec import (
    AgentSpec,
    CaseSelection,
    DatasetReading,
    JudgeModel,
    JudgeSpec,
    MetricSpec,
    RunSpec,
    SpendCap,
)
from assay.model.run_summary import (
    GateOutcome,
    GateResult,
    GateSource,
    GroupSummary,
    LatencySummary,
    MetricSummary,
    RepeatRate,
    RepeatSummary,
    RepeatVariance,
    RunSummary,
    RunVerdict,
    ThresholdRule,
    WeightedSummary,
)

if TYPE_CHECKING:
    from array import array
    from collections.abc import Mapping, Sequence

    from assay.model.judge_calibration import JudgeCalibration
    from assay.model.judgement import Judgement
    from assay.model.judging_summary import JudgingSummary

__all__ = [
    "FINISHED_STATES",
    "AgentSpec",
    "AttemptOutcome",
    "CaseSelection",
    "DatasetReading",
    "DatasetRef",
    "Deletion",
    "GateOutcome",
    "GateResult",
    "GateSource",
    "GroupSummary",
    "JudgeModel",
    "JudgeSpec",
    "JudgingSummary",
    "LatencySummary",
    "MetricSpec",
    "MetricSummary",
    "PauseCause",
    "RepeatRate",
    "RepeatSummary",
    "RepeatVariance",
    "RowAttempt",
    "RowResult",
    "Run",
    "RunCounts",
    "RunSpec",
    "RunState",
    "RunSummary",
    "RunVerdict",
    "Score",
    "ScoreStatus",
    "SpendCap",
    "StateChanged",
    "ThresholdRule",
    "TurnResult",
    "WeightedSummary",
]


class RunState(StrEnum):
    """The state of a run."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINISHED_STATES = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED})


class PauseCause(StrEnum):
    """The cause of a pause."""

    OWNER = "owner"
    INTERRUPTED = "interrupted"
    STORAGE = "storage"
    JUDGE = "judge"
    UNATTENDED = "unattended"
    QUOTA = "quota"


class AttemptOutcome(StrEnum):
    """The outcome of an attempt at a row."""

    CURRENT = "current"
    RETRIED = "retried"
    INTERRUPTED = "interrupted"


class ScoreStatus(StrEnum):
    """Whether a score has a value."""

    SCORED = "scored"
    SKIPPED = "skipped"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Score:
    """A metric's result on a row.

    Args:
        status: Whether there is a value.
        value: Finite; set exactly when status is SCORED.
        passed: Whether the row passes by this metric; None where the metric does not decide.
        reason: A stable code such as "no_reference", or empty.
        detail: The origin of the score and the metric's further results.
        message: Why it fails or has no value, as a sentence; empty if the standard sentence for its reason applies.
        judgements: The verdicts of the judges behind the score, by turn and check and in the order of a jury.

    Raises:
        ValueError: The value is not finite or does not fit the status.
    """

    metric: str
    status: ScoreStatus
    value: float | None = None
    passed: bool | None = None
    reason: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""
    judgements: tuple[Judgement, ...] = ()

    def __post_init__(self) -> None:
        has_value = self.value is not None and math.isfinite(self.value)
        if has_value is not (self.status is ScoreStatus.SCORED) or (self.value is not None and not has_value):
            raise ValueError(f"{self.metric}: a score with status {self.status} cannot have the value {self.value}")


@dataclass(frozen=True, slots=True)
class TurnResult:
    """A turn of a conversation.

    Args:
        input: The user's text.
        references: The turn's references.
        response: The answer; None if the turn was not asked because the agent failed earlier.
        left_out: Whether texts are omitted because the row exceeds a message; the database has them.
        expected: The turn's expectations besides references, by dataset field name; empty if there are none.
    """

    input: str
    references: Sequence[str] = ()
    response: AgentResponse | None = None
    left_out: bool = False
    expected: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RowResult:
    """The row of one repeat of one case.

    Args:
        case_index: The case's position in the dataset, from 0.
        repeat: The repeat, from 1.
        category: The case's category, or empty.
        tags: The case's tags.
        weight: The case's weight.
        status: The status of the agent's answer.
        passed: The row's verdict; None if no metric decided.
        scores: One per metric, in the spec's order; in a client also by name, `scores["rouge"]`.
        latency_ms: Wall time of the agent, if measured.
        message: Why the row or its agent failed, as a sentence; empty if neither did.
        sequence: The event's number within the run.
        response: The answer; None if it was not requested.
        input: The user's text, or the case's variables as JSON if it has none; empty if not requested.
        references: The references; empty if not requested.
        answer_vector: The answer's embedding, for metrics over rows: little-endian float32 as stored, or the numbers of
            a user's function. It never leaves the orchestrator.
        turns: Every turn of a conversation; empty for a single question, and if answers were not requested. The scores
            of the turns are in `detail["turns"]` of the row's scores.
        started_at: When the agent was first asked, ISO 8601 in UTC; for an answer stored before a resume, when its
            scoring began.
        duration_ms: Wall time from started_at until the scores were known, including attempts, the waits between them,
            and scoring.
        place: The case's position in the client's dataset if cases were uploaded in another order; None otherwise, and
            if answers were not requested.
        expected: The case's expectations besides references, by dataset field name (expected_sources, expected_tools,
            assertions and other values that metrics compare with); empty if answers were not requested.
    """

    case_id: str
    case_index: int
    repeat: int
    category: str
    status: AgentStatus
    passed: bool | None
    scores: Sequence[Score]
    latency_ms: float | None
    message: str
    sequence: int = 0
    response: AgentResponse | None = None
    input: str = ""
    references: Sequence[str] = ()
    tags: tuple[str, ...] = ()
    weight: float = 1.0
    answer_vector: bytes | array[float] = b""
    turns: Sequence[TurnResult] = ()
    started_at: str = ""
    duration_ms: float | None = None
    place: int | None = None
    expected: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RowAttempt:
    """An attempt at a row.

    Args:
        repeat: The repeat of the case, from 1.
        attempt_index: The attempt, from 0.
        outcome: The attempt's outcome.
        at: When it was stored or set aside, or, if interrupted, when it began; ISO 8601 in UTC.
        result: The result with its answer; None if it was interrupted.
    """

    repeat: int
    attempt_index: int
    outcome: AttemptOutcome
    at: str
    result: RowResult | None


@dataclass(frozen=True, slots=True)
class DatasetRef:
    """The dataset of a run, with its name when the run was created."""

    dataset_id: str
    name: str
    case_count: int


@dataclass(frozen=True, slots=True)
class Deletion:
    """The data that deleting a run removes.

    Args:
        row_count: Rows with a result.
        size_bytes: Approximate size.
        baselines: The names of the baselines that point to the run, sorted.
    """

    row_count: int
    size_bytes: int
    baselines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunCounts:
    """Numbers of rows of a run, a row being one repeat of a case; `answered_count` is set only for a paused run.

    Failed rows include agent errors, and agent errors include interrupted rows.
    """

    total_count: int = 0
    finished_count: int = 0
    passed_count: int = 0
    failed_count: int = 0
    agent_error_count: int = 0
    answered_count: int = 0
    interrupted_count: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """An evaluation of an agent over a dataset; times are ISO 8601 texts in UTC.

    A run that is PAUSING or PAUSED has a `pause_cause`. `calibrations` are those of the judges of its verdicts.
    """

    run_id: str
    spec: RunSpec
    dataset: DatasetRef
    state: RunState
    state_message: str
    counts: RunCounts
    created_at: str = ""
    started_at: str = ""
    ended_at: str = ""
    last_sequence: int = 0
    summary: RunSummary | None = None
    assay_version: str = ""
    pause_cause: PauseCause | None = None
    calibrations: tuple[JudgeCalibration, ...] = ()

    @property
    def finished(self) -> bool:
        """Whether the run has completed, failed or was cancelled."""
        return self.state in FINISHED_STATES

    @property
    def awaits_verdicts_alone(self) -> bool:
        """Whether it is paused with answers that lack only verdicts, so that it needs no agent and no client metric.

        A run paused by its judge's preflight check has no answers yet.
        """
        is_judged_next = self.pause_cause is PauseCause.JUDGE and not self.spec.functions
        return is_judged_next and self.counts.finished_count + self.counts.answered_count > 0

    @property
    def waits_for_storage(self) -> bool:
        """Whether it appears paused because its rows cannot be stored; it resumes by itself."""
        return self.state is RunState.PAUSED and self.pause_cause is PauseCause.STORAGE


@dataclass(frozen=True, slots=True)
class StateChanged:
    """A change of a run's state, with its counts at that time; PAUSING and PAUSED have a `pause_cause`."""

    sequence: int
    state: RunState
    message: str
    at: str
    pause_cause: PauseCause | None = None
    counts: RunCounts = field(default_factory=RunCounts)
