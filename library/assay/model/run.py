"""What a run yields: its state, its rows and its summary, as plain objects.

The names are those of `protos/assay/v1/orchestrator.proto`. Absent is None, never 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from assay.model.answers.agent_response import AgentResponse, AgentStatus
from assay.model.run_settings import (
    MAX_ERRORS,
    AgentSettings,
    CaseSelection,
    DatasetReading,
    JudgeSettings,
    MetricSettings,
    RunSettings,
    SpendCap,
)

if TYPE_CHECKING:
    from array import array
    from collections.abc import Mapping, Sequence

    from assay.model.answers.approvals import UnusedApproval
    from assay.model.dependent_cases import DependentCases
    from assay.model.judge_calibration import JudgeCalibration
    from assay.model.judging_summary import JudgingSummary
    from assay.model.stopping import StoppedEarly

__all__ = [
    "FINISHED_STATES",
    "AgentSettings",
    "AttemptOutcome",
    "CaseResult",
    "CaseSelection",
    "DatasetReading",
    "DatasetRef",
    "Deletion",
    "GateOutcome",
    "GateResult",
    "GroupSummary",
    "JudgeSettings",
    "JudgingSummary",
    "LatencySummary",
    "MetricSettings",
    "MetricSummary",
    "PauseCause",
    "RowAttempt",
    "Run",
    "RunCounts",
    "RunSettings",
    "RunState",
    "RunSummary",
    "Score",
    "ScoreStatus",
    "SpendCap",
    "StateChange",
    "TurnResult",
]

Interval = tuple[float, float]
"""Low and high end."""


class RunState(StrEnum):
    """Where a run stands."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


FINISHED_STATES = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED})


class PauseCause(StrEnum):
    """What paused a run."""

    OWNER = "owner"
    INTERRUPTED = "interrupted"
    STORAGE = "storage"
    JUDGE = "judge"
    UNATTENDED = "unattended"
    QUOTA = "quota"


class AttemptOutcome(StrEnum):
    """What became of an attempt at a row."""

    CURRENT = "current"
    RETRIED = "retried"
    INTERRUPTED = "interrupted"


class ScoreStatus(StrEnum):
    """Whether a score has a value."""

    SCORED = "scored"
    SKIPPED = "skipped"
    ERROR = "error"


class GateOutcome(StrEnum):
    """Whether a gate holds."""

    PASS = "pass"  # noqa: S105 - an outcome, not a password
    FAIL = "fail"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True)
class Score:
    """One metric's result on one row.

    Args:
        status: Whether there is a value.
        value: Finite; set exactly when status is SCORED.
        passed: Whether the row passes by this metric; None where the metric does not decide.
        reason: A stable word such as "no_reference", or empty.
        detail: What produced the score and what else it found.

    Raises:
        ValueError: The value is not finite, or does not fit the status.
    """

    metric: str
    status: ScoreStatus
    value: float | None = None
    passed: bool | None = None
    reason: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        has_value = self.value is not None and math.isfinite(self.value)
        if has_value is not (self.status is ScoreStatus.SCORED) or (self.value is not None and not has_value):
            raise ValueError(f"{self.metric}: a score with status {self.status} cannot have the value {self.value}")


