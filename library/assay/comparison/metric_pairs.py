"""The comparison of a metric in two runs: its cases, its test and its raw result, before other tests are known."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from assay.comparison.cases import is_shared
from assay.comparison.model import ClassicalTest, ComparisonVerdict, Estimate, MetricComparison, PassTable, Reason, Side
from assay.model.interval import Interval
from assay.statistics.clustered_mean import clustered_wilson
from assay.statistics.clusters import in_clusters
from assay.statistics.equivalence import rate_equivalence, score_equivalence
from assay.statistics.independent import chi_square, t_test
from assay.statistics.one_sided import rate_bounds, score_bounds
from assay.statistics.paired import (
    PairedScores,
    bonett_price_error,
    differences,
    mcnemar,
    paired_scores,
    t_interval,
)
from assay.statistics.sign_flips import sign_flips

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from assay.comparison.model import ComparisonSettings, ErrorComparison
    from assay.statistics.clusters import Clusters
    from assay.statistics.sign_flips import SignFlip

FEW_CLUSTERS = "few_clusters"
"""The note of a comparison with fewer than ten effective clusters."""
FEW_DIFFERING = "few_differing"
"""The note of a comparison in which so few cases differ that no p-value can be below the level."""
LARGE_LOSSES = "large_losses"
"""The note of a comparison in which a few large differences carry the mean, so that its interval is doubtful."""
_CARRYING_SHARE = 0.75  # of the sum of squares
_LEAST_PAIRS = 2
_LEAST_EFFECTIVE_CLUSTERS = 10


@dataclass(frozen=True, slots=True)
class NoVerdict:
    """Why a metric has no verdict, or an inconclusive one.

    Args:
        reason: The stable word.
        message: The sentence, without its full stop.
    """

    reason: Reason
    message: str


@dataclass(frozen=True, eq=False, slots=True)
class PairedValues:
    """The values of a metric in two runs, case by case.

    Args:
        metric: Its name.
        is_primary: Whether it decides.
        higher_is_better: Whether more is better.
        is_binary: Whether all values are 0 or 1, with one run of each case.
        bounds: The least and the greatest value, infinite if there is none.
        a: Values of A over the common cases.
        b: Values of B, in the same order.
        dropped_case_count: Common cases without a value on at least one side.
        clusters: The cluster of each case; None without a cluster key.
        without_errors: Places of the cases without an agent error; None if every case is one.
        errors: The rows without a value because of an error; None if there are none.
        lowest: If errors differ, the same with the values that minimise the difference: the greatest value for A and
            the least for B in place of missing ones; None for a metric without a scale.
        highest: The same with the values that maximise the difference.
        decides: Whether the pair of runs decides.
        withheld: Why there is no verdict regardless of the values; None if there may be one.
        is_direction_assumed: Whether "higher is better" is only assumed.
        unit: The unit of the values.
        is_implied: Whether a spec does not ask for the metric.
    """

    metric: str
    is_primary: bool
    higher_is_better: bool
    is_binary: bool
    bounds: tuple[float, float]
    a: NDArray[np.float64]
    b: NDArray[np.float64]
    dropped_case_count: int = 0
    clusters: Sequence[str] | None = None
    without_errors: NDArray[np.intp] | None = None
    errors: ErrorComparison | None = None
    lowest: PairedValues | None = None
    highest: PairedValues | None = None
    decides: bool = True
    withheld: NoVerdict | None = None
    is_direction_assumed: bool = False
    unit: str = ""
    is_implied: bool = False

    @property
    def differences(self) -> NDArray[np.float64]:
        """B - A of each case."""
        return differences(self.a, self.b)

    @property
    def units(self) -> tuple[float, ...]:
        """The units whose signs are flipped: the differences, or the sums of the clusters."""
        return in_clusters(self.differences.tolist(), self.clusters).sums

    @property
    def has_scale(self) -> bool:
        """Whether values have a lower and an upper bound."""
        return math.isfinite(self.bounds[1] - self.bounds[0])

    def equals(self, other: PairedValues) -> bool:
        """Whether all values equal those of another metric of the same runs."""
        import numpy as np

        return (
            self.dropped_case_count == other.dropped_case_count
            and np.array_equal(self.a, other.a)
            and np.array_equal(self.b, other.b)
        )

    @property
    def uses_mcnemar(self) -> bool:
        """Whether McNemar's test applies."""
        return self.is_binary and self.clusters is None

    def subset(self, places: NDArray[np.intp]) -> PairedValues:
        """Return the same for some of the cases."""
        return replace(
            self,
            a=self.a[places],
            b=self.b[places],
            clusters=None if self.clusters is None else [self.clusters[place] for place in places],
            without_errors=None,
        )


@dataclass(frozen=True, slots=True)
class Tested:
    """A metric of two runs with raw p-values, without a verdict.

    Args:
        found: The comparison over the cases that both runs scored.
        lowest: Of `PairedValues.lowest`; None if there is none.
        highest: Of `PairedValues.highest`; None likewise.
    """

    found: MetricComparison
    lowest: MetricComparison | None = None
    highest: MetricComparison | None = None


