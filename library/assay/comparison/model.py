"""What a comparison of runs comes to, as plain objects. Differences are B - A; absent is None, never 0 or NaN."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from assay.comparison.verdict import Verdict as Verdict  # part of the model to those who read it

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.comparison.stopping_outcome import StoppingOutcome

PASS_RATE = "pass_rate"  # noqa: S105 - a name, not a password
"""The name under which row verdicts are compared, beside the metrics."""


class Adjustment(StrEnum):
    """How p-values of several tests are adjusted."""

    HOLM = "holm"
    BH = "bh"


class FailOn(StrEnum):
    """What makes `assay compare` end with 1."""

    REGRESSION = "regression"
    INCONCLUSIVE = "inconclusive"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class ComparisonSettings:
    """How runs are compared and decided.

    Args:
        primary: The metric that decides; empty for exact match, else quality, else the first one.
        margin: Differences within ± this are equivalent, in the primary metric's unit; None where none is configured.
        cluster: What cases share with others: "category", or "tag:NAME" for tags such as NAME:value; empty for
            nothing.
        adjust: How the p-values of several tests are adjusted.
        alpha: Level of the tests; intervals are of 1 - alpha.
        power: Chance to detect a difference that planning figures assume.
        seed: Of all random draws.
        where: A filter expression on rows; figures of such a comparison are exploratory, without a verdict.
        all_pairs: Whether every pair of runs decides, and not only those with the baseline: p-values are then adjusted
            over all of them.
        difference: A difference of the primary metric for which the needed cases are computed; None for the margin,
            where there is one.
    """

    primary: str = ""
    margin: float | None = None
    cluster: str = ""
    adjust: Adjustment = Adjustment.HOLM
    alpha: float = 0.05
    power: float = 0.8
    seed: int = 0
    where: str = ""
    all_pairs: bool = False
    difference: float | None = None


@dataclass(frozen=True, slots=True)
class Estimate:
    """The value of a metric over cases.

    Args:
        value: Mean over the cases; None where no case has a value.
        interval: Its interval, Wilson's for a rate; None where it has none.
        n: Cases with a value.
    """

    value: float | None
    interval: tuple[float, float] | None
    n: int


@dataclass(frozen=True, slots=True)
class Variant:
    """One of the compared runs.

    Args:
        label: "A" for the first, then "B" and so on.
        name: What people call it: the name of its prompt file, model or label, else of its run.
        run_id: Its run.
        prompt_path: The file of its prompt; empty where it has none.
        cases: Cases with a row.
        repeats: Runs of each case.
        partial: Whether rows are missing.
        agent_errors: Rows whose agent failed or waits for a person.
        metrics: Every metric, and the pass rate, over all its cases, whether they are in other runs or not.
        cost_usd: What agent and judge cost; None where neither has a price.
        judge_cost_usd: The judge's part of it.
        mean_latency_s: Mean time to an answer, in seconds.
        p95_latency_s: 95 % of the answers came within so many seconds.
        mean_tokens: Mean tokens of an answer, prompt and reply.
        fingerprints: Of judge and rubrics.
        invalid_verdicts: Verdicts of the judge that were not valid.
        verdicts: All of them.
        dataset_id: The dataset's content.
        dataset_name: Its name.
        ranking_score: The classical weighted score; None where it has no metric for it.
        best_share: In what share of resamples of the cases it has the highest mean of the primary metric.
        interrupted: Rows whose agent waits for a person; they are among the agent errors.
    """

    label: str
    name: str
    run_id: str
    prompt_path: str
    cases: int
    repeats: int
    partial: bool
    agent_errors: int
    metrics: Mapping[str, Estimate]
    cost_usd: float | None = None
    judge_cost_usd: float | None = None
    mean_latency_s: float | None = None
    p95_latency_s: float | None = None
    mean_tokens: float | None = None
    fingerprints: tuple[str, ...] = ()
    invalid_verdicts: int = 0
    verdicts: int = 0
    dataset_id: str = ""
    dataset_name: str = ""
    ranking_score: float | None = None
    best_share: float | None = None
    interrupted: int = 0


@dataclass(frozen=True, slots=True)
class PassTable:
    """The 2 x 2 table of a metric that is 0 or 1.

    Args:
        both: Cases that both have right.
        a_only: Cases that only A has right.
        b_only: Cases that only B has right.
        neither: Cases that both have wrong.
    """

    both: int
    a_only: int
    b_only: int
    neither: int


@dataclass(frozen=True, slots=True)
class ClassicalTest:
    """The test that takes two runs as independent samples.

    Args:
        test: "chi_square", "fisher_exact" or "t_test".
        statistic: Its statistic; None where it could not be made.
        p: Its p-value, which decides; None likewise.
        note: A stable word on what to know; empty for nothing.
        usual_p: Chi-square's p-value where Fisher's decides.
        winner: "A", "B" or "tie" at the level of the comparison.
    """

    test: str
    statistic: float | None
    p: float | None
    note: str
    usual_p: float | None
    winner: str


@dataclass(frozen=True, slots=True)
class ErrorComparison:
    """The errors of two runs: rows whose agent failed or, of a metric, rows that have no value because of an error.

    Args:
        a_rows: Rows of A with an error, over the cases that are compared.
        b_rows: Rows of B with an error.
        a_cases: Cases with an error of A in any repeat.
        b_cases: Cases with an error of B.
        a_only: Cases with an error of A alone.
        b_only: Cases with an error of B alone.
        p: Exact McNemar p-value of `a_only` against `b_only`, not adjusted for other tests.
        worse: Label of the run that errs significantly more often; empty where neither does.
        differ: Whether the errors may move a difference: p is below the level, one run alone errs on more than √n / 4
            cases more than the other, or as many rows of a run have an error as its `max_agent_errors`.
    """

    a_rows: int
    b_rows: int
    a_cases: int
    b_cases: int
    a_only: int
    b_only: int
    p: float
    worse: str = ""
    differ: bool = False


@dataclass(frozen=True, slots=True)
class WorstCase:
    """A metric with a value for each row that has none because of an error: the worst one for the verdict claimed.

    Args:
        n_pairs: Cases compared.
        n_replaced: Cases with such a value on at least one side.
        difference: B - A.
        interval: Of the difference, of 1 - alpha; None where it has none.
        one_sided: The difference's one-sided bounds, each of 1 - alpha: an allowed drop is compared with the worse one.
            None where the values exclude nothing.
        p: Raw p-value.
        holds: Whether the verdict of the complete cases is that of these figures, too; False where they have none.
    """

    n_pairs: int
    n_replaced: int
    difference: float
    interval: tuple[float, float] | None = None
    p: float | None = None
    holds: bool = False


class Reason(StrEnum):
    """Why a metric has no verdict, or an inconclusive one."""

    NO_COMMON_CASES = "no_common_cases"
    TOO_FEW_CASES = "too_few_cases"
    """Fewer than two cases have a value in both runs."""
    TOO_MANY_MISSING = "too_many_missing"
    """More than half of the common cases have no value in one of the runs."""
    MISMATCH = "mismatch"
    """The runs, or their verdicts on rows, are not to be compared."""
    FILTERED = "filtered"
    """The cases were chosen by a filter after the run."""
    TOO_FEW_DIFFERING = "too_few_differing"
    """Even if all differing cases pointed one way, the p-value would not be below the level."""
    TOO_FEW_CLUSTERS = "too_few_clusters"
    """The same of clusters."""
    AGENT_ERRORS = "agent_errors"
    """The errors of the runs differ, and with the worst values in their place the verdict would be another one."""
    NO_SCALE = "no_scale"
    """A margin is given for a metric without a least and a greatest value."""
    NOT_SIGNIFICANT = "not_significant"
    NOT_SIGNIFICANT_ADJUSTED = "not_significant_adjusted"
    """The raw p-value is below the level, the adjusted one is not."""
    NOT_ADJUSTED = "not_adjusted"
    """The pair decides nothing: its p-values are not adjusted."""
    RULE_UNDECIDED = "rule_undecided"
    """The rule by which the runs stop early decided nothing."""


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """How far two runs of one spec over the same cases are apart by chance.

    Args:
        difference: Two standard errors of their difference: about 1 pair in 20 is further apart.
        flip_rate: Share of the cases whose values differ, from 0 to 1.
        n: Cases with a value in both.
    """

    difference: float
    flip_rate: float
    n: int


@dataclass(frozen=True, slots=True)
class MetricComparison:
    """One metric of two runs over the cases that both have scored.

    Args:
        metric: Its name; `PASS_RATE` for the verdicts of rows.
        is_primary: Whether it decides; all others are exploratory.
        higher_is_better: False for latency, tokens and cost.
        verdict: What the test says.
        reason: A value of `Reason`; empty where a run is better, or both are equivalent.
        message: The reason as a sentence without its full stop; empty likewise.
        method: "mcnemar_exact", "sign_flip_exact", "sign_flip_random" or "sign_flip_normal_limit"; with a cluster key
            the signs are those of the clusters' sums.
        n_pairs: Cases compared: those with a value in every repeat of both runs.
        n_dropped: Cases in both runs without a value on at least one side.
        a: The value of A over the pairs.
        b: The value of B.
        difference: B - A.
        median_unbiased: B - A as planned looks estimate it, to which `interval` belongs; the plain difference is too
            large on average where a rule stopped. None without planned looks.
        interval: Of the difference, of 1 - alpha.
        interval_method: "bonett_price" for rates, "t" for scores, "sign_flip" with a cluster key, "cr2" where clusters
            are too few for a verdict, "always_valid" or "stagewise" where a rule stops early; empty without one.
        equivalence_interval: Of 1 - 2 alpha, the one that a margin is compared with.
        p: Raw p-value.
        p_error: Monte-Carlo standard error of p; None where p is exact.
        p_adjusted: After the adjustment for several tests; None where the pair decides nothing.
        decides: Whether the pair decides: it is one with the baseline, or all pairs decide. Others have raw p-values.
        wins: Cases in which B is better.
        ties: Cases in which both are equal.
        losses: Cases in which A is better.
        table: For a metric of 0 and 1 with one run a case.
        mid_p: McNemar's mid-p.
        cohens_h: Effect size of rates.
        min_attainable_p: The smallest p-value that as many differing cases, or clusters, can give.
        borderline: Whether p-value and interval disagree; the p-value decides.
        t: Paired t statistic.
        t_p: Its p-value.
        d_z: Mean by standard deviation of the differences.
        cliffs_delta: Effect size of scores, -1 to 1.
        standard_error: Of the difference.
        clusters: How many clusters the cases are in, a case without the key being one of its own; None without a key.
        effective_clusters: As many clusters of equal size have the same uncertainty: (Σn)²/Σn²; None likewise.
        largest_cluster: What the cases of the largest cluster share; empty likewise, or where it is a single case.
        largest_cluster_share: Its share of the cases; None likewise.
        errors: Rows without a value because of an error of agent, judge or metric; None where there are none.
        worst_case: The figures with the worst values in their place, where `errors.differ`; None otherwise, or for a
            metric without a least and a greatest value.
        detectable: The smallest difference that these cases detect with the power of the settings, at the level of
            the first test of the adjustment; None where none is, and where a rule stops early.
        n_needed: About how many cases detect the difference that was chosen; None where none was, and for all metrics
            but the primary one.
        classical: The unpaired test.
        without_errors: The difference over the cases without an agent error; None where there is no such error.
        without_errors_p: Its raw p-value.
        noise_floor: How far A is from itself, where that was measured.
        notes: Stable words on what to know: "few_differing" (as `Reason.TOO_FEW_DIFFERING`), "few_clusters" (fewer than
            ten effective ones), "large_losses" (a few large differences carry the mean), "constant" (all differences
            are 0: no part of a family), "as_primary" (all values are those of the primary metric: its p-values).
        is_direction_assumed: Whether the metric does not say that higher is better, which is assumed.
    """

    metric: str
    is_primary: bool
    higher_is_better: bool
    verdict: Verdict
    reason: str = ""
    message: str = ""
    method: str = ""
    n_pairs: int = 0
    n_dropped: int = 0
    a: Estimate | None = None
    b: Estimate | None = None
    difference: float | None = None
    median_unbiased: float | None = None
    interval: tuple[float, float] | None = None
    interval_method: str = ""
    equivalence_interval: tuple[float, float] | None = None
    one_sided: tuple[float, float] | None = None
    p: float | None = None
    p_error: float | None = None
    p_adjusted: float | None = None
    decides: bool = True
    wins: int = 0
    ties: int = 0
    losses: int = 0
    table: PassTable | None = None
    mid_p: float | None = None
    cohens_h: float | None = None
    min_attainable_p: float | None = None
    borderline: bool = False
    t: float | None = None
    t_p: float | None = None
    d_z: float | None = None
    cliffs_delta: float | None = None
    standard_error: float | None = None
    clusters: int | None = None
    effective_clusters: float | None = None
    largest_cluster: str = ""
    largest_cluster_share: float | None = None
    errors: ErrorComparison | None = None
    worst_case: WorstCase | None = None
    detectable: float | None = None
    n_needed: int | None = None
    classical: ClassicalTest | None = None
    without_errors: float | None = None
    without_errors_p: float | None = None
    noise_floor: NoiseFloor | None = None
    notes: tuple[str, ...] = ()
    is_direction_assumed: bool = False


@dataclass(frozen=True, slots=True)
class PairComparison:
    """Two of the runs.

    Args:
        a: Label of the first; the first run of all is the baseline.
        b: Label of the second.
        n_common: Cases with a row in both.
        n_only_a: Cases in A alone.
        n_only_b: Cases in B alone.
        n_changed: Cases in both whose question or references differ; they are not compared.
        overlap: Common cases as a share of the smaller run.
        metrics: The primary metric first, then the others in report order.
        classical_winner: The run that wins more of the unpaired tests, or "tie".
        matched_by: By what cases were matched: "id", or "content" for question and references.
        n_lost: Cases that came out worse in B.
        n_won: Cases that came out better in B.
        errors: Rows whose agent failed; None where none did.
    """

    a: str
    b: str
    n_common: int
    n_only_a: int
    n_only_b: int
    n_changed: int
    overlap: float
    metrics: tuple[MetricComparison, ...]
    classical_winner: str = "tie"
    matched_by: str = "id"
    n_lost: int = 0
    n_won: int = 0
    errors: ErrorComparison | None = None

    def metric(self, name: str) -> MetricComparison:
        """Return the comparison of one metric."""
        return next(metric for metric in self.metrics if metric.metric == name)


@dataclass(frozen=True, slots=True)
class OmnibusTest:
    """The test over three or more runs that comes before the pairs.

    Args:
        test: "cochran_q" or "friedman".
        statistic: Its statistic; None where it could not be made.
        p: Its p-value; None likewise.
        n: Cases with a value in every run.
        note: A stable word on what to know; empty for nothing.
    """

    test: str
    statistic: float | None
    p: float | None
    n: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Why runs must not be compared.

    Args:
        code: "metric_version", "embedder", "judge", "overlap" or "unfinished".
        message: What differs, and what to do, as a sentence.
    """

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Change:
    """A setting in which runs differ.

    Args:
        path: Where it stands, such as "agent.options.prompt_file".
        values: Its value in each run, in their order; None where a run has none.
    """

    path: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class FlippedCase:
    """A case that came out differently in two runs.

    Args:
        case_id: The case.
        category: Its category; empty where it has none.
        metric: The metric that differs most in favour of one side; `PASS_RATE` for the row's verdict.
        a: Value of A.
        b: Value of B.
        case_id_b: The case's id in B where that is another one; empty otherwise.
        question: The beginning of what the user said last; empty where it is not known.
    """

    case_id: str
    category: str
    metric: str
    a: float
    b: float
    case_id_b: str = ""
    question: str = ""