@dataclass(frozen=True, slots=True)
class TurnResult:
    """One turn of a conversation.

    Args:
        input: The user's text.
        references: The turn's references.
        response: The answer; None where the turn was not asked, because the agent failed at one before.
        left_out: Whether texts are missing here because the row would not fit in a message; the database holds them.
        expected: What the turn expects beside references, by the names of datasets; empty where it expects nothing.
    """

    input: str
    references: Sequence[str] = ()
    response: AgentResponse | None = None
    left_out: bool = False
    expected: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The row of one repeat of one case.

    Args:
        case_index: Its position in the dataset, from 0.
        repeat_index: Which repeat, from 0.
        category: The case's category, or empty.
        tags: The case's tags.
        weight: The case's weight.
        status: How the agent fared.
        passed: The row's verdict; None when no metric decided.
        scores: One per metric, in the spec's order; of a row that a client has read also by name, `scores["rouge"]`.
        latency_ms: Wall time of the agent, where measured.
        reason: Why the row or its agent failed, for people.
        sequence: The event's number within the run.
        response: The answer; None where it was not asked for.
        input: The user's text, or the case's variables as JSON where it has none; empty where it was not asked for.
        references: The references; empty where they were not asked for.
        answer_vector: The answer's embedding, where a metric over rows needs it: little-endian float32 as it is
            stored, or the numbers that a user's own function returned; never leaves the orchestrator.
        turns: Every turn of a conversation; empty for a single question, and where answers were not asked for. The
            scores of the turns are in `detail["turns"]` of the row's scores.
        started_at: When the agent was first asked, ISO 8601 in UTC; of a row whose answer was stored before a resume,
            when its scoring began.
        duration_ms: Wall time of the whole row from then until its scores were known: attempts, the waits between
            them, and scoring.
        place: The case's place in the client's dataset, where cases were uploaded in another order; None where they
            were not, or where answers were not asked for.
        expected: What the case expects beside references, by the names of datasets (expected_sources, expected_tools,
            assertions, and what else metrics compare with); empty where answers were not asked for.
    """

    case_id: str
    case_index: int
    repeat_index: int
    category: str
    status: AgentStatus
    passed: bool | None
    scores: Sequence[Score]
    latency_ms: float | None
    reason: str
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
    """One attempt at one row.

    Args:
        repeat_index: Which repeat of the case, from 0.
        attempt_index: Which attempt, from 0.
        outcome: What became of it.
        at: When that was decided, ISO 8601 in UTC: stored, set aside, or, where it was interrupted, begun.
        result: Its result with its answer; None where it was interrupted.
    """

    repeat_index: int
    attempt_index: int
    outcome: AttemptOutcome
    at: str
    result: CaseResult | None


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """One metric over the whole run; counts are rows.

    Args:
        value: Its aggregate; None when no row was scored.
        n_scored: Rows with a value.
        n_skipped: Rows that do not have what the metric needs.
        n_error: Rows on which it could not be computed.
        n_own_error: Those of n_error that failed on Assay's side.
        n_unanswered: Agent errors without a value: with any, `value` is over the answers alone.
        passed: Rows that passed by this metric.
        failed: Rows that failed by this metric.
        threshold: What the value must reach at least to pass, where there is one.
        meets_threshold: None without a value or a threshold.
        target: What the value should reach, where there is one.
        meets_target: None without a value or a target.
        rule: How value and threshold compare: "at_least", "more_than" or "at_most".
        detail: Further aggregates.
        version: Version of the metric's definition.
        is_optional: Whether the verdict leaves it out where it could not be computed.
        decides_rows: Whether it gives rows a verdict.
        missing_reason: Why most of the rows without a value have none: a stable word such as "no_reference", or empty.
        interval: The 95 % interval of the value; None where it has none, as a percentile.
        n_effective: How many independent rows are as informative, of a value that is a rate; None of any other.
        pass_rate_interval: That of the share of rows that passed by this metric; None where it decided none.
    """

    metric: str
    value: float | None
    n_scored: int
    n_skipped: int
    n_error: int
    n_own_error: int = 0
    passed: int = 0
    failed: int = 0
    threshold: float | None = None
    meets_threshold: bool | None = None
    target: float | None = None
    meets_target: bool | None = None
    rule: str = "at_least"
    detail: Mapping[str, Any] = field(default_factory=dict)
    n_unanswered: int = 0
    version: str = ""
    is_optional: bool = False
    decides_rows: bool = False
    missing_reason: str = ""
    interval: Interval | None = None
    n_effective: float | None = None
    pass_rate_interval: Interval | None = None


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """Latency in seconds over every answer with a measured duration; `timeouts` are in none of the figures."""

    count: int = 0
    mean_s: float | None = None
    p50_s: float | None = None
    p95_s: float | None = None
    max_s: float | None = None
    timeouts: int = 0


@dataclass(frozen=True, slots=True)
class GateResult:
    """The outcome of one gate.

    Args:
        expression: The gate as written.
        outcome: Whether it holds.
        actual: The value it was compared with; None where it is incomplete.
        reason: Why it is incomplete; empty otherwise.
        meets_target: Whether the value reaches the gate's target; None without value or target.
        note: What to know about the value, e.g. "mean over 19 of 20 rows"; empty where there is nothing.
        interval: The 95 % interval of the value; None where it has none.
    """

    expression: str
    outcome: GateOutcome
    actual: float | None = None
    reason: str = ""
    meets_target: bool | None = None
    note: str = ""
    interval: Interval | None = None


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """The rows of one category or with one tag.

    Args:
        name: The category or tag.
        total: Rows.
        passed: Rows that passed.
        failed: Rows that failed.
        pass_rate: Passed rows by decided rows; None when none was decided.
        metrics: Aggregates by metric; None where no row was scored.
        pass_rate_interval: The 95 % interval of the pass rate; None where no row was decided.
    """

    name: str
    total: int
    passed: int
    failed: int
    pass_rate: float | None
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    pass_rate_interval: Interval | None = None


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A pure fold over a run's stored rows.

    Args:
        overall_status: "PASS", "FAIL", "INCOMPLETE", "NO_CRITERIA" or "NO_DATA": the verdict, which follows from the
            rest (`assay.gates.run_verdict`).
        failed_criteria: Metrics that miss their threshold.
        skipped_criteria: Metrics that could not be computed.
        pass_rate: Passed rows by decided rows; None when none was decided.
        passed: Rows that passed.
        decided: Rows that passed or failed.
        metrics: One per metric, in the spec's order.
        latency: In seconds.
        gates: One per gate, in the spec's order.
        categories: One per category, by name; empty where no case has one.
        tags: One per tag, by name; a row counts under each of its tags.
        repeats: What several runs of each case show; empty with one run a case.
        weighted: Aggregates with every row counted by its case's weight; empty where all weights are 1.
        partial: Whether rows are still missing, so that everything here may change.
        row_count: Rows that it is over.
        judging: What judging came to; None where no row has a verdict.
        agent_errors: Rows whose agent failed or waits for a person.
        max_agent_errors: The bound on them, a share of the rows.
        max_metric_errors: The bound on the rows on which a metric fails, a share of those that it should have scored.
        left_out: Bad records of the dataset that are no cases of the run.
        stopped_early: Why and when the run stopped early; None where it asked all cases without a decision.
        asked_again: Rows whose agent failed and was asked again later (`--retry-errors`).
        scored_again: Rows that were scored again later because a metric had failed; their agents were not asked again.
        pass_rate_interval: The 95 % interval of the pass rate; None where no row was decided.
        dependent: Which cases are not independent of each other; None where all are.
        interrupted: Rows whose agent waits for a person; they are among the agent errors.
        unused_approvals: Tools that approvals name and at which no row stopped; empty while rows are missing.
    """

    overall_status: str
    failed_criteria: Sequence[str]
    skipped_criteria: Sequence[str]
    pass_rate: float | None
    passed: int
    decided: int
    metrics: Sequence[MetricSummary]
    latency: LatencySummary
    gates: Sequence[GateResult] = ()
    categories: Sequence[GroupSummary] = ()
    tags: Sequence[GroupSummary] = ()
    repeats: Mapping[str, Any] = field(default_factory=dict)
    weighted: Mapping[str, Any] = field(default_factory=dict)
    partial: bool = False
    row_count: int | None = None
    judging: JudgingSummary | None = None
    agent_errors: int | None = None
    max_agent_errors: float = MAX_ERRORS
    max_metric_errors: float = MAX_ERRORS
    left_out: int = 0
    stopped_early: StoppedEarly | None = None
    asked_again: int = 0
    scored_again: int = 0
    pass_rate_interval: Interval | None = None
    dependent: DependentCases | None = None
    interrupted: int = 0
    unused_approvals: tuple[UnusedApproval, ...] = ()


