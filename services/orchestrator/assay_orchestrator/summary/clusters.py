"""The dependent cases of a run: cases that share its cluster key, or copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.model.cluster_key import cluster_of
from assay.model.dependent_cases import COPIES, DependentCases
from assay_orchestrator.store.runs import datasets

if TYPE_CHECKING:
    from collections.abc import Mapping

    import sqlalchemy as sa

    from assay.model.run import RowResult, Run


class CaseClusters:
    """Numbers the clusters of a run's cases, and counts their cases; rows come in dataset order.

    Args:
        key: What cases share, as in the run's settings; empty for copies.
        copies: The group number of each case that has copies, by the case's index.
        is_repeated: Whether a case may have several rows.
    """

    def __init__(self, key: str, copies: Mapping[int, int], *, is_repeated: bool) -> None:
        self._key = key
        self._copies = copies
        self._is_repeated = is_repeated
        self._numbers: dict[str, int] = {}
        self._sizes: dict[int, int] = {}
        self._cases = self._alone = 0
        self._index: int | None = None
        self.depend = bool(key or copies)

    def of(self, row: RowResult) -> int | None:
        """Return the number of a row's cluster, as `ClusteredMean` takes it, and count its case."""
        index = row.case_index
        if not self.depend:
            return -1 - index if self._is_repeated else None
        number = self._shared(row)
        if index != self._index:
            self._index = index
            self._cases += 1
            if number is None:
                self._alone += 1
            else:
                self._sizes[number] = self._sizes.get(number, 0) + 1
        return self._own(index) if number is None else number

    def within(self, kind: str, name: str, row: RowResult, cluster: int | None) -> int | None:
        """Return the number of a row's cluster among the rows of one category or tag.

        If the group is the cluster itself, its cases are what varies: they are then as independent as without a key.

        Args:
            kind: "category" or "tag".
            name: The category, or the tag.
            row: The row.
            cluster: The result of `of` for it.
        """
        key = self._key
        if not key or (key != kind if kind == "category" else cluster_of(key, "", (name,)) != name):
            return cluster
        copy = self._copies.get(row.case_index)
        return self._own(row.case_index) if copy is None else copy

    def _shared(self, row: RowResult) -> int | None:
        if not self._key:
            return self._copies.get(row.case_index)
        name = cluster_of(self._key, row.category, row.tags)
        return self._numbers.setdefault(name, len(self._numbers)) if name else None

    def _own(self, index: int) -> int | None:
        return -1 - index if self._is_repeated else None

    def result(self, effective_cases: float | None) -> DependentCases | None:
        """Return the dependent cases; None if all cases are independent.

        Args:
            effective_cases: How many independent cases are as informative about the pass rate.
        """
        if not self._cases or (not self._key and max(self._sizes.values(), default=0) < 2):
            return None
        squares = self._alone + sum(size * size for size in self._sizes.values())
        return DependentCases(
            key=self._key or COPIES,
            case_count=self._cases,
            cluster_count=self._alone + len(self._sizes),
            effective_clusters=self._cases**2 / squares,
            largest_share=max(self._sizes.values(), default=1) / self._cases,
            effective_cases=effective_cases,
        )


def copies_of(connection: sa.Connection, run: Run) -> dict[int, int]:
    """Return the groups of copies among a run's cases, as `datasets.find_copies`.

    Nothing is read if the client counted none.
    """
    reading = run.spec.dataset
    return {} if reading is not None and not reading.copy_count else datasets.find_copies(connection, run.run_id)
