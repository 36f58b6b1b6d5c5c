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
    JudgeSpec,
    MetricSpec,
    RunSpec,
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

Interval = tuple[float, float]
"""The lower and upper end."""


class RunState(StrEnum):
    """The state of a run."""

    PENDING = "pending"
    RUNNING = "running"
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


class GateOutcome(StrEnum):
    """Whether a gate passes."""

    PASS = "pass"  # noqa: S105 - an outcome, not a password
    FAIL = "fail"
    INCOMPLETE = "incomplete"


class GateSource(StrEnum):
    """The origin of a criterion."""

    GATE = "gate"
    THRESHOLD = "threshold"


class ThresholdRule(StrEnum):
    """The relation of a value that meets its threshold."""

    AT_LEAST = "at_least"
    MORE_THAN = "more_than"
    AT_MOST = "at_most"


class RunVerdict(StrEnum):
    """The verdict of a run."""

    PASS = "PASS"  # noqa: S105 - a verdict, not a password
    FAIL = "FAIL"
    INCOMPLETE = "INCOMPLETE"
    NO_CRITERIA = "NO_CRITERIA"
    NO_DATA = "NO_DATA"


@dataclass(frozen=True, slots=True)
class Score:
    """A metric's result on a row.

    Args:
        status: Whether there is a value.
        value: Finite; set exactly when status is SCORED.
        passed: Whether the row passes by this metric; None where the metric does not decide.
        reason: A stable code such as "no_reference", or empty.
        detail: The origin of the score and the metric's further results.

    Raises:
        ValueError: The value is not finite or does not fit the status.
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
        repeat_index: The repeat, from 0.
        category: The case's category, or empty.
        tags: The case's tags.
        weight: The case's weight.
        status: The status of the agent's answer.
        passed: The row's verdict; None if no metric decided.
        scores: One per metric, in the spec's order; in a client also by name, `scores["rouge"]`.
        latency_ms: Wall time of the agent, if measured.
        reason: Why the row or its agent failed, for the reader.
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
    """An attempt at a row.

    Args:
        repeat_index: The repeat of the case, from 0.
        attempt_index: The attempt, from 0.
        outcome: The attempt's outcome.
        at: When it was stored or set aside, or, if interrupted, when it began; ISO 8601 in UTC.
        result: The result with its answer; None if it was interrupted.
    """

    repeat_index: int
    attempt_index: int
    outcome: AttemptOutcome
    at: str
    result: RowResult | None


@dataclass(frozen=True, slots=True)
class MetricSummary:
    """The summary of a metric over a run; counts are rows.

    Args:
        value: Its aggregate; None if no row was scored.
        n_scored: Rows with a value.
        n_skipped: Rows that lack what the metric needs.
        n_error: Rows on which the metric failed.
        n_own_error: The rows in n_error that failed on Assay's side.
        n_unanswered: Agent errors without a value; if there are any, `value` covers only the answers.
        passed: Rows that passed this metric.
        failed: Rows that failed this metric.
        threshold: The bound for passing, if there is one.
        meets_threshold: None without a value or a threshold.
        goal: The goal value, if there is one.
        meets_goal: None without a value or a goal.
        rule: How value and threshold compare.
        detail: Further aggregates.
        version: Version of the metric's definition.
        is_optional: Whether the verdict ignores it if it cannot be computed.
        decides_rows: Whether it gives rows a verdict.
        missing_reason: The commonest reason for missing values: a stable code such as "no_reference", or empty.
        interval: The 95% interval of the value; None if it has none, for example a percentile.
        n_effective: Number of independent rows that would be as informative, for a rate; otherwise None.
        pass_rate_interval: The 95% interval of the share of rows that passed this metric; None if it decided none.
        unit: Unit of value, threshold and goal: "s", "tokens", "USD", "%" for a share, or empty for a plain number.
        higher_is_better: Whether a higher value is better.
        minimum: The lowest possible value; None if there is none.
        maximum: The highest possible value; None if there is none.
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
    goal: float | None = None
    meets_goal: bool | None = None
    rule: ThresholdRule = ThresholdRule.AT_LEAST
    detail: Mapping[str, Any] = field(default_factory=dict)
    n_unanswered: int = 0
    version: str = ""
    is_optional: bool = False
    decides_rows: bool = False
    missing_reason: str = ""
    interval: Interval | None = None
    n_effective: float | None = None
    pass_rate_interval: Interval | None = None
    unit: str = ""
    higher_is_better: bool = False
    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """Latency in seconds over every answer with a measured duration; no figure includes `timeouts`."""

    count: int = 0
    mean_s: float | None = None
    p50_s: float | None = None
    p95_s: float | None = None
    max_s: float | None = None
    timeouts: int = 0


