"""The list of compared cases: their values in each run, which are worse or better, the worst first."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from assay.comparison.compare import common_metrics, matched_runs, primary_metric
from assay.comparison.joined import JoinedRuns, label_of, metric_facts, turns
from assay.comparison.model import PASS_RATE
from assay.errors import InvalidInputError, Problem
from assay.parsing.names import unknown_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from assay.comparison.compare import ComparedRun
    from assay.comparison.model import ComparisonSettings


class CaseChange(StrEnum):
    """The change of a case against the first run."""

    WORSE = "worse"
    BETTER = "better"
    SAME = "same"


class CaseOrder(StrEnum):
    """An order of compared cases; "-" puts the largest first."""

    DATASET = "dataset"
    DATASET_REVERSED = "-dataset"
    SMALLEST_LOSS = "loss"
    LARGEST_LOSS = "-loss"


@dataclass(frozen=True, slots=True)
class CaseQuery:
    """A query for compared cases.

    Args:
        metrics: The metrics whose values are returned; empty for the pass rate and the primary metric.
        change_by: The metric by which cases are worse or better; empty for the verdict and, if that is equal, the
            primary metric.
        change: Only cases with this change in any run after the first; unchanged cases are neither worse nor better
            in any run. None for all.
        order: The order: by the loss against the first run, or by dataset.
    """

    metrics: tuple[str, ...] = ()
    change_by: str = ""
    change: CaseChange | None = None
    order: CaseOrder = CaseOrder.DATASET


@dataclass(frozen=True, slots=True)
class CaseValue:
    """The value of a metric on a case, the mean over its repeats.

    Args:
        metric: The metric, or `PASS_RATE`.
        value: None if no row of the case has a value, or if a row lacks one because of an error.
        difference: The value less that of the first run; None for the first run, or without one of the values.
    """

    metric: str
    value: float | None = None
    difference: float | None = None


@dataclass(frozen=True, slots=True)
class CaseVariant:
    """A case in one run.

    Args:
        label: The label of the run.
        run_id: The run.
        values: The values of the requested metrics.
        change: The change against the first run; None for the first run itself.
        answer: The beginning of the answer of its first repeat; None if answers were not requested.
    """

    label: str
    run_id: str
    values: tuple[CaseValue, ...]
    change: CaseChange | None = None
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class ComparedCase:
    """A case that the first run shares with another run.

    Args:
        case_id: The case.
        category: Its category; empty if it has none.
        variants: The first run and the runs compared with it.
        question: The beginning of the last question; None if answers were not requested.
    """

    case_id: str
    category: str
    variants: tuple[CaseVariant, ...]
    question: str | None = None


@dataclass(frozen=True, slots=True)
class ComparedCasePage:
    """A page of compared cases.

    Args:
        cases: The cases.
        next_page_token: Empty on the last page.
        total_count: The number of cases on all pages.
    """

    cases: list[ComparedCase]
    next_page_token: str
    total_count: int


class CaseList:
    """The compared cases of some runs, of which the first is the baseline.

    Args:
        runs: Two or more.
        settings: The settings of the comparison.

    Raises:
        InvalidInputError: No run has the primary metric.
    """

    def __init__(self, runs: Sequence[ComparedRun], settings: ComparisonSettings) -> None:
        runs = matched_runs(runs)
        self._metrics = common_metrics(runs)
        self.primary = primary_metric(runs, self._metrics, settings)
        self._run_ids = [run.facts.run_id for run in runs]
        self._cases = cases = [run.cases for run in runs]
        self._joined = [JoinedRuns(0, at, cases, settings) for at in range(1, len(cases))]
        self._ids = cases[0].case_ids

    def check(self, query: CaseQuery) -> None:
        """Check that the runs have the metrics of a query.

        Raises:
            InvalidInputError: A run lacks a metric; the error lists every problem.
        """
        known = (PASS_RATE, *self._metrics)
        given = [("change_by", query.change_by), *((f"metrics[{at}]", name) for at, name in enumerate(query.metrics))]
        problems = [
            Problem(unknown_name("metric", name, known), field) for field, name in given if name and name not in known
        ]
        if problems:
            raise InvalidInputError(problems)

    def places(self, query: CaseQuery) -> NDArray[np.intp]:
        """Return the places in the first run of the cases that meet a query, in its order."""
        import numpy as np

        count = len(self._ids)
        listed, worse, better = (np.zeros(count, dtype=bool) for _ in range(3))
        # The largest loss over all runs: first by the verdict, then by the drop of the metric.
        loss = [np.full(count, math.inf), np.full(count, math.inf)]
        for joined in self._joined:
            here = joined.here
            turned, depth = self._turns(joined, query.change_by)
            listed[here] = True
            worse[here] |= (turned < 0) | ((turned == 0) & (depth < 0))
            better[here] |= (turned > 0) | ((turned == 0) & (depth > 0))
            is_larger = (turned < loss[0][here]) | ((turned == loss[0][here]) & (depth < loss[1][here]))
            loss[0][here[is_larger]] = turned[is_larger]
            loss[1][here[is_larger]] = depth[is_larger]
        match query.change:
            case CaseChange.WORSE:
                listed &= worse
            case CaseChange.BETTER:
                listed &= better
            case CaseChange.SAME:
                listed &= ~(worse | better)
        places = np.flatnonzero(listed)
        if query.order is CaseOrder.DATASET_REVERSED:
            return places[::-1]
        if query.order is not CaseOrder.DATASET:
            sign = 1 if query.order is CaseOrder.LARGEST_LOSS else -1
            places = places[np.lexsort((places, sign * loss[1][places], sign * loss[0][places]))]
        return places

    def cases(self, places: Sequence[int], query: CaseQuery) -> list[ComparedCase]:
        """Return the cases at some places of the first run."""
        import numpy as np

        names = query.metrics or tuple(dict.fromkeys((PASS_RATE, self.primary)))
        columns = [{name: run.values(name) for name in names} for run in self._cases]
        there = [{place: place for place in places}]
        changes: list[dict[int, CaseChange]] = [{}]
        for joined in self._joined:
            kept = np.flatnonzero(np.isin(joined.here, places))
            turned, depth = (gains[kept] for gains in self._turns(joined, query.change_by))
            here = joined.here[kept].tolist()
            there.append(dict(zip(here, joined.there[kept].tolist(), strict=True)))
            changes.append(dict(zip(here, map(_change, turned.tolist(), depth.tolist()), strict=True)))

        def variant(at: int, place: int) -> CaseVariant:
            values = []
            for name in names:
                value, baseline = float(columns[at][name][there[at][place]]), float(columns[0][name][place])
                difference = value - baseline
                has_difference = at > 0 and not math.isnan(difference)
                values.append(
                    CaseValue(name, None if math.isnan(value) else value, difference if has_difference else None)
                )
            return CaseVariant(label_of(at), self._run_ids[at], tuple(values), changes[at].get(place))

        return [
            ComparedCase(
                self._ids[place],
                self._cases[0].categories[place],
                tuple(variant(at, place) for at in range(len(self._cases)) if place in there[at]),
            )
            for place in places
        ]

    def _turns(self, joined: JoinedRuns, change_by: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the gain of the verdict and of the metric of each case."""
        import numpy as np

        better = metric_facts(change_by or self.primary, self._metrics).higher_is_better
        depth = turns(joined.columns(change_by or self.primary), higher_is_better=better)
        if change_by:
            return np.zeros(len(depth)), depth
        return turns(joined.columns(PASS_RATE), higher_is_better=True), depth


def _change(turned: float, depth: float) -> CaseChange:
    by = turned or depth
    return CaseChange.SAME if not by else CaseChange.BETTER if by > 0 else CaseChange.WORSE
