"""The rows of one run as a comparison needs them: one value a metric and case, the mean over the case's repeats."""

from __future__ import annotations

import copy
import math
from array import array
from collections import Counter
from typing import TYPE_CHECKING

from assay.comparison.model import PASS_RATE
from assay.model.answers.agent_response import AgentStatus
from assay.model.cluster_key import cluster_of
from assay.model.run_settings import MAX_ERRORS
from assay.statistics.paired import LARGEST

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray


_OWN = "\0"
"""The mark of the cluster of a case that shares nothing."""


class CaseScores:
    """Gathers the rows of a run, in any order.

    A row that a metric skips takes no part in the case's mean; a case without any value has none. A case in which a row
    has no value because of an error has none either: the other rows would be a choice of the better ones. Values of
    rows whose agent failed count as the metric counts them.

    Args:
        metrics: Names of the metrics.
        cluster: As in `ComparisonSettings`.
        max_agent_errors: Largest share of the rows whose agent may fail.
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
        repeat: int = 0,
        category: str = "",
        tags: Sequence[str] = (),
        content: bytes = b"",
        meets_filter: bool = True,
    ) -> None:
        """Take one row.

        Args:
            case_id: Its case.
            values: Its scores by metric; None, NaN, values beyond ±1e100 and metrics that are not compared count for
                nothing.
            passed: Its verdict.
            status: The agent's own word.
            errors: The metrics that have no value because of an error of agent, judge or metric.
            repeat: Which run of the case it is, from 0.
            category: The case's.
            tags: The case's.
            content: Digest of question and references, equal for equal ones; empty where it is not known.
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
        self.repeats = max(self.repeats, repeat + 1)
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
        """Return the same rows, their cases under the ids of another run; the cases keep their order.

        Args:
            case_ids: One a case, each another one.
        """
        renamed = copy.copy(self)
        renamed._own_ids = self.case_ids  # noqa: SLF001 - of this class
        renamed._places = {case_id: place for place, case_id in enumerate(case_ids)}  # noqa: SLF001 - likewise
        return renamed

    @property
    def is_matched_by_content(self) -> bool:
        """Whether the cases are under the ids of another run."""
        return self._own_ids is not None

    @property
    def own_ids(self) -> Sequence[str]:
        """The ids that the cases have in this run, in the order of `case_ids`."""
        return self.case_ids if self._own_ids is None else self._own_ids

    @property
    def case_ids(self) -> Sequence[str]:
        """The cases, in the order in which they came; the places of all other sequences."""
        return list(self._places)

    def place(self, case_id: str) -> int | None:
        """Return where a case stands; None for one that is not there."""
        return self._places.get(case_id)

    def places(self, case_ids: Sequence[str]) -> NDArray[np.intp]:
        """Return where cases stand; -1 for one that is not there."""
        import numpy as np

        find = self._places.get
        return np.fromiter((find(case_id, -1) for case_id in case_ids), dtype=np.intp, count=len(case_ids))

    def values(self, metric: str) -> NDArray[np.float64]:
        """Return the value of each case, NaN for one without; all NaN for a metric that the run does not have."""
        values = self.surviving(metric)
        values[self.error_rows(metric) > 0] = math.nan
        return values

    def surviving(self, metric: str) -> NDArray[np.float64]:
        """Return the mean of the values of each case, those of the rows that have one though another has an error."""
        return self._means(metric, 0.0, 0)

    def filled(self, metric: str, value: float) -> NDArray[np.float64]:
        """Return the value of each case with one in place of each that is missing because of an error."""
        return self._means(metric, value, self.error_rows(metric))

    def _means(self, metric: str, value: float, missing: NDArray[np.int_] | int) -> NDArray[np.float64]:
        import numpy as np

        means = np.full(len(self._places), math.nan)
        if metric in self._sums:
            counts = np.array(self._counts[metric]) + missing
            np.divide(np.array(self._sums[metric]) + value * missing, counts, out=means, where=counts > 0)
        return means

    def rows(self, metric: str | None = None) -> NDArray[np.int_]:
        """Return how many rows each case has or, of a metric, how many have a value or should have one."""
        import numpy as np

        if metric is None:
            return np.array(self._rows, dtype=int)
        return np.array(self._counts.get(metric, (0,) * len(self._places)), dtype=int) + self.error_rows(metric)

    def error_rows(self, metric: str | None = None) -> NDArray[np.int_]:
        """Return in how many rows of each case the agent failed or, of a metric, an error left no value."""
        import numpy as np

        if metric is None:
            return np.array(self._error_rows, dtype=int)
        counts = np.zeros(len(self._places), dtype=int)
        for place, count in self._missing.get(metric, {}).items():
            counts[place] = count
        return counts

    @property
    def has_clusters(self) -> bool:
        """Whether a case has what the cluster key names."""
        return any(map(is_shared, self.clusters))

    def has_values(self, metric: str) -> bool:
        """Whether a case has a value of a metric."""
        return any(self._counts.get(metric, ()))

    def total(self, metric: str) -> float | None:
        """Return the sum of a metric over all rows; None where no row has a value."""
        if not self.has_values(metric):
            return None
        return math.fsum(self._sums[metric])

    def is_binary(self, metric: str) -> bool:
        """Whether every value is 0 or 1 and no case has several: the metric is a rate of independent cases."""
        return self._is_binary.get(metric, False) and int(self.rows(metric).max(initial=0)) <= 1

    def meets_filter(self, place: int) -> bool:
        """Whether a row of a case meets the comparison's filter."""
        return bool(self._met[place])

    @property
    def met(self) -> NDArray[np.bool_]:
        """Of each case, whether a row of it meets the comparison's filter."""
        import numpy as np

        return np.array(self._met, dtype=bool)


def is_shared(cluster: str) -> bool:
    """Whether a cluster is one that a case shares with others, and not its own."""
    return not cluster.startswith(_OWN)


def own_or_shared(key: str, case_id: str, category: str, tags: Sequence[str]) -> str:
    """Return what a case shares with others; its own id, behind a mark, where it shares nothing."""
    return cluster_of(key, category, tags) or f"{_OWN}{case_id}"
