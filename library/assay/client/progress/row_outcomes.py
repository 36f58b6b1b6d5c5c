"""How many rows of a run are finished, passed and failed, by the rows that its watch brought."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.model.run import CaseResult

_NONE, _PASSED, _FAILED, _UNDECIDED = range(4)


class RowOutcomes:
    """Counts each row once: a watch may bring a row again, or the row that replaces it. Takes a byte of memory a row.

    Args:
        repeats: How often each case is run.
    """

    def __init__(self, repeats: int) -> None:
        self._repeats = repeats
        self._outcomes = bytearray()
        self._counts = [0, 0, 0, 0]

    @property
    def done(self) -> int:
        """Rows that are finished."""
        return sum(self._counts[_PASSED:])

    @property
    def passed(self) -> int:
        """Rows that passed."""
        return self._counts[_PASSED]

    @property
    def failed(self) -> int:
        """Rows that failed."""
        return self._counts[_FAILED]

    def take(self, row: CaseResult) -> bool:
        """Take a row; return whether it is the first of its case and repeat."""
        place = row.case_index * self._repeats + row.repeat_index
        if place >= len(self._outcomes):
            self._outcomes.extend(bytes(place + 1 - len(self._outcomes)))
        before = self._outcomes[place]
        outcome = _UNDECIDED if row.passed is None else _PASSED if row.passed else _FAILED
        self._outcomes[place] = outcome
        self._counts[outcome] += 1
        self._counts[before] -= 1
        return before == _NONE
