"""How many cases and repeats a comparison needs, from the variance of earlier runs, and what that costs.

The variance of a case's difference between two variants is

    2 · between · (1 - correlation) + 2 · within / repeats

where `between` is the variance of the cases' means and `within` that of the runs of one case. Two earlier runs over the
same cases measure the whole of it, with `within / repeats` of each; one run needs an assumption about the correlation,
which is part of the plan.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assay.errors import InvalidInputError
from assay.statistics.paired import LARGEST
from assay.statistics.power import (
    cases_for_rates,
    cases_for_scores,
    detectable_rate_difference,
    detectable_score_difference,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

DEFAULT_CORRELATION = 0.5
"""How alike the cases' means of two variants are assumed to be where one run alone is known."""
REPEATS = (1, 2, 3, 5)


@dataclass(frozen=True, slots=True)
class RowCost:
    """What a row of the earlier run took.

    Args:
        agent_calls: Calls of the agent; more than one a row in conversations.
        judge_calls: Calls of the judge; verdicts from the cache are not among them.
        tokens: Of the agent; None where they were not counted.
        cost_usd: Of agent and judge; None where neither has a price.
        time_s: Wall time of a further row, in seconds, without the loading of models; None where it is not known.
    """

    agent_calls: float
    judge_calls: float
    tokens: float | None
    cost_usd: float | None
    time_s: float | None


@dataclass(frozen=True, slots=True)
class Variation:
    """How a metric varies in earlier runs.

    Args:
        metric: Its name.
        n: Cases with a value; with two runs, in both.
        mean: Mean over these cases, of the first run.
        is_rate: Whether every row is 0 or 1.
        variance: Of the cases' means in the first run.
        within: Of the runs of one case; None where each was run once.
        correlation: Of the cases' means between two variants, assumed; None where two runs measured the difference.
        spread: Variance of a case's difference between the two earlier runs; None with one run.
        repeats: Runs of each case in the first run.
        noise: The part of `spread` that comes from the runs of one case, each earlier run with its own repeats; None
            with one run, or where each case was run once.
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

    def difference_variance(self, repeats: int) -> float | None:
        """Return the variance of a case's difference with so many runs a case; None where it is not known."""
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
        """The share of the squared standard error that comes from one case's runs; None without repeats."""
        if self.within is None:
            return None
        if self.spread is not None and self.noise is not None:
            return min(1.0, self.noise / self.spread) if self.spread else None
        return min(1.0, self.within / self.repeats / self.variance) if self.variance else None


@dataclass(frozen=True, slots=True)
class PlannedSize:
    """What one number of repeats needs.

    Args:
        repeats: Runs of each case.
        cases: Cases that detect the difference; None where that is not known.
        rows: Of both variants together.
        detectable: The smallest difference that the earlier run's cases would detect; None where none is.
        agent_calls: Of both variants.
        judge_calls: Of both variants.
        tokens: Of the agents; None where unknown.
        cost_usd: None where unknown.
        time_s: If the rows are as fast as those of the earlier run, models loaded; None where unknown.
    """

    repeats: int
    cases: int | None
    rows: int | None
    detectable: float | None
    agent_calls: int | None = None
    judge_calls: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    time_s: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """How large a comparison of two variants must be.

    Args:
        variation: How the metric varies.
        difference: To be detected.
        alpha: Level of the test.
        power: Chance to detect it.
        sizes: By number of repeats.
        notes: Sentences on what the figures rest on.
    """

    variation: Variation
    difference: float
    alpha: float
    power: float
    sizes: tuple[PlannedSize, ...]
    notes: tuple[str, ...] = field(default=())


