"""The rows of a run for a comparison: one value per metric and case, the mean over the case's repeats."""

from __future__ import annotations

import copy
import math
from array import array
from collections import Counter
from typing import TYPE_CHECKING

from assay.comparison.model import PASS_RATE
from assay.model.answers.agent_response import AgentStatus
from assay.model.cluster_key import cluster_of
from assay.model.run_spec import MAX_ERRORS
from assay.statistics.paired import LARGEST

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray


_OWN = "\0"
"""The mark of clusters of a single case."""


class CaseScores:
    """Gathers the rows of a run, in any order.

    A row that a metric skips is not part of the case's mean; a case without any value has none. A case has no value
    either if an error left one of its rows without one: the mean of the other rows would favour the better ones. Rows
    whose agent failed count as the metric counts them.

    Args:
        metrics: Names of the metrics.
        cluster: As in `ComparisonSettings`.
        max_agent_errors: The largest share of rows whose agent may fail.
    """

    def __init__(self, metrics: Sequence[str], cluster: str = "", max_agent_errors: float = MAX_ERRORS) -> None:
        self.metrics = (PASS_RATE, *(name for name in metrics if name != PASS_RATE))
        self.max_agent_errors = max_agent_errors
        self._cluster = cluster
        self._places: dict[str, int] = {}
        self._sums = {name: array("d") for name in self.metrics}
        self._counts = {name: array("L") for name in self.metrics}
        self._missing: dict[str, Counter[int]] = {name: Counter() for name in self.metrics}
        self._is_binary = dict.fromkeys(self.metrics, True)
        self._rows = array("L")
        self._error_rows = array("L")
        self._met = bytearray()
        self.categories: list[str] = []
        self.clusters: list[str] = []
        self.contents: list[bytes] = []
        self._own_ids: Sequence[str] | None = None
        self.agent_errors = self.interrupted = self.row_count = self.repeats = 0

    def take(
        self,
        case_id: str,
        values: Mapping[str, float | None],
        *,
        passed: bool | None,
        status: AgentStatus = AgentStatus.SUCCESS,
        errors: Collection[str] = (),
        repeat: int = 1,
        category: str = "",
        tags: Sequence[str] = (),
        content: bytes = b"",
        meets_filter: bool = True,
    ) -> None:
        """Add a row.

        Args:
            case_id: Its case.
            values: Its scores by metric; None, NaN, values beyond ±1e100 and metrics that are not compared are
                ignored.
            passed: Its verdict.
            status: The status that the agent reported.
            errors: The metrics without a value because of an error of agent, judge or metric.
            repeat: The repeat, from 1.
            category: The category of the case.
            tags: The tags of the case.
            content: Digest of question and references, equal for equal contents; empty if unknown.
            meets_filter: Whether the row meets the comparison's filter.
        """
        place = self._places.get(case_id)
        if place is None:
            place = self._places[case_id] = len(self._places)
            for name in self.metrics:
                self._sums[name].append(0.0)
                self._counts[name].append(0)
            self._rows.append(0)
            self._error_rows.append(0)
            self._met.append(0)
            self.categories.append(category)
            self.clusters.append(own_or_shared(self._cluster, case_id, category, tags))
            self.contents.append(content)
        self.row_count += 1
        self._rows[place] += 1
        self.repeats = max(self.repeats, repeat)
        self._met[place] |= meets_filter
        if status.is_failed:
            self._error_rows[place] += 1
            self.agent_errors += 1
            self.interrupted += status is AgentStatus.INTERRUPTED
        if passed is not None:
            self._add(PASS_RATE, place, float(passed))
        elif status.is_failed or errors:
            self._missing[PASS_RATE][place] += 1
        for name in errors:
            if name in self._sums and name != PASS_RATE:
                self._missing[name][place] += 1
        for name, value in values.items():
            if value is not None and name in self._sums and name != PASS_RATE and abs(value) <= LARGEST:
                self._add(name, place, value)

    def _add(self, name: str, place: int, value: float) -> None:
        self._sums[name][place] += value
        self._counts[name][place] += 1
        if value not in (0.0, 1.0):
            self._is_binary[name] = False

    def renamed(self, case_ids: Sequence[str]) -> CaseScores:
        """Return the same rows with the case ids of another run, in the same order.

        Args:
            case_ids: A distinct id for each case.
        """
        renamed = copy.copy(self)
        renamed._own_ids = self.case_ids  # noqa: SLF001 - of this class
        renamed._places = {case_id: place for place, case_id in enumerate(case_ids)}  # noqa: SLF001 - likewise
        return renamed

    @property
    def is_matched_by_content(self) -> bool:
        """Whether the cases have the ids of another run."""
        return self._own_ids is not None

    @property
    def own_ids(self) -> Sequence[str]:
        """The ids of the cases in this run, in the order of `case_ids`."""
        return self.case_ids if self._own_ids is None else self._own_ids

    @property
    def case_ids(self) -> Sequence[str]:
        """The cases in the order of their first rows, which is the order of all other sequences."""
        return list(self._places)

    def place(self, case_id: str) -> int | None:
        """Return the place of a case; None for an unknown case."""
        return self._places.get(case_id)

    def places(self, case_ids: Sequence[str]) -> NDArray[np.intp]:
        """Return the places of cases; -1 for unknown cases."""
        import numpy as np

        find = self._places.get
        return np.fromiter((find(case_id, -1) for case_id in case_ids), dtype=np.intp, count=len(case_ids))

    def values(self, metric: str) -> NDArray[np.float64]:
        """Return the value of each case, NaN without a value; all NaN for a metric that the run lacks."""
        values = self.surviving(metric)
        values[self.error_rows(metric) > 0] = math.nan
        return values

    def surviving(self, metric: str) -> NDArray[np.float64]:
        """Return the mean of each case over the rows with a value, even if other rows have errors."""
        return self._means(metric, 0.0, 0)

    def filled(self, metric: str, value: float) -> NDArray[np.float64]:
        """Return the value of each case with a replacement for each value that an error left missing."""
        return self._means(metric, value, self.error_rows(metric))

    def _means(self, metric: str, value: float, missing: NDArray[np.int_] | int) -> NDArray[np.float64]:
        import numpy as np

        means = np.full(len(self._places), math.nan)
        if metric in self._sums:
            counts = np.array(self._counts[metric]) + missing
            np.divide(np.array(self._sums[metric]) + value * missing, counts, out=means, where=counts > 0)
        return means

    def rows(self, metric: str | None = None) -> NDArray[np.int_]:
        """Return the number of rows of each case or, for a metric, of rows with a value or an error."""
        import numpy as np

        if metric is None:
            return np.array(self._rows, dtype=int)
        return np.array(self._counts.get(metric, (0,) * len(self._places)), dtype=int) + self.error_rows(metric)

    def error_rows(self, metric: str | None = None) -> NDArray[np.int_]:
        """Return the number of rows of each case with an agent error or, for a metric, an error instead of a value."""
        import numpy as np

        if metric is None:
            return np.array(self._error_rows, dtype=int)
        counts = np.zeros(len(self._places), dtype=int)
        for place, count in self._missing.get(metric, {}).items():
            counts[place] = count
        return counts

    @property
    def has_clusters(self) -> bool:
        """Whether any case has the cluster key."""
        return any(map(is_shared, self.clusters))

    def has_values(self, metric: str) -> bool:
        """Whether any case has a value of a metric."""
        return any(self._counts.get(metric, ()))

    def total(self, metric: str) -> float | None:
        """Return the sum of a metric over all rows; None if no row has a value."""
        if not self.has_values(metric):
            return None
        return math.fsum(self._sums[metric])

    def is_binary(self, metric: str) -> bool:
        """Whether every value is 0 or 1 and no case has several, so that the metric is a rate of independent cases."""
        return self._is_binary.get(metric, False) and int(self.rows(metric).max(initial=0)) <= 1

    def meets_filter(self, place: int) -> bool:
        """Whether any row of a case meets the comparison's filter."""
        return bool(self._met[place])

    @property
    def met(self) -> NDArray[np.bool_]:
        """Whether any row meets the comparison's filter, for each case."""
        import numpy as np

        return np.array(self._met, dtype=bool)


def is_shared(cluster: str) -> bool:
    """Whether a cluster may be shared by several cases."""
    return not cluster.startswith(_OWN)


def own_or_shared(key: str, case_id: str, category: str, tags: Sequence[str]) -> str:
    """Return the cluster of a case; if it shares nothing, its own id behind a mark."""
    return cluster_of(key, category, tags) or f"{_OWN}{case_id}"
