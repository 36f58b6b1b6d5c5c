"""Runs joined by case: the common cases of two runs or of all runs, and the cases that flipped."""

from __future__ import annotations

import math
import string
from collections import Counter
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING

from assay.comparison.cases import is_shared
from assay.comparison.facts import MetricFacts
from assay.comparison.metric_pairs import PairedValues
from assay.comparison.model import PASS_RATE, ErrorComparison, FlippedCase, Matching, PairComparison, Side
from assay.statistics.paired import differences, mcnemar_p
from assay.statistics.thresholds import meets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from assay.comparison.cases import CaseScores
    from assay.comparison.metric_pairs import NoVerdict
    from assay.comparison.model import ComparisonSettings, MetricComparison, RunRef


_PULL = (
    4  # a surplus of √n / 4 errors on a run's worst rows raises the rate of false "better" from 2.5 % to at most 7 %
)


def compared_errors(
    a: NDArray[np.int_],
    b: NDArray[np.int_],
    rows: Sequence[tuple[int, float]],
    *,
    alpha: float,
) -> ErrorComparison | None:
    """Return the comparison of the errors of two runs; None if there are none.

    Args:
        a: The number of rows with an error of each case in A.
        b: The number of rows with an error of the same cases in B.
        rows: For A and B, the number of rows, and the share of errors from which they may move a difference.
        alpha: Level of the test.
    """
    if not a.any() and not b.any():
        return None
    counts = int(a.sum()), int(b.sum())
    a_only, b_only = int(((a > 0) & (b == 0)).sum()), int(((a == 0) & (b > 0)).sum())
    p, _ = mcnemar_p(a_only, b_only)
    many = any(count and meets(count, share * total) for count, (total, share) in zip(counts, rows, strict=True))
    return ErrorComparison(
        *counts,
        int((a > 0).sum()),
        int((b > 0).sum()),
        a_only,
        b_only,
        p,
        worse=Side.NEITHER if p >= alpha else Side.B if b_only > a_only else Side.A,
        differ=p < alpha or many or abs(a_only - b_only) > math.sqrt(len(a)) / _PULL,
    )


def label_of(index: int) -> str:
    """Return the letter of a run."""
    return string.ascii_uppercase[index]


def metric_facts(name: str, metrics: Mapping[str, MetricFacts]) -> MetricFacts:
    """Return the facts of a metric; the pass rate is no metric of a run."""
    return metrics.get(name) or MetricFacts(name, name, "%", scale=(0.0, 1.0))


