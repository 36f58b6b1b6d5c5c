"""The summary of a run: verdict, metrics, gates and groups.

The names match `protos/assay/v1/summary.proto`. A missing value is None, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from assay.model.interval import Interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.model.answers.approvals import UnusedApproval
    from assay.model.dependent_cases import DependentCases
    from assay.model.judging_summary import JudgingSummary
    from assay.model.stopping import StoppedEarly


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
class MetricSummary:
    """The summary of a metric over a run; counts are rows.

    Args:
        value: Its aggregate; None if no row was scored.
        scored_count: Rows with a value.
        skipped_count: Rows that lack what the metric needs.
        error_count: Rows on which the metric failed.
        own_error_count: The rows in n_error that failed on Assay's side.
        unanswered_count: Agent errors without a value; if there are any, `value` covers only the answers.
        passed_count: Rows that passed this metric.
        failed_count: Rows that failed this metric.
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
        effective_count: Number of independent rows that would be as informative, for a rate; otherwise None.
        pass_rate_interval: The 95% interval of the share of rows that passed this metric; None if it decided none.
        unit: Unit of value, threshold and goal: "s", "tokens", "USD", "%" for a share, or empty for a plain number.
        higher_is_better: Whether a higher value is better.
        minimum: The lowest possible value; None if there is none.
        maximum: The highest possible value; None if there is none.
    """

    metric: str
    value: float | None
    scored_count: int
    skipped_count: int
    error_count: int
    own_error_count: int = 0
    passed_count: int = 0
    failed_count: int = 0
    threshold: float | None = None
    meets_threshold: bool | None = None
    goal: float | None = None
    meets_goal: bool | None = None
    rule: ThresholdRule = ThresholdRule.AT_LEAST
    detail: Mapping[str, Any] = field(default_factory=dict)
    unanswered_count: int = 0
    version: str = ""
    is_optional: bool = False
    decides_rows: bool = False
    missing_reason: str = ""
    interval: Interval | None = None
    effective_count: float | None = None
    pass_rate_interval: Interval | None = None
    unit: str = ""
    higher_is_better: bool = False
    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True, slots=True)
class LatencySummary:
    """Latency in milliseconds over every answer with a measured duration; no figure includes calls that timed out."""

    answer_count: int = 0
    mean_ms: float | None = None
    p50_ms: float | None = None
    p95_ms: float | None = None
    max_ms: float | None = None
    timeout_count: int = 0


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
        row_count: Number of rows.
        passed_count: Rows that passed.
        failed_count: Rows that failed.
        pass_rate: Passed rows divided by decided rows; None if none was decided.
        metrics: Aggregates by metric; None if no row was scored.
        pass_rate_interval: The 95% interval of the pass rate; None if no row was decided.
    """

    name: str
    row_count: int
    passed_count: int
    failed_count: int
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


class Remedy(StrEnum):
    """A step that a recommendation suggests."""

    RETRY_ERRORS = "retry_errors"
    RESCORE = "rescore"


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Advice on a run, supported by its figures.

    Args:
        message: The advice as a sentence.
        remedy: The step that it suggests, which the message does not repeat; None for no other.
    """

    message: str
    remedy: Remedy | None = None


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
        passed_count: Rows that passed.
        decided_count: Rows that passed or failed.
        metrics: One per metric, in the spec's order.
        latency: Latency in milliseconds.
        gates: The criteria of the verdict: the gates, in the spec's order; without gates, the deciding thresholds.
        categories: One per category, by name, for the first 1,000 in dataset order; empty if no case has one.
        tags: One per tag, likewise; a row counts under each of its tags.
        repeats: Figures over the repeats of each case; None if no case ran more than once.
        weighted: Aggregates in which every row has its case's weight; None if all weights are 1.
        partial: Whether rows are still missing, so that all figures may change.
        row_count: Number of rows summarised.
        judging: The summary of judging; None if no row has a verdict.
        agent_error_count: Rows whose agent failed or waits for a person.
        max_agent_errors: The bound on them, as a share of the rows.
        max_metric_errors: The bound on a metric's failures, as a share of the rows it should have scored.
        left_out_count: Invalid records of the dataset, which the run omits.
        stopped_early: Why and when the run stopped early; None if it did not.
        asked_again_count: Rows whose agent failed and was asked again later (`--retry-errors`).
        scored_again_count: Rows scored again later because a metric had failed, without asking their agents again.
        pass_rate_interval: The 95% interval of the pass rate; None if no row was decided.
        dependent: The dependence between cases; None if all are independent.
        interrupted_count: Rows whose agent waits for a person; agent_errors includes them.
        unused_approvals: Tools in approvals at which no row stopped; empty while rows are missing.
        omitted_category_count: Number of categories beyond those in `categories`.
        omitted_tag_count: Number of tags beyond those in `tags`.
        recommendations: Advice on the run, the most urgent first.
    """

    verdict: RunVerdict
    failed_criteria: Sequence[str]
    skipped_criteria: Sequence[str]
    pass_rate: float | None
    passed_count: int
    decided_count: int
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
    agent_error_count: int = 0
    max_agent_errors: float = 0.0
    max_metric_errors: float = 0.0
    left_out_count: int = 0
    stopped_early: StoppedEarly | None = None
    asked_again_count: int = 0
    scored_again_count: int = 0
    pass_rate_interval: Interval | None = None
    dependent: DependentCases | None = None
    interrupted_count: int = 0
    unused_approvals: tuple[UnusedApproval, ...] = ()
    exit_status: int = 0
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    omitted_category_count: int = 0
    omitted_tag_count: int = 0
    recommendations: tuple[Recommendation, ...] = ()
