"""Planning the cases and repeats of a comparison, with their cost, from the variance of earlier runs.

The variance of a case's difference between two variants is

    2 · between · (1 - correlation) + 2 · within / repeats

where `between` is the variance of the cases' means and `within` the variance of the runs of one case. Two earlier runs
over the same cases measure all of it, with `within / repeats` of each; one run needs an assumption about the
correlation, which is part of the plan. With a cluster key, the units are clusters: the sum of a cluster's deviations
from the mean, divided by the mean number of cases of a cluster.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from assay.errors import InvalidInputError
from assay.statistics.clusters import effective_number, in_clusters, is_negligible, least_units
from assay.statistics.intervals import upper_rate, upper_spread
from assay.statistics.paired import LARGEST
from assay.statistics.paired import difference as case_difference
from assay.statistics.power import (
    cases_for_rates,
    cases_for_scores,
    common_step,
    detectable_rate_difference,
    detectable_score_difference,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

DEFAULT_CORRELATION = 0.5
"""The assumed correlation of the cases' means of two variants, with one known run."""
REPEATS = (1, 2, 3, 5)
_UPPER = 0.8  # level of the one-sided interval whose upper limit gives the cautious sizes


@dataclass(frozen=True, slots=True)
class RowCost:
    """The cost of a row of the earlier run.

    Args:
        agent_calls: Calls of the agent; more than one per row in conversations.
        judge_calls: Calls of the judge, without cached verdicts.
        tokens: Tokens of the agent; None if they were not counted.
        cost_usd: Cost of agent and judge; None if neither has a price.
        time_s: Wall time of a further row in seconds, without the loading of models; None if unknown.
    """

    agent_calls: float
    judge_calls: float
    tokens: float | None
    cost_usd: float | None
    time_s: float | None


@dataclass(frozen=True, slots=True)
class Variation:
    """The variation of a metric in earlier runs.

    Args:
        metric: Its name.
        n: Cases with a value; with two runs, in both.
        mean: Mean over these cases, of the first run.
        is_rate: Whether every row is 0 or 1.
        variance: The variance of the cases' means in the first run.
        within: The variance of the runs of one case; None if each was run once.
        correlation: The assumed correlation of the cases' means between two variants; None if two runs measured the
            difference.
        spread: The variance of a case's difference between the two earlier runs; None with one run.
        repeats: Runs of each case in the first run.
        noise: The part of `spread` from the runs of one case, with the repeats of each earlier run; None with one run,
            or if each case was run once.
        differing: The share of the cases, or clusters, whose values differ between the two runs; None with one run.
        step: The step between possible values of rows, from the least value on: 1 for 0 and 1; 0 if there is none.
        cluster: The cluster key, as in `ComparisonSettings`; with it, variances are those of clusters.
        clusters: The number of clusters; None without a cluster key.
        effective_clusters: The number of equal clusters with the same information, (Σn)²/Σn²; None likewise.
    """

    metric: str
    n: int
    mean: float
    is_rate: bool
    variance: float
    within: float | None
    correlation: float | None
    spread: float | None
    repeats: int
    noise: float | None = None
    differing: float | None = None
    step: float = 0.0
    cluster: str = ""
    clusters: int | None = None
    effective_clusters: float | None = None

    @property
    def units(self) -> float:
        """The number of independent values of equal weight: cases, or effective clusters."""
        return self.n if self.effective_clusters is None else self.effective_clusters

    def difference_variance(self, repeats: int) -> float | None:
        """Return the variance of a case's difference with this many runs per case; None if unknown."""
        if self.spread is not None:
            if self.within is None or self.noise is None:
                return self.spread if repeats == 1 else None
            return max(0.0, self.spread - self.noise) + 2 * self.within / repeats
        assert self.correlation is not None, "one run comes with an assumption"
        if self.within is None:
            return 2 * self.variance * (1 - self.correlation) if repeats == 1 else None
        between = max(0.0, self.variance - self.within / self.repeats)
        return 2 * between * (1 - self.correlation) + 2 * self.within / repeats

    @property
    def noise_share(self) -> float | None:
        """The share of the squared standard error that repeats of a case contribute; None without repeats."""
        if self.within is None:
            return None
        if self.spread is not None and self.noise is not None:
            return min(1.0, self.noise / self.spread) if self.spread else None
        return min(1.0, self.within / self.repeats / self.variance) if self.variance else None