@dataclass(frozen=True, slots=True)
class GateResult:
    """The result of a gate, or of a threshold that decides like a gate.

    Args:
        expression: The gate's expression.
        outcome: Whether it passes.
        actual: The compared value; None if it is incomplete.
        message: Why it is incomplete, as a sentence; empty otherwise.
        meets_goal: Whether the value reaches the gate's goal; None without value or goal.
        note: A remark on the value, e.g. "mean over 19 of 20 rows", or empty.
        interval: The 95% interval of the value; None if it has none.
        source: Its origin.
    """

    expression: str
    outcome: GateOutcome
    actual: float | None = None
    message: str = ""
    meets_goal: bool | None = None
    note: str = ""
    interval: Interval | None = None
    source: GateSource = GateSource.GATE


@dataclass(frozen=True, slots=True)
class GroupSummary:
    """A summary of the rows with one category or tag.

    Args:
        name: The category or tag.
        total: Number of rows.
        passed: Rows that passed.
        failed: Rows that failed.
        pass_rate: Passed rows divided by decided rows; None if none was decided.
        metrics: Aggregates by metric; None if no row was scored.
        pass_rate_interval: The 95% interval of the pass rate; None if no row was decided.
    """

    name: str
    total: int
    passed: int
    failed: int
    pass_rate: float | None
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    pass_rate_interval: Interval | None = None


@dataclass(frozen=True, slots=True)
class RepeatRate:
    """The rates over k runs of a case; a rate is None if no case has k decided runs.

    Args:
        k: Number of runs.
        pass_at_k: Probability that at least one of k runs passes.
        pass_at_k_interval: Its 95% interval.
        pass_hat_k: Probability that all of k runs pass.
        pass_hat_k_interval: Its 95% interval.
    """

    k: int
    pass_at_k: float | None = None
    pass_at_k_interval: Interval | None = None
    pass_hat_k: float | None = None
    pass_hat_k_interval: Interval | None = None


@dataclass(frozen=True, slots=True)
class RepeatVariance:
    """The variance of the verdicts within and between cases.

    Args:
        within: Mean variance between the runs of a case.
        between: Variance between cases.
        standard_error: Standard error of the pass rate.
        noise_share: Share of the squared standard error that is noise between runs; None without variance between the
            cases' means.
        advice: A recommendation as a sentence, or empty.
    """

    within: float
    between: float
    standard_error: float
    noise_share: float | None
    advice: str = ""


@dataclass(frozen=True, slots=True)
class RepeatSummary:
    """Figures over the repeats of each case.

    Args:
        runs_per_case: The largest number of runs of a case.
        case_count: Number of cases.
        undecided_count: Rows without a verdict, which the figures exclude.
        rates: The rates for k = 1, 2, ... up to the most decided runs of a case.
        variance: The variance of the verdicts; None if fewer than two cases have two decided runs.
    """

    runs_per_case: int
    case_count: int
    undecided_count: int
    rates: Sequence[RepeatRate]
    variance: RepeatVariance | None = None

    def rate(self, k: int) -> RepeatRate | None:
        """Return the rates over k runs; None if no case has k decided runs."""
        return next((rate for rate in self.rates if rate.k == k), None)