@dataclass(frozen=True, slots=True)
class DatasetRef:
    """A stored dataset."""

    dataset_id: str
    name: str
    format: str
    case_count: int


@dataclass(frozen=True, slots=True)
class Deletion:
    """What goes, or has gone, with a run.

    Args:
        row_count: Rows with a result.
        size_bytes: About how much room they took, the dataset included where it goes too.
        dataset_removed: Whether no other run uses the dataset, so that it goes too.
        baselines: The names of the baselines that name the run, sorted.
    """

    row_count: int
    size_bytes: int
    dataset_removed: bool
    baselines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunCounts:
    """Rows of a run, where a row is one repeat of one case; `answered` only of a paused run.

    Agent errors are among the failed rows, and the interrupted ones among the agent errors.
    """

    total: int = 0
    finished: int = 0
    passed: int = 0
    failed: int = 0
    agent_errors: int = 0
    answered: int = 0
    interrupted: int = 0


@dataclass(frozen=True, slots=True)
class Run:
    """One evaluation of one agent over one dataset; times are ISO 8601 texts in UTC.

    A running run whose `pause_cause` is OWNER is about to pause: its questions in flight end first. `calibrations` are
    those of the judges that its verdicts are of.
    """

    run_id: str
    settings: RunSettings
    dataset: DatasetRef
    state: RunState
    state_reason: str
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
        """Whether the run has succeeded, failed or was cancelled."""
        return self.state in FINISHED_STATES

    @property
    def awaits_verdicts_alone(self) -> bool:
        """Whether it is paused with answers that only a judge has to see: no agent and no metric of a client is needed.

        A run that its judge's preflight check paused has no answer yet.
        """
        is_judged_next = self.pause_cause is PauseCause.JUDGE and not self.settings.functions
        return is_judged_next and self.counts.finished + self.counts.answered > 0

    @property
    def waits_for_storage(self) -> bool:
        """Whether it is shown as paused while its rows cannot be stored: it resumes by itself."""
        return self.state is RunState.PAUSED and self.pause_cause is PauseCause.STORAGE


@dataclass(frozen=True, slots=True)
class StateChange:
    """The run came into a state."""

    sequence: int
    state: RunState
    reason: str
    at: str