@dataclass(frozen=True, slots=True)
class RankedVariant:
    """A place in the ranking.

    Args:
        label: The run.
        score: The classical weighted score; None where the run has none of its metrics.
    """

    label: str
    score: float | None


@dataclass(frozen=True, slots=True)
class VariantRecommendation:
    """Which run to take, by the classical ranking.

    Args:
        label: First of the ranking.
        improvements: Metrics on which it is significantly better than the second, by unpaired tests.
        confidence: "high", "medium" or "low".
        note: "ranking_and_tests_disagree", "metrics_differ" or empty.
    """

    label: str
    improvements: tuple[str, ...]
    confidence: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two or more runs compared; the first is the baseline.

    Args:
        settings: How they were compared.
        assay_version: The version that computed it.
        primary: The metric that decides.
        variants: The runs.
        pairs: Every pair of them, (first, second), (first, third) and so on.
        omnibus: By metric, the test over all runs; empty for two.
        mismatches: Why the runs must not be compared; empty where they may be.
        changes: In what their settings differ.
        ranking: By the classical score, the best first.
        recommendation: What follows from the ranking.
        not_worse_than_best: Labels that are not significantly worse than the highest mean of the primary metric.
        flipped: By pair, such as "A_vs_B", the cases that came out differently, worst for B first; at most 50,
            and 1,000 of all pairs. Of more, three quarters are the worst and the others the best.
        flipped_count: By pair, how many there are.
        filtered: Whether cases were chosen by a filter, so that figures are exploratory.
        random_draws: How many assignments and resamples random figures are from, by name.
        stopping: What the rule by which both runs stop early came to; None where they have none in common.
    """

    settings: ComparisonSettings
    assay_version: str
    primary: str
    variants: tuple[Variant, ...]
    pairs: tuple[PairComparison, ...]
    omnibus: Mapping[str, OmnibusTest] = field(default_factory=dict)
    mismatches: tuple[Mismatch, ...] = ()
    changes: tuple[Change, ...] = ()
    ranking: tuple[RankedVariant, ...] = ()
    recommendation: VariantRecommendation | None = None
    not_worse_than_best: tuple[str, ...] = ()
    flipped: Mapping[str, tuple[FlippedCase, ...]] = field(default_factory=dict)
    flipped_count: Mapping[str, int] = field(default_factory=dict)
    filtered: bool = False
    random_draws: Mapping[str, int] = field(default_factory=dict)
    stopping: StoppingOutcome | None = None

    def pair(self, a: str, b: str) -> PairComparison:
        """Return the comparison of two runs by their labels."""
        return next(pair for pair in self.pairs if (pair.a, pair.b) == (a, b))

    def variant(self, label: str) -> Variant:
        """Return a run by its label."""
        return next(variant for variant in self.variants if variant.label == label)