@dataclass(frozen=True, slots=True)
class WeightedSummary:
    """Aggregates in which every row has its case's weight.

    Args:
        pass_rate: Weight of the passed rows divided by that of the decided rows; None if no row was decided.
        metrics: Weighted means by metric; metrics without a scored row are omitted.
    """

    pass_rate: float | None
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The summary of a run, computed from its stored rows alone.

    Args:
        verdict: The verdict; verdict, exit_status, reasons and notes follow from the other fields.
        exit_status: The exit status of `assay run` with this verdict: 0, 1 or 3.
        reasons: Why the verdict is what it is, as sentences, the most important first.
        notes: What else affects the figures, as sentences: agent errors, missed thresholds that gate nothing, repeats,
            copies.
        failed_criteria: Metrics that miss their threshold.
        skipped_criteria: Metrics that could not be computed.
        pass_rate: Passed rows divided by decided rows; None if none was decided.
        passed: Rows that passed.
        decided: Rows that passed or failed.
        metrics: One per metric, in the spec's order.
        latency: Latency in seconds.
        gates: The criteria of the verdict: the gates, in the spec's order; without gates, the deciding thresholds.
        categories: One per category, by name; empty if no case has one.
        tags: One per tag, by name; a row counts under each of its tags.
        repeats: Figures over the repeats of each case; None if no case ran more than once.
        weighted: Aggregates in which every row has its case's weight; None if all weights are 1.
        partial: Whether rows are still missing, so that all figures may change.
        row_count: Number of rows summarised.
        judging: The summary of judging; None if no row has a verdict.
        agent_errors: Rows whose agent failed or waits for a person.
        max_agent_errors: The bound on them, as a share of the rows.
        max_metric_errors: The bound on a metric's failures, as a share of the rows it should have scored.
        left_out: Invalid records of the dataset, which the run omits.
        stopped_early: Why and when the run stopped early; None if it did not.
        asked_again: Rows whose agent failed and was asked again later (`--retry-errors`).
        scored_again: Rows scored again later because a metric had failed, without asking their agents again.
        pass_rate_interval: The 95% interval of the pass rate; None if no row was decided.
        dependent: The dependence between cases; None if all are independent.
        interrupted: Rows whose agent waits for a person; agent_errors includes them.
        unused_approvals: Tools in approvals at which no row stopped; empty while rows are missing.
    """

    verdict: RunVerdict
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
    repeats: RepeatSummary | None = None
    weighted: WeightedSummary | None = None
    partial: bool = False
    row_count: int = 0
    judging: JudgingSummary | None = None
    agent_errors: int = 0
    max_agent_errors: float = 0.0
    max_metric_errors: float = 0.0
    left_out: int = 0
    stopped_early: StoppedEarly | None = None
    asked_again: int = 0
    scored_again: int = 0
    pass_rate_interval: Interval | None = None
    dependent: DependentCases | None = None
    interrupted: int = 0
    unused_approvals: tuple[UnusedApproval, ...] = ()
    exit_status: int = 0
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DatasetRef:
    """A stored dataset."""

    dataset_id: str
    name: str
    format: str
    case_count: int


@dataclass(frozen=True, slots=True)
class Deletion:
    """The data that deleting a run removes.

    Args:
        row_count: Rows with a result.
        size_bytes: Approximate size, including the dataset if it is removed too.
        dataset_removed: Whether the dataset is removed too, because no other run uses it.
        baselines: The names of the baselines that point to the run, sorted.
    """

    row_count: int
    size_bytes: int
    dataset_removed: bool
    baselines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunCounts:
    """Numbers of rows of a run, a row being one repeat of a case; `answered` is set only for a paused run.

    Failed rows include agent errors, and agent errors include interrupted rows.
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
    """An evaluation of an agent over a dataset; times are ISO 8601 texts in UTC.

    A running run whose `pause_cause` is OWNER is about to pause, once its questions in flight end. `calibrations` are
        those of the judges of its verdicts.
    """

    run_id: str
    spec: RunSpec
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
        """Whether the run has completed, failed or was cancelled."""
        return self.state in FINISHED_STATES

    @property
    def awaits_verdicts_alone(self) -> bool:
        """Whether it is paused with answers that lack only verdicts, so that it needs no agent and no client metric.

        A run paused by its judge's preflight check has no answers yet.
        """
        is_judged_next = self.pause_cause is PauseCause.JUDGE and not self.spec.functions
        return is_judged_next and self.counts.finished + self.counts.answered > 0

    @property
    def waits_for_storage(self) -> bool:
        """Whether it appears paused because its rows cannot be stored; it resumes by itself."""
        return self.state is RunState.PAUSED and self.pause_cause is PauseCause.STORAGE


@dataclass(frozen=True, slots=True)
class StateChanged:
    """A change of a run's state."""

    sequence: int
    state: RunState
    reason: str
    at: str
