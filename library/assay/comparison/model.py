"""The results of a comparison as plain objects. Differences are B - A; an absent figure is None, never 0 or NaN."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from assay.comparison.verdict import ComparisonVerdict as ComparisonVerdict  # part of the model to those who read it

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.comparison.mismatch import Mismatch
    from assay.comparison.recommendation import RankedVariant, VariantRecommendation
    from assay.comparison.stopping_outcome import StoppingOutcome
    from assay.model.interval import Interval

PASS_RATE = "pass_rate"  # noqa: S105 - a name, not a password
"""The name of the verdicts of rows among the metrics."""


class Adjustment(StrEnum):
    """The adjustment of p-values for several tests."""

    HOLM = "holm"
    BH = "bh"


class FailOn(StrEnum):
    """The verdicts with which `assay compare` exits with 1."""

    REGRESSION = "regression"
    INCONCLUSIVE = "inconclusive"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class ComparisonSettings:
    """The settings of a comparison.

    Args:
        primary: The metric that decides; empty for exact match, else quality, else the first one.
        margin: Differences within ± this are equivalent, in the primary metric's unit; None if none is configured.
        cluster: The cluster key: "category", or "tag:NAME" for tags such as NAME:value; empty for none.
        adjust: The adjustment of p-values for several tests.
        alpha: Level of the tests; intervals have level 1 - alpha.
        power: The power that planning figures assume.
        seed: The seed of all random draws.
        where: A filter expression on rows; figures of such a comparison are exploratory, without a verdict.
        all_pairs: Whether every pair of runs decides, instead of only those with the baseline; p-values are then
            adjusted over all pairs.
        difference: The difference of the primary metric for which the needed cases are computed; None for the margin,
            if there is one.
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
        value: Mean over the cases; None if no case has a value.
        interval: Its interval, Wilson's for a rate; None if it has none.
        case_count: Cases with a value.
    """

    value: float | None
    interval: Interval | None
    case_count: int


class Matching(StrEnum):
    """How the cases of two runs are matched."""

    ID = "id"
    CONTENT = "content"
    """By question and references."""


class Side(StrEnum):
    """A run of a pair, or neither."""

    A = "a"
    B = "b"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class RunRef:
    """A compared run in a list of runs or in a pair.

    Args:
        label: "A" for the first run, then "B" and so on.
        run_id: The run.
    """

    label: str
    run_id: str


@dataclass(frozen=True, slots=True)
class Variant:
    """A compared run.

    Args:
        label: "A" for the first, then "B" and so on.
        name: The name of its prompt file, model or label, else of its run; its id if another run has that name.
        run_id: Its run.
        prompt_path: The file of its prompt; empty if it has none.
        case_count: Cases with a row.
        repeat_count: Runs of each case.
        partial: Whether rows are missing.
        agent_error_count: Rows whose agent failed or waits for a person.
        metrics: Every metric, and the pass rate, over all its cases, including those that other runs lack.
        cost_usd: The cost of agent and judge; None if neither has a price.
        judge_cost_usd: The cost of the judge.
        mean_latency_ms: The mean latency.
        p95_latency_ms: The 95th percentile of latencies.
        mean_tokens: The mean tokens of an answer, input and output.
        fingerprints: The fingerprints of judge and rubrics.
        invalid_verdict_count: Invalid verdicts of the judge.
        verdict_count: All verdicts of the judge.
        dataset_id: The id of the dataset's content.
        dataset_name: The name of the dataset.
        ranking_score: The classical weighted score; None without a metric for it.
        best_share: The share of resamples of the cases in which it has the highest mean of the primary metric.
        interrupted_count: Rows whose agent waits for a person; they are included in the agent errors.
    """

    label: str
    name: str
    run_id: str
    prompt_path: str
    case_count: int
    repeat_count: int
    partial: bool
    agent_error_count: int
    metrics: Mapping[str, Estimate]
    cost_usd: float | None = None
    judge_cost_usd: float | None = None
    mean_latency_ms: float | None = None
    p95_latency_ms: float | None = None
    mean_tokens: float | None = None
    fingerprints: tuple[str, ...] = ()
    invalid_verdict_count: int = 0
    verdict_count: int = 0
    dataset_id: str = ""
    dataset_name: str = ""
    ranking_score: float | None = None
    best_share: float | None = None
    interrupted_count: int = 0


@dataclass(frozen=True, slots=True)
class PassTable:
    """The 2 x 2 table of a metric that is 0 or 1.

    Args:
        both_count: Cases that both runs have right.
        a_only_count: Cases that only A has right.
        b_only_count: Cases that only B has right.
        neither_count: Cases that both runs have wrong.
    """

    both_count: int
    a_only_count: int
    b_only_count: int
    neither_count: int


@dataclass(frozen=True, slots=True)
class ClassicalTest:
    """The test that treats two runs as independent samples.

    Args:
        test: "chi_square", "fisher_exact" or "t_test".
        statistic: Its statistic; None if it could not be made.
        p: Its p-value, which decides; None likewise.
        note: A stable word on what to know; empty for nothing.
        usual_p: Chi-square's p-value where Fisher's decides.
        winner: The better run at the level of the comparison.
    """

    test: str
    statistic: float | None
    p: float | None
    note: str
    usual_p: float | None
    winner: Side


@dataclass(frozen=True, slots=True)
class ErrorComparison:
    """The errors of two runs: rows whose agent failed or, for a metric, rows that an error left without a value.

    Args:
        a_row_count: Rows of A with an error, over the compared cases.
        b_row_count: Rows of B with an error.
        a_case_count: Cases with an error of A in any repeat.
        b_case_count: Cases with an error of B.
        a_only_case_count: Cases with an error of A alone.
        b_only_case_count: Cases with an error of B alone.
        p: Exact McNemar p-value of `a_only_case_count` against `b_only_case_count`, not adjusted for other tests.
        worse: The run with significantly more errors.
        differ: Whether the errors may bias a difference: p is below the level, one run alone errs on over √n / 4 more
            cases than the other, or as many rows of a run have an error as its `max_agent_errors`.
    """

    a_row_count: int
    b_row_count: int
    a_case_count: int
    b_case_count: int
    a_only_case_count: int
    b_only_case_count: int
    p: float
    worse: Side = Side.NEITHER
    differ: bool = False


@dataclass(frozen=True, slots=True)
class WorstCase:
    """The figures of a metric with the value worst for the claimed verdict in place of each that an error left missing.

    Args:
        pair_count: Cases compared.
        replaced_case_count: Cases with a replaced value on at least one side.
        difference: B - A.
        interval: The interval of the difference at level 1 - alpha; None if there is none.
        p: Raw p-value.
        holds: Whether these figures give the verdict of the complete cases; False if they give none.
    """

    pair_count: int
    replaced_case_count: int
    difference: float
    interval: Interval | None = None
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
    """The runs, or their verdicts on rows, must not be compared."""
    FILTERED = "filtered"
    """The cases were chosen by a filter after the run."""
    TOO_FEW_DIFFERING = "too_few_differing"
    """Even if all differing cases pointed one way, the p-value would not be below the level."""
    TOO_FEW_CLUSTERS = "too_few_clusters"
    """The same for clusters."""
    AGENT_ERRORS = "agent_errors"
    """The errors of the runs differ, and the worst values in place of missing ones would change the verdict."""
    NO_SCALE = "no_scale"
    """A margin is given for a metric without bounds."""
    NOT_SIGNIFICANT = "not_significant"
    NOT_SIGNIFICANT_ADJUSTED = "not_significant_adjusted"
    """The raw p-value is below the level, the adjusted one is not."""
    NOT_ADJUSTED = "not_adjusted"
    """The pair decides nothing: its p-values are not adjusted."""
    RULE_UNDECIDED = "rule_undecided"
    """The rule by which the runs stop early decided nothing."""


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """The distance of two runs of one spec over the same cases by chance.

    Args:
        difference: Two standard errors of their difference: about 1 pair in 20 is further apart.
        flip_rate: Share of the cases whose values differ, from 0 to 1.
        case_count: Cases with a value in both.
    """

    difference: float
    flip_rate: float
    case_count: int


@dataclass(frozen=True, slots=True)
class MetricComparison:
    """A metric of two runs over the cases that both scored.

    Args:
        metric: Its name; `PASS_RATE` for the verdicts of rows.
        is_primary: Whether it decides; all other metrics are exploratory.
        higher_is_better: False for latency, tokens and cost.
        verdict: The verdict of the test.
        reason: A value of `Reason`; empty if a run is better, or both are equivalent.
        message: The reason as a sentence without its full stop; empty likewise.
        method: "mcnemar_exact", "sign_flip_exact", "sign_flip_random" or "sign_flip_normal_limit"; with a cluster key
            the signs are those of the clusters' sums.
        pair_count: Cases compared: those with a value in every repeat of both runs.
        dropped_case_count: Cases in both runs without a value on at least one side.
        a: The value of A over the pairs.
        b: The value of B.
        difference: B - A.
        median_unbiased: The estimate of B - A by planned looks, to which `interval` belongs; the plain difference is
            too large on average if a rule stopped. None without planned looks.
        interval: The interval of the difference at level 1 - alpha.
        interval_method: "bonett_price" for rates, "t" for scores, "sign_flip" with a cluster key, "cr2" where clusters
            are too few for a verdict, "always_valid" or "stagewise" where a rule stops early; empty without one.
        equivalence_interval: The interval at level 1 - 2 alpha, which is compared with a margin.
        p: Raw p-value.
        p_error: Monte-Carlo standard error of p; None if p is exact.
        p_adjusted: After the adjustment for several tests; None if the pair decides nothing.
        decides: Whether the pair decides, as a pair with the baseline or because all pairs do; other p-values are raw.
        win_count: Cases in which B is better.
        tie_count: Cases in which both are equal.
        loss_count: Cases in which A is better.
        table: The 2 x 2 table of a metric of 0 and 1 with one run of each case.
        mid_p: McNemar's mid-p.
        cohens_h: Effect size of rates.
        min_attainable_p: The smallest p-value that this number of differing cases, or clusters, can give.
        borderline: Whether p-value and interval disagree; the p-value decides.
        t: Paired t statistic.
        t_p: Its p-value.
        d_z: Mean by standard deviation of the differences.
        cliffs_delta: Effect size of scores, -1 to 1.
        standard_error: The standard error of the difference.
        cluster_count: The number of clusters; a case without the key is a cluster of its own. None without a cluster
            key.
        effective_cluster_count: The number of equal clusters with the same uncertainty, (Σn)²/Σn²; None likewise.
        largest_cluster: The key of the largest cluster; empty likewise, or if it is a single case.
        largest_cluster_share: Its share of the cases; None likewise.
        errors: Rows without a value because of an error of agent, judge or metric; None if there are none.
        worst_case: If `errors.differ`, the figures with the worst values in place of missing ones; None otherwise, or
            for a metric without bounds.
        detectable: The smallest difference that these cases detect with the power of the settings, at the level of
            the first test of the adjustment; None if none is, and where a rule stops early.
        needed_case_count: The approximate number of cases that detect the chosen difference; None if none was chosen,
            and for all metrics but the primary one.
        classical: The unpaired test.
        without_errors: The difference over the cases without an agent error; None if there is no such error.
        without_errors_p: Its raw p-value.
        noise_floor: The noise floor of A, if it was measured.
        notes: Stable words: "few_differing" (as `Reason.TOO_FEW_DIFFERING`), "few_clusters" (fewer than ten effective
            ones), "large_losses" (a few large differences carry the mean), "constant" (all differences are 0: no part
            of a family), "as_primary" (all values are those of the primary metric: its p-values).
        is_direction_assumed: Whether "higher is better" is only assumed.
        unit: The unit of the values; empty for a plain number.
        is_implied: Whether a spec does not ask for the metric, which is compared because its values are known.
    """

    metric: str
    is_primary: bool
    higher_is_better: bool
    verdict: ComparisonVerdict
    reason: str = ""
    message: str = ""
    method: str = ""
    pair_count: int = 0
    dropped_case_count: int = 0
    a: Estimate | None = None
    b: Estimate | None = None
    difference: float | None = None
    median_unbiased: float | None = None
    interval: Interval | None = None
    interval_method: str = ""
    equivalence_interval: Interval | None = None
    one_sided: Interval | None = None
    p: float | None = None
    p_error: float | None = None
    p_adjusted: float | None = None
    decides: bool = False
    win_count: int = 0
    tie_count: int = 0
    loss_count: int = 0
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
    cluster_count: int | None = None
    effective_cluster_count: float | None = None
    largest_cluster: str = ""
    largest_cluster_share: float | None = None
    errors: ErrorComparison | None = None
    worst_case: WorstCase | None = None
    detectable: float | None = None
    needed_case_count: int | None = None
    classical: ClassicalTest | None = None
    without_errors: float | None = None
    without_errors_p: float | None = None
    noise_floor: NoiseFloor | None = None
    notes: tuple[str, ...] = ()
    is_direction_assumed: bool = False
    unit: str = ""
    is_implied: bool = False


@dataclass(frozen=True, slots=True)
class PairComparison:
    """A pair of runs.

    Args:
        a: The first; the first of all runs is the baseline.
        b: The second.
        common_case_count: Cases with a row in both.
        a_only_case_count: Cases only in A.
        b_only_case_count: Cases only in B.
        changed_case_count: Cases in both whose question or references differ; they are not compared.
        overlap: Common cases as a share of the smaller run.
        metrics: The primary metric first, then the others in report order.
        classical_winner: The run that wins more of the unpaired tests.
        matched_by: How cases were matched.
        lost_case_count: Cases that are worse in B.
        won_case_count: Cases that are better in B.
        errors: Rows whose agent failed; None if there are none.
        flipped_cases: The cases that came out differently, worst for B first; at most 50, and 1,000 of all pairs. Of
            more, three quarters are the worst and the others the best.
    """

    a: RunRef
    b: RunRef
    common_case_count: int
    a_only_case_count: int
    b_only_case_count: int
    changed_case_count: int
    overlap: float
    metrics: tuple[MetricComparison, ...]
    classical_winner: Side = Side.NEITHER
    matched_by: Matching = Matching.ID
    lost_case_count: int = 0
    won_case_count: int = 0
    errors: ErrorComparison | None = None
    flipped_cases: tuple[FlippedCase, ...] = ()

    @property
    def flipped_case_count(self) -> int:
        """The number of cases that came out differently."""
        return self.lost_case_count + self.won_case_count

    def metric(self, name: str) -> MetricComparison:
        """Return the comparison of one metric."""
        return next(metric for metric in self.metrics if metric.metric == name)


@dataclass(frozen=True, slots=True)
class OmnibusTest:
    """The test over three or more runs that precedes the pairs.

    Args:
        test: "cochran_q" or "friedman".
        statistic: Its statistic; None if it could not be made.
        p: Its p-value; None likewise.
        case_count: Cases with a value in every run.
        note: A stable word on what to know; empty for nothing.
    """

    test: str
    statistic: float | None
    p: float | None
    case_count: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """A setting in which runs differ.

    Args:
        path: Its path, such as "agent.options.prompt_file".
        values: Its value in each run, in the order of the runs; None if a run has none.
    """

    path: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class FlippedCase:
    """A case that came out differently in two runs.

    Args:
        case_id: The case.
        category: Its category; empty if it has none.
        metric: The metric that differs most in favour of one side; `PASS_RATE` for the row's verdict.
        a: Value of A.
        b: Value of B.
        case_id_b: The case's id in B if it differs; empty otherwise.
        question: The beginning of the last question; empty if unknown.
    """

    case_id: str
    category: str
    metric: str
    a: float
    b: float
    case_id_b: str = ""
    question: str = ""


@dataclass(frozen=True, slots=True)
class RandomDraws:
    """The numbers of random draws behind figures.

    Args:
        sign_assignment_count: Random sign assignments behind a p-value.
        near_alpha_sign_assignment_count: Those of a p-value close to the level.
        resample_count: Resamples of the cases behind the shares of the best run.
    """

    sign_assignment_count: int = 0
    near_alpha_sign_assignment_count: int = 0
    resample_count: int = 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of two or more runs, the first of which is the baseline.

    Args:
        settings: The settings of the comparison.
        assay_version: The version that computed it.
        primary: The metric that decides.
        variants: The runs.
        pairs: Every pair of them, (first, second), (first, third) and so on.
        omnibus: The test over all runs, by metric; empty for two runs.
        mismatches: Why the runs must not be compared; empty if they may be.
        changes: The settings in which they differ.
        ranking: The runs by their classical score, the best first.
        recommendation: The recommendation by the ranking.
        not_worse_than_best: The run with the best mean of the primary metric, then the runs that are not
            significantly worse; empty if no run has a value.
        filtered: Whether a filter chose the cases, so that figures are exploratory.
        random_draws: The numbers of assignments and resamples behind random figures.
        stopping: The outcome of the rule by which both runs stop early; None if they share no rule.
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
    not_worse_than_best: tuple[RunRef, ...] = ()
    filtered: bool = False
    random_draws: RandomDraws = RandomDraws()
    stopping: StoppingOutcome | None = None

    def pair(self, a: str, b: str) -> PairComparison:
        """Return the comparison of two runs by their labels."""
        return next(pair for pair in self.pairs if (pair.a.label, pair.b.label) == (a, b))

    @property
    def baseline_pairs(self) -> list[PairComparison]:
        """Every run against the first."""
        first = self.variants[0].label
        return [pair for pair in self.pairs if pair.a.label == first]

    def variant(self, label: str) -> Variant:
        """Return a run by its label."""
        return next(variant for variant in self.variants if variant.label == label)