def compare_values(pairs: Sequence[PairedValues], settings: ComparisonSettings) -> list[Tested]:
    """Return the tests of each metric and pair of runs.

    All sign-flip tests are made at once because they share their random signs.
    """
    clean = [
        None if pair.without_errors is None or not len(pair.without_errors) else pair.subset(pair.without_errors)
        for pair in pairs
    ]
    variants = [(pair, without, pair.lowest, pair.highest) for pair, without in zip(pairs, clean, strict=True)]
    values_of_runs = [value for group in variants for value in group if value is not None]
    flipped = [value for value in values_of_runs if len(value.a) and not value.uses_mcnemar]
    families = Counter(pair.is_primary for pair in pairs if pair.decides)
    counts = [families[value.is_primary] or 1 for value in flipped]
    flips = sign_flips([value.units for value in flipped], seed=settings.seed, alpha=settings.alpha, counts=counts)
    by_id = dict(zip(map(id, flipped), flips, strict=True))

    def compared(pair: PairedValues | None) -> MetricComparison | None:
        return None if pair is None else _compared(pair, settings, by_id.get(id(pair)))

    tested = []
    for pair, *others in variants:
        complete, (without, lowest, highest) = _compared(pair, settings, by_id.get(id(pair))), map(compared, others)
        if without is not None:
            complete = replace(complete, without_errors=without.difference, without_errors_p=without.p)
        tested.append(Tested(complete, lowest, highest))
    return tested


def _compared(pair: PairedValues, settings: ComparisonSettings, flip: SignFlip | None) -> MetricComparison:
    differences = pair.differences
    sign = 1 if pair.higher_is_better else -1
    metric = MetricComparison(
        metric=pair.metric,
        is_primary=pair.is_primary,
        decides=pair.decides,
        higher_is_better=pair.higher_is_better,
        verdict=ComparisonVerdict.NO_DATA,
        pair_count=len(pair.a),
        dropped_case_count=pair.dropped_case_count,
        errors=pair.errors,
        a=estimate(pair.a, pair, settings),
        b=estimate(pair.b, pair, settings),
        win_count=int((sign * differences > 0).sum()),
        tie_count=int((differences == 0).sum()),
        loss_count=int((sign * differences < 0).sum()),
        classical=_classical(pair, settings),
        is_direction_assumed=pair.is_direction_assumed,
        unit=pair.unit,
        is_implied=pair.is_implied,
    )
    if not len(pair.a):
        return metric
    return _binary(metric, pair, settings) if pair.uses_mcnemar else _scores(metric, pair, settings, flip)


def _binary(metric: MetricComparison, pair: PairedValues, settings: ComparisonSettings) -> MetricComparison:
    both = int(((pair.a == 1) & (pair.b == 1)).sum())
    a_only, b_only = int((pair.a > pair.b).sum()), int((pair.a < pair.b).sum())
    n = len(pair.a)
    test = mcnemar(both, a_only, b_only, n - both - a_only - b_only, alpha=settings.alpha)
    return replace(
        metric,
        method="mcnemar_exact",
        difference=test.difference,
        interval=Interval.of(test.interval),
        equivalence_interval=Interval.of(rate_equivalence(a_only, b_only, n, alpha=settings.alpha)),
        one_sided=Interval.of(rate_bounds(a_only, b_only, n, alpha=settings.alpha)),
        p=test.p,
        table=PassTable(both, a_only, b_only, n - both - a_only - b_only),
        mid_p=test.mid_p,
        cohens_h=test.cohens_h,
        min_attainable_p=test.min_attainable_p,
        borderline=_is_borderline(test.p, test.interval, settings),
        cliffs_delta=None,
        standard_error=bonett_price_error(a_only, b_only, n),
        interval_method="bonett_price",
        notes=(FEW_DIFFERING,) if a_only + b_only and test.min_attainable_p >= settings.alpha else (),
    )


def _scores(
    metric: MetricComparison, pair: PairedValues, settings: ComparisonSettings, flip: SignFlip | None
) -> MetricComparison:
    test = paired_scores(
        pair.a.tolist(), pair.b.tolist(), seed=settings.seed, alpha=settings.alpha, clusters=pair.clusters, flip=flip
    )
    differences = pair.differences.tolist()
    return replace(
        metric,
        method=f"sign_flip_{test.flip.method}",
        difference=test.mean_difference,
        interval=Interval.of(test.interval),
        equivalence_interval=Interval.of(
            score_equivalence(differences, pair.bounds, alpha=settings.alpha, clusters=pair.clusters)
        ),
        one_sided=Interval.of(score_bounds(differences, pair.bounds, alpha=settings.alpha, clusters=pair.clusters)),
        p=test.flip.p,
        min_attainable_p=test.flip.least_p,
        borderline=_is_borderline(test.flip.p, test.interval, settings),
        t=test.t,
        t_p=test.t_p,
        d_z=test.d_z,
        cliffs_delta=test.cliffs_delta,
        standard_error=test.standard_error,
        p_error=test.flip.error,
        interval_method=test.interval_method,
        **_clusters(test.clusters, pair),
        notes=tuple(_notes(test, pair, settings)),
    )