@dataclass(frozen=True, slots=True)
class PlannedSize:
    """The size of a comparison with a number of repeats.

    Args:
        repeats: Runs of each case.
        cases: Cases that detect the difference; None if unknown.
        cases_upper: A cautious number of cases, by the upper limit of a one-sided 80 % interval of the share that
            disagrees (Clopper-Pearson) or of the standard deviation (chi-square).
        rows: Rows of both variants together, for `cases`, as all that follows but `detectable`.
        detectable: The smallest difference that the earlier run's cases would detect; None if there is none.
        agent_calls: Calls of both agents.
        judge_calls: Calls of the judge for both variants.
        tokens: Tokens of the agents; None if unknown.
        cost_usd: The cost; None if unknown.
        time_s: The wall time at the pace of the earlier run, with models loaded; None if unknown.
        clusters: The number of clusters of the cases; None without a cluster key.
    """

    repeats: int
    cases: int | None = None
    cases_upper: int | None = None
    rows: int | None = None
    detectable: float | None = None
    agent_calls: int | None = None
    judge_calls: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    time_s: float | None = None
    clusters: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a comparison of two variants.

    Args:
        variation: The variation of the metric.
        difference: The difference to detect.
        alpha: Level of the test.
        power: Chance to detect it.
        sizes: The sizes by number of repeats.
        reason: Why nothing can be planned: "no_variation" or "too_little_disagreement"; otherwise empty.
        message: The reason as a sentence without its full stop.
        notes: Sentences on the assumptions of the figures.
    """

    variation: Variation
    difference: float
    alpha: float
    power: float
    sizes: tuple[PlannedSize, ...]
    reason: str = ""
    message: str = ""
    notes: tuple[str, ...] = field(default=())


def variation_of(
    metric: str,
    rows: Iterable[tuple[str, float | None]],
    other: Iterable[tuple[str, float | None]] | None = None,
    *,
    correlation: float = DEFAULT_CORRELATION,
    cluster: str = "",
    clusters: Mapping[str, str] | None = None,
) -> Variation:
    """Return the variation of a metric over the rows of one or two earlier runs.

    Args:
        metric: Its name.
        rows: Case id and value of each row; rows without a value, or with one beyond ±1e100, are ignored.
        other: The rows of a second run over the same cases.
        correlation: The correlation to assume without a second run.
        cluster: The cluster key; empty for none.
        clusters: The cluster of each case of the first run, with a cluster key.

    Raises:
        InvalidInputError: Fewer than two cases, or clusters, have a value, or the runs share fewer than two.
    """
    by_case = _by_case(rows)
    if len(by_case) < 2:
        raise InvalidInputError(f"{len(by_case)} cases have a value of {metric}: a plan needs at least two")
    runs = [by_case]
    if other is not None:
        others = _by_case(other)
        common = [case for case in by_case if case in others]
        if len(common) < 2:
            raise InvalidInputError(f"the runs share {len(common)} cases with a value of {metric}: a plan needs two")
        runs = [{case: run[case] for case in common} for run in (by_case, others)]
    shared = None if clusters is None else [clusters[case] for case in runs[0]]
    sizes = None if shared is None else Counter(shared).values()
    if sizes is not None and len(sizes) == 1:
        raise InvalidInputError(f"all cases are in one cluster by {cluster}: a plan needs at least two")
    effective = None if sizes is None else effective_number(sizes)
    means = [[_mean(values) for values in run.values()] for run in runs]
    differences = None if other is None else [case_difference(a, b) for a, b in zip(*means, strict=True)]
    # The noise of a cluster's cases adds up; the noise of its mean is that of one case divided by their number.
    unit_cases = 1.0 if effective is None else len(means[0]) / effective
    known = [variation for run in runs if (variation := _within(run)) is not None]
    within = _mean(known) if known else None
    return Variation(
        metric=metric,
        n=len(means[0]),
        mean=_mean(means[0]),
        is_rate=all(value in (0.0, 1.0) for run in runs for values in run.values() for value in values),
        variance=_unit_variance(means[0], shared),
        within=None if within is None else within / unit_cases,
        correlation=correlation if other is None else None,
        spread=None if differences is None else _unit_variance(differences, shared),
        repeats=max(map(len, runs[0].values())),
        noise=(
            None if other is None or within is None else math.fsum(_noise(run, within) for run in runs) / unit_cases
        ),
        differing=None if differences is None else _differing(runs, differences, shared),
        step=common_step({value for run in runs for values in run.values() for value in values}),
        cluster=cluster,
        clusters=None if sizes is None else len(sizes),
        effective_clusters=effective,
    )


def plan(variation: Variation, difference: float, cost: RowCost, *, alpha: float = 0.05, power: float = 0.8) -> Plan:
    """Return the cases that detect a difference between two variants, with their cost, by number of repeats.

    A run without variation plans nothing: any size would need an invented variance.
    """
    planner = _Planner(variation, abs(difference), cost, alpha, power)
    sizes = tuple(planner.size(repeats) for repeats in REPEATS)
    reason, message = _why_not(planner, sizes)
    notes = tuple(_notes(variation, alpha)) if not reason else ()
    return Plan(variation, difference, alpha, power, sizes, reason, message, notes)


@dataclass(frozen=True, slots=True)
class _Planner:
    """Computes sizes for a difference. Arguments as for `plan`; the difference has no sign."""

    variation: Variation
    difference: float
    cost: RowCost
    alpha: float
    power: float

    def size(self, repeats: int) -> PlannedSize:
        """Return the size with a number of repeats."""
        variance = self.variation.difference_variance(repeats)
        if not variance or is_negligible(math.sqrt(variance), self.variation.mean):
            return PlannedSize(repeats)
        units, upper, detectable = (
            self._of_rates() if self.uses_mcnemar(repeats) else self._of_scores(math.sqrt(variance), repeats)
        )
        unit_cases = self.variation.n / self.variation.units
        cases, cases_upper = (None if count is None else math.ceil(count * unit_cases) for count in (units, upper))
        planned = PlannedSize(repeats, cases, cases_upper, detectable=detectable)
        return planned if cases is None else self._with_cost(planned, cases)

    def uses_mcnemar(self, repeats: int) -> bool:
        """Whether the comparison is of 0 and 1."""
        return self.variation.is_rate and repeats == 1 and self.variation.clusters is None

    def disagreeing(self) -> float:
        """Return the share of cases in which two variants disagree, measured by two runs or assumed from one."""
        known = self.variation
        return min(1.0, known.difference_variance(1) or 0.0) if known.differing is None else known.differing

    def _of_rates(self) -> tuple[int | None, int | None, float | None]:
        share = self.disagreeing()
        units, at_upper = (
            None
            if rate < self.difference
            else cases_for_rates(self.difference, rate, alpha=self.alpha, power=self.power)
            for rate in (share, upper_rate(share * self.variation.n, self.variation.n, level=_UPPER))
        )
        return units, at_upper, detectable_rate_difference(self.variation.n, share, alpha=self.alpha, power=self.power)

    def _of_scores(self, spread: float, repeats: int) -> tuple[int | None, int | None, float | None]:
        known = self.variation
        differing = 1.0 if known.differing is None else known.differing
        step = known.step / repeats / known.n * known.units
        units, at_upper = (
            cases_for_scores(
                self.difference, deviation, differing=differing, step=step, alpha=self.alpha, power=self.power
            )
            for deviation in (spread, spread * upper_spread(known.units - 1, level=_UPPER))
        )
        detectable = detectable_score_difference(
            math.floor(known.units), spread, differing=differing, step=step, alpha=self.alpha, power=self.power
        )
        return units, at_upper, detectable

    def _with_cost(self, size: PlannedSize, cases: int) -> PlannedSize:
        known, cost, rows = self.variation, self.cost, 2 * cases * size.repeats
        return replace(
            size,
            rows=rows,
            agent_calls=math.ceil(rows * cost.agent_calls),
            judge_calls=math.ceil(rows * cost.judge_calls),
            tokens=None if cost.tokens is None else math.ceil(rows * cost.tokens),
            cost_usd=None if cost.cost_usd is None else rows * cost.cost_usd,
            time_s=None if cost.time_s is None else rows * cost.time_s,
            clusters=known.clusters and math.ceil(cases * known.clusters / known.n),
        )


def _why_not(planner: _Planner, sizes: Sequence[PlannedSize]) -> tuple[str, str]:
    """Return why nothing can be planned, as a word and as a sentence; both empty if a plan is possible."""
    known = planner.variation
    if any(size.cases is not None or size.cases_upper is not None for size in sizes):
        return "", ""
    runs = "this run" if known.correlation is not None else "these runs"
    if planner.uses_mcnemar(1) and (share := planner.disagreeing()):
        seen = f"about {share:.2g} of the cases" if known.correlation is not None else f"{share:.2g} of the cases"
        return "too_little_disagreement", (
            f"{known.metric} cannot be planned from {runs}: two variants disagree on {seen}, and a difference of "
            f"{planner.difference:g} needs at least that share of them; take a run of cases that the variants answer "
            "differently, or a smaller difference"
        )
    unit = "case" if known.clusters is None else "cluster"
    of = "the value" if known.correlation is not None else "the difference between them"
    seen = f"{of} is the same in every {unit}"
    return "no_variation", (
        f"{known.metric} cannot be planned from {runs}: {seen}, which does not say how much further ones vary; take a "
        "run with more cases, or with harder ones"
    )


def _notes(variation: Variation, alpha: float) -> list[str]:
    notes = []
    if variation.correlation is not None:
        notes.append(
            f"one run says nothing of how alike the variants are: the cases' values are assumed to correlate by "
            f"{variation.correlation:g}; name a second run over the same cases to measure it"
        )
    if variation.within is None:
        notes.append("each case was run once: what repeats would bring is not known; run with --repeats 2 or more")
    elif (share := variation.noise_share) is not None:
        advice = "more runs of each case help more than more cases" if share > 0.5 else "more cases help more"
        notes.append(f"{share:.0%} of the uncertainty comes from the runs of one case: {advice}")
    clusters = variation.effective_clusters
    unit, seen = ("cases", f"{variation.n:,}") if clusters is None else ("clusters", f"effectively {clusters:.3g}")
    notes.append(
        f"the sizes are learned from {seen} {unit}, and about every second one is too small; with those at the upper "
        "limit it is one in five"
    )
    notes.append(f"fewer than {least_units(alpha)} differing {unit} can never decide at a level of {alpha:g}")
    if clusters is None:
        notes.append("cases count as independent: where they share documents or customers, name these with --cluster")
    else:
        notes.append("the new clusters are taken to be as large as those of the earlier run, and as unequal")
    return notes


def _by_case(rows: Iterable[tuple[str, float | None]]) -> Mapping[str, list[float]]:
    values: dict[str, list[float]] = defaultdict(list)
    for case_id, value in rows:
        if value is not None and abs(value) <= LARGEST:
            values[case_id].append(value)
    return values


def _within(run: Mapping[str, Sequence[float]]) -> float | None:
    """Return the mean variance of the runs of a case; None if each case was run once."""
    repeated = [values for values in run.values() if len(values) > 1]
    return _mean([_variance(values) for values in repeated]) if repeated else None


def _noise(run: Mapping[str, Sequence[float]], within: float) -> float:
    """Return the part of the variance of a case's mean that its runs contribute.

    Args:
        run: The values of each case.
        within: The variance to use if each case was run once.
    """
    own = _within(run)
    return (within if own is None else own) * _mean([1 / len(values) for values in run.values()])


def _differing(
    runs: Sequence[Mapping[str, Sequence[float]]], differences: Sequence[float], clusters: Sequence[str] | None
) -> float:
    """Return the share of clusters whose sums differ; without clusters, the share of cases by single runs."""
    if clusters is not None:
        sums = in_clusters(differences, clusters).sums
        return sum(total != 0 for total in sums) / len(sums)
    return _mean(
        [
            _mean([float(case_difference(a, b) != 0) for a in first for b in second])
            for first, second in zip(*(run.values() for run in runs), strict=True)
        ]
    )


def _unit_variance(values: Sequence[float], clusters: Sequence[str] | None) -> float:
    """Return the variance of the cases, or the variance of effective clusters that gives the error of the mean."""
    if clusters is None:
        return _variance(values)
    grouped = in_clusters(values, clusters)
    return (grouped.error or 0.0) ** 2 * grouped.effective_count


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    """Return the variance, by n - 1; 0 for one value."""
    if len(values) < 2:
        return 0.0
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