class JoinedRuns:
    """Two runs joined by case; equal cases have equal ids, as `matched` returns them.

    Args:
        a: The place of the first run.
        b: The place of the second run.
        runs: The rows of all runs.
        settings: The settings of the comparison.
    """

    def __init__(self, a: int, b: int, runs: Sequence[CaseScores], settings: ComparisonSettings) -> None:
        import numpy as np

        self.a, self.b = a, b
        self._one, self._other = first, other = runs[a], runs[b]
        there = other.places(first.case_ids)
        here = np.flatnonzero(there >= 0)
        there = there[here]
        changed = _differ(first.contents, other.contents, here, there)
        kept = ~changed
        if settings.where:
            kept &= first.met[here] | other.met[there]
        self.common_case_count, self.changed_case_count = len(here), int(changed.sum())
        self.a_only_case_count = len(first.case_ids) - self.common_case_count
        self.b_only_case_count = len(other.case_ids) - self.common_case_count
        self.overlap = self.common_case_count / min(len(first.case_ids), len(other.case_ids))
        self.here, self.there = here[kept], there[kept]
        self._alpha = settings.alpha
        self._decides = settings.all_pairs or a == 0
        self._clusters = list(map(self._cluster, self.here, self.there)) if settings.cluster else None

    def _cluster(self, here: int, there: int) -> str:
        """Return the cluster of a case in A, or in B if it has none in A."""
        own = self._one.clusters[here]
        return own if is_shared(own) else self._other.clusters[there]

    def values(self, facts: MetricFacts, is_primary: bool, withheld: NoVerdict | None) -> PairedValues:
        """Return the values of a metric over the compared cases.

        Args:
            facts: The metric.
            is_primary: Whether it decides.
            withheld: Why there is no verdict; None if there may be one.
        """
        import numpy as np

        a, b = self.columns(facts.name)
        known = (a == a) & (b == b)
        errors = self.errors(facts.name)
        values = PairedValues(
            metric=facts.name,
            is_primary=is_primary,
            higher_is_better=facts.higher_is_better,
            is_binary=self._one.is_binary(facts.name) and self._other.is_binary(facts.name),
            bounds=facts.bounds,
            a=a[known],
            b=b[known],
            dropped_case_count=len(a) - int(known.sum()),
            clusters=None if self._clusters is None else list(compress(self._clusters, known)),
            errors=errors,
            decides=self._decides,
            withheld=withheld,
            is_direction_assumed=facts.is_direction_assumed,
            unit=facts.unit,
            is_implied=facts.is_implied,
        )
        clean = ((self._one.error_rows()[self.here] + self._other.error_rows()[self.there]) == 0)[known]
        if not clean.all():
            values = replace(values, without_errors=np.flatnonzero(clean))
        if errors is not None and errors.differ and values.has_scale:
            values = replace(values, lowest=self._filled(values, *facts.bounds[::-1]))
            values = replace(values, highest=self._filled(values, *facts.bounds))
        return values

    def _filled(self, values: PairedValues, a: float, b: float) -> PairedValues:
        """Return values in which a given value of A and of B replaces those that errors left missing."""
        first = self._one.filled(values.metric, a)[self.here]
        other = self._other.filled(values.metric, b)[self.there]
        known = (first == first) & (other == other)
        return replace(
            values,
            is_binary=values.is_binary and values.bounds == (0.0, 1.0),  # not ratings that are 1 by chance
            a=first[known],
            b=other[known],
            dropped_case_count=len(first) - int(known.sum()),
            clusters=None if self._clusters is None else list(compress(self._clusters, known)),
            without_errors=None,
        )

    def errors(self, metric: str | None = None) -> ErrorComparison | None:
        """Return the rows whose agent failed or, for a metric, the rows that an error left without a value."""
        sides = ((self._one, self.here), (self._other, self.there))
        a, b = (run.error_rows(metric)[places] for run, places in sides)
        rows = [(int(run.rows(metric)[places].sum()), run.max_agent_errors) for run, places in sides]
        return compared_errors(a, b, rows, alpha=self._alpha)

    def columns(self, metric: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the values of both runs over the compared cases, NaN without a value."""
        return self._one.values(metric)[self.here], self._other.values(metric)[self.there]

    def comparison(
        self, a: RunRef, b: RunRef, metrics: Sequence[MetricComparison], flips: Flips, *, most_flipped: int
    ) -> PairComparison:
        """Return the pair with its metrics and flipped cases.

        Args:
            a: The first run.
            b: The second run.
            metrics: The metrics of both.
            flips: The flipped cases.
            most_flipped: The largest number of flipped cases to return.
        """
        wins = Counter(metric.classical.winner for metric in metrics if metric.classical is not None)
        by_content = self._one.is_matched_by_content or self._other.is_matched_by_content
        margin = wins[Side.A] - wins[Side.B]
        return PairComparison(
            a=a,
            b=b,
            common_case_count=self.common_case_count,
            a_only_case_count=self.a_only_case_count,
            b_only_case_count=self.b_only_case_count,
            changed_case_count=self.changed_case_count,
            overlap=self.overlap,
            metrics=tuple(metrics),
            classical_winner=Side.A if margin > 0 else Side.B if margin < 0 else Side.NEITHER,
            matched_by=Matching.CONTENT if by_content else Matching.ID,
            lost_case_count=flips.count_of(-1),
            won_case_count=flips.count_of(1),
            errors=self.errors(),
            flipped_cases=flips.worst(most_flipped),
        )

    def flips(self, primary: str, metrics: Mapping[str, MetricFacts]) -> Flips:
        """Return the cases whose verdict differs or, with equal verdicts, whose primary metric differs."""
        verdicts, values = self.columns(PASS_RATE), self.columns(primary)
        turned = turns(verdicts, higher_is_better=True)
        better = metric_facts(primary, metrics).higher_is_better
        depth = turns(values, higher_is_better=better)
        return Flips(self._one, self._other, self.here, self.there, primary, verdicts, values, turned, depth)


@dataclass(frozen=True, eq=False, slots=True)
class Flips:
    """The cases that came out differently in two runs.

    Args:
        cases: The rows of A.
        others: The rows of B.
        here: Places of the compared cases in A.
        there: Their places in B.
        primary: The primary metric.
        verdicts: The share of each case's rows that passed, in A and B.
        values: The primary metric in A and B.
        turned: The gain of B's verdict, case by case; 0 without one of the verdicts.
        depth: The gain of B's primary metric likewise.
    """

    cases: CaseScores
    others: CaseScores
    here: NDArray[np.intp]
    there: NDArray[np.intp]
    primary: str
    verdicts: tuple[NDArray[np.float64], NDArray[np.float64]]
    values: tuple[NDArray[np.float64], NDArray[np.float64]]
    turned: NDArray[np.float64]
    depth: NDArray[np.float64]

    def count_of(self, sign: int) -> int:
        """Return the number of cases that are worse in B, or better.

        Args:
            sign: -1 for worse, 1 for better.
        """
        turned, depth = sign * self.turned, sign * self.depth
        return int(((turned > 0) | ((turned == 0) & (depth > 0))).sum())

    def worst(self, count: int) -> tuple[FlippedCase, ...]:
        """Return at most this many, worst for B first; of more cases, three quarters are the worst, then the best.

        Among equal cases, those with the first ids are returned.
        """
        import numpy as np

        flipped = np.flatnonzero((self.turned != 0) | (self.depth != 0))
        order = np.lexsort((self.depth[flipped], self.turned[flipped]))
        if len(order) > count:
            best = count // 4
            most = self._in_order(self._up_to(flipped, order[count - best - 1], 1))[: count - best]
            rest = self._in_order(np.setdiff1d(self._up_to(flipped, order[-best], -1), most)) if best else []
            chosen = [*most, *rest[len(rest) - best :]]
        else:
            chosen = self._in_order(flipped)
        ids, others = self.cases.own_ids, self.others.own_ids
        return tuple(self._case(at, ids, others) for at in chosen)

    def _up_to(self, flipped: NDArray[np.intp], last: int, sign: int) -> NDArray[np.intp]:
        """Return the cases from the worst (with sign -1, from the best) up to a rank, including equals of the last."""
        turned, depth = sign * self.turned[flipped], sign * self.depth[flipped]
        beyond = (turned > turned[last]) | ((turned == turned[last]) & (depth > depth[last]))
        kept: NDArray[np.intp] = flipped[~beyond]
        return kept

    def _in_order(self, places: NDArray[np.intp]) -> list[int]:
        ids = self.cases.case_ids
        return sorted(places.tolist(), key=lambda at: (self.turned[at], self.depth[at], ids[int(self.here[at])]))

    def _case(self, at: int, ids: Sequence[str], others: Sequence[str]) -> FlippedCase:
        by_verdict = bool(self.turned[at])
        metric, (a, b) = (PASS_RATE, self.verdicts) if by_verdict else (self.primary, self.values)
        place, other = int(self.here[at]), others[int(self.there[at])]
        other = "" if other == ids[place] else other
        return FlippedCase(
            ids[place], self.cases.categories[place], metric, float(a[at]), float(b[at]), case_id_b=other
        )


class CompleteCases:
    """The cases that every run has, with the same question and references.

    Args:
        runs: The rows of all runs.
        settings: How they are compared.
    """

    def __init__(self, runs: Sequence[CaseScores], settings: ComparisonSettings) -> None:
        import numpy as np

        self._runs = runs
        places = np.array([run.places(runs[0].case_ids) for run in runs])
        places = places[:, (places >= 0).all(axis=0)]
        kept = np.ones(places.shape[1], dtype=bool)
        for first, first_run in enumerate(runs):
            for second in range(first + 1, len(runs)):
                kept &= ~_differ(first_run.contents, runs[second].contents, places[first], places[second])
        if settings.where:
            kept &= np.any([run.met[at] for run, at in zip(runs, places, strict=True)], axis=0)
        self._places = places[:, kept]

    def rows(self, metric: str) -> NDArray[np.float64]:
        """Return the values of a metric, a row per case and a column per run; only cases with a value in all runs."""
        import numpy as np

        columns = [run.values(metric)[at] for run, at in zip(self._runs, self._places, strict=True)]
        values: NDArray[np.float64] = np.array(columns).T
        return values[~np.isnan(values).any(axis=1)]


def turns(values: tuple[NDArray[np.float64], NDArray[np.float64]], *, higher_is_better: bool) -> NDArray[np.float64]:
    """Return the gain of the second value of each case; 0 without one of the values."""
    import numpy as np

    difference = differences(*values) if higher_is_better else -differences(*values)
    return np.where(np.isnan(difference), 0.0, difference)


def _differ(
    first: Sequence[bytes], other: Sequence[bytes], here: NDArray[np.intp], there: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Return for each pair of places whether question or references differ; unknown contents count as equal."""
    import numpy as np

    if not any(first) or not any(other):
        return np.zeros(len(here), dtype=bool)
    pairs = ((first[a], other[b]) for a, b in zip(here.tolist(), there.tolist(), strict=True))
    return np.fromiter((bool(a and b and a != b) for a, b in pairs), dtype=bool, count=len(here))