def _clusters(clusters: Clusters | None, pair: PairedValues) -> dict[str, Any]:
    """Return the fields of a comparison that describe the clusters of a metric."""
    if clusters is None or pair.clusters is None:
        return {}
    largest = max((count, name) for name, count in Counter(pair.clusters).items())[1]
    return {
        "cluster_count": len(clusters.counts),
        "effective_cluster_count": clusters.effective_count,
        "largest_cluster": largest if is_shared(largest) else "",
        "largest_cluster_share": clusters.largest_share,
    }


def _notes(test: PairedScores, pair: PairedValues, settings: ComparisonSettings) -> Iterator[str]:
    if test.clusters is not None and test.clusters.effective_count < _LEAST_EFFECTIVE_CLUSTERS:
        yield FEW_CLUSTERS
    is_few = test.flip.least_p >= settings.alpha
    if test.clusters is None and test.units and is_few:
        yield FEW_DIFFERING
    if not is_few and _is_carried_by_few(pair.units):
        yield LARGE_LOSSES


def _is_carried_by_few(units: Sequence[float]) -> bool:
    """Whether a few large differences, a twentieth of them and at least one, make up most of the variation."""
    squares = sorted((total * total for total in units if total), reverse=True)
    few = math.fsum(squares[: max(1, len(squares) // 20)])
    return few > _CARRYING_SHARE * math.fsum(squares)


def _is_borderline(p: float, interval: tuple[float, float] | None, settings: ComparisonSettings) -> bool:
    """Whether p-value and interval, which use different methods, disagree; the p-value decides."""
    return interval is not None and (p < settings.alpha) is not (interval[0] > 0 or interval[1] < 0)


def estimate(values: NDArray[np.float64], pair: PairedValues, settings: ComparisonSettings) -> Estimate:
    """Return the mean of a run's values and its interval: Wilson's for a rate, else t."""
    n = len(values)
    if not n:
        return Estimate(None, None, 0)
    terms = values.tolist()
    mean = math.fsum(terms) / n
    if pair.uses_mcnemar:
        return Estimate(mean, Interval.of(wilson_interval(round(math.fsum(terms)), n, alpha=settings.alpha)), n)
    if pair.is_binary and pair.clusters is not None:
        return Estimate(mean, Interval.of(clustered_wilson(terms, pair.clusters, alpha=settings.alpha)), n)
    grouped = in_clusters(terms, pair.clusters)
    interval = t_interval(mean, grouped.error, grouped.degrees, alpha=settings.alpha)
    low, high = pair.bounds
    if interval is not None and low <= mean <= high:
        interval = max(low, interval[0]), min(high, interval[1])
    return Estimate(mean, Interval.of(interval), n)


def wilson_interval(successes: int, n: int, *, alpha: float) -> tuple[float, float] | None:
    """Return Wilson's interval of a rate at level 1 - alpha; None for n = 0."""
    from assay.statistics.intervals import wilson

    return wilson(successes, n, z=NormalDist().inv_cdf(1 - alpha / 2))


def _classical(pair: PairedValues, settings: ComparisonSettings) -> ClassicalTest:
    if pair.is_binary:
        right = [int(values.sum()) for values in (pair.a, pair.b)]
        test = chi_square((right[0], len(pair.a) - right[0]), (right[1], len(pair.b) - right[1]))
        name = "chi_square" if test.other_p is None else "fisher_exact"
    else:
        test, name = t_test(pair.a.tolist(), pair.b.tolist()), "t_test"
    winner = Side.NEITHER
    if test.is_significant(settings.alpha):
        difference = math.fsum(pair.b.tolist()) / len(pair.b) - math.fsum(pair.a.tolist()) / len(pair.a)
        winner = Side.B if (difference > 0) is pair.higher_is_better else Side.A
    return ClassicalTest(name, test.statistic, test.p, test.note, test.other_p, winner)


def too_few(pair: PairedValues) -> NoVerdict | None:
    """Return why the pairs are too few for a verdict; None if they are not."""
    common = len(pair.a) + pair.dropped_case_count
    if not common:
        return NoVerdict(Reason.NO_COMMON_CASES, "there is no common case to compare")
    if len(pair.a) < _LEAST_PAIRS:
        reason = f"{len(pair.a)} of {common} common cases have a value in both runs, and a test needs at least 2"
        return NoVerdict(Reason.TOO_FEW_CASES, reason)
    if pair.dropped_case_count > common / 2:
        reason = f"{pair.dropped_case_count:,} of {common:,} common cases have no value in one of the runs"
        return NoVerdict(Reason.TOO_MANY_MISSING, reason)
    return None
