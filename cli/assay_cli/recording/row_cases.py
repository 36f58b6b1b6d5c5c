"""The cases that the rows of a run belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from assay.model.case import Case
    from assay.model.run import CaseResult


class RowCases:
    """Finds the cases that rows belong to, in one pass over the dataset.

    Args:
        cases: In order, as the rows are.
    """

    def __init__(self, cases: Iterable[Case]) -> None:
        self._cases = enumerate(cases)
        self._index = -1
        self._found: Case | None = None

    def of(self, row: CaseResult) -> Case | None:
        """Return the case of a row; None where the dataset no longer has it."""
        while self._index < row.case_index:
            self._index, self._found = next(self._cases, (row.case_index, None))
        return self._found if self._found is not None and self._found.case_id == row.case_id else None