def variation_of(
    metric: str,
    rows: Iterable[tuple[str, float | None]],
    other: Iterable[tuple[str, float | None]] | None = None,
    *,
    correlation: float = DEFAULT_CORRELATION,
) -> Variation:
    """Return how a metric varies over the rows of one or two earlier runs.

    Args:
        metric: Its name.
        rows: Case id and value of each row; rows without a value, or with one beyond ±1e100, count for nothing.
        other: Those of a second run over the same cases.
        correlation: Assumed where there is no second run.

    Raises:
        InvalidInputError: Fewer than two cases have a value, or the runs share fewer than two.
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
    means = [[_mean(values) for values in run.values()] for run in runs]
    known = [one for run in runs if (one := _within(run)) is not None]
    within = _mean(known) if known else None
    return Variation(
        metric=metric,
        n=len(means[0]),
        mean=_mean(means[0]),
        is_rate=all(value in (0.0, 1.0) for run in runs for values in run.values() for value in values),
        variance=_variance(means[0]),
        within=within,
        correlation=correlation if other is None else None,
        spread=None if other is None else _variance([b - a for a, b in zip(*means, strict=True)]),
        repeats=max(map(len, runs[0].values())),
        noise=None if other is None or within is None else math.fsum(_noise(run, within) for run in runs),
    )


def plan(variation: Variation, difference: float, cost: RowCost, *, alpha: float = 0.05, power: float = 0.8) -> Plan:
    """Return how many cases detect a difference between two variants, and what they cost, by number of repeats."""
    sizes = tuple(_size(variation, difference, cost, repeats, alpha, power) for repeats in REPEATS)
    return Plan(variation, difference, alpha, power, sizes, tuple(_notes(variation)))


def _size(
    variation: Variation, difference: float, cost: RowCost, repeats: int, alpha: float, power: float
) -> PlannedSize:
    spread = variation.difference_variance(repeats)
    if spread is None:
        return PlannedSize(repeats, None, None, None)
    if variation.is_rate and repeats == 1:
        disagreeing = min(1.0, spread)  # of 0 and 1: the mean of the squared differences, about their variance
        needed = cases_for_rates(difference, max(disagreeing, abs(difference)), alpha=alpha, power=power)
        detectable = detectable_rate_difference(variation.n, disagreeing, alpha=alpha, power=power)
    else:
        needed = cases_for_scores(difference, math.sqrt(spread), alpha=alpha, power=power) if spread else 2
        detectable = detectable_score_difference(variation.n, math.sqrt(spread), alpha=alpha, power=power)
    if needed is None:
        return PlannedSize(repeats, None, None, detectable)
    cases = max(needed, 2)
    rows = 2 * cases * repeats
    return PlannedSize(
        repeats,
        cases,
        rows,
        detectable,
        agent_calls=math.ceil(rows * cost.agent_calls),
        judge_calls=math.ceil(rows * cost.judge_calls),
        tokens=None if cost.tokens is None else math.ceil(rows * cost.tokens),
        cost_usd=None if cost.cost_usd is None else rows * cost.cost_usd,
        time_s=None if cost.time_s is None else rows * cost.time_s,
    )


def _notes(variation: Variation) -> list[str]:
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
    if variation.n < 30:
        notes.append(f"{variation.n} cases are few to learn a variance from: take the sizes as rough")
    return notes


def _by_case(rows: Iterable[tuple[str, float | None]]) -> Mapping[str, list[float]]:
    found: dict[str, list[float]] = defaultdict(list)
    for case_id, value in rows:
        if value is not None and abs(value) <= LARGEST:
            found[case_id].append(value)
    return found


def _within(run: Mapping[str, Sequence[float]]) -> float | None:
    """Return the mean variance of the runs of one case; None where each was run once."""
    repeated = [values for values in run.values() if len(values) > 1]
    return _mean([_variance(values) for values in repeated]) if repeated else None


def _noise(run: Mapping[str, Sequence[float]], within: float) -> float:
    """Return how much the runs of one case add to the variance of a case's mean.

    Args:
        run: The values of each case.
        within: Their variance where the run itself does not show it: each case was run once.
    """
    own = _within(run)
    return (within if own is None else own) * _mean([1 / len(values) for values in run.values()])


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _variance(values: Sequence[float]) -> float:
    """Return the variance, by n - 1; 0 for one value."""
    if len(values) < 2:
        return 0.0
    mean = _mean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
