"""The rows of one run as a comparison needs them: one value a metric and case, the mean over the case's repeats."""

from __future__ import annotations

import copy
import math
from array import array
from typing import TYPE_CHECKING

from assay.comparison.model import PASS_RATE
from assay.statistics.paired import LARGEST

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray


_OWN = "\0"
"""The mark of the cluster of a case that shares nothing."""


class CaseScores:
    """Gathers the rows of a run, in any order.

    A value that a row does not have takes no part in the case's mean; a case without any has none. Values of rows
    whose agent failed count as the metric counts them.

    Args:
        metrics: Names of the metrics.
        cluster: As in `ComparisonSettings`.
    """

    def __init__(self, metrics: Sequence[str], cluster: str = "") -> None:
        self.metrics = (PASS_RATE, *(name for name in metrics if name != PASS_RATE))
        self._cluster = cluster
        self._places: dict[str, int] = {}
        self._sums = {name: array("d") for name in self.metrics}
        self._counts = {name: array("L") for name in self.metrics}
        self._is_binary = dict.fromkeys(self.metrics, True)
        self._has_error = bytearray()
        self._met = bytearray()
        self.categories: list[str] = []
        self.clusters: list[str] = []
        self.contents: list[bytes] = []
        self._own_ids: Sequence[str] | None = None
        self.agent_errors = self.row_count = self.repeats = 0

    def take(
        self,
        case_id: str,
        values: Mapping[str, float | None],
        *,
        passed: bool | None,
        is_error: bool = False,
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
            is_error: Whether the agent failed.
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
            self._has_error.append(0)
            self._met.append(0)
            self.categories.append(category)
            self.clusters.append(_cluster(self._cluster, case_id, category, tags))
            self.contents.append(content)
        self.row_count += 1
        self.repeats = max(self.repeats, repeat + 1)
        self._met[place] |= meets_filter
        if is_error:
            self._has_error[place] = 1
            self.agent_errors += 1
        if passed is not None:
            self._add(PASS_RATE, place, float(passed))
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
        found = copy.copy(self)
        found._own_ids = self.case_ids  # noqa: SLF001 - of this class
        found._places = {case_id: place for place, case_id in enumerate(case_ids)}  # noqa: SLF001 - likewise
        return found

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
        import numpy as np

        if metric not in self._sums:
            return np.full(len(self._places), math.nan)
        sums, counts = np.array(self._sums[metric]), np.array(self._counts[metric])
        means = np.full(len(sums), math.nan)
        np.divide(sums, counts, out=means, where=counts > 0)
        return means

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
        return self._is_binary.get(metric, False) and max(self._counts[metric], default=0) <= 1

    def has_error(self, place: int) -> bool:
        """Whether the agent failed in a run of a case."""
        return bool(self._has_error[place])

    def meets_filter(self, place: int) -> bool:
        """Whether a row of a case meets the comparison's filter."""
        return bool(self._met[place])

    @property
    def errors(self) -> NDArray[np.bool_]:
        """Of each case, whether the agent failed in a run of it."""
        import numpy as np

        return np.array(self._has_error, dtype=bool)

    @property
    def met(self) -> NDArray[np.bool_]:
        """Of each case, whether a row of it meets the comparison's filter."""
        import numpy as np

        return np.array(self._met, dtype=bool)


def is_shared(cluster: str) -> bool:
    """Whether a cluster is one that a case shares with others, and not its own."""
    return not cluster.startswith(_OWN)


def _cluster(key: str, case_id: str, category: str, tags: Sequence[str]) -> str:
    """Return what a case shares with others; its own id, behind a mark, where it shares nothing."""
    if key == "category" and category:
        return category
    if key.startswith("tag:"):
        prefix = key.removeprefix("tag:") + ":"
        for tag in tags:
            if tag.startswith(prefix):
                return tag
    return f"{_OWN}{case_id}"
