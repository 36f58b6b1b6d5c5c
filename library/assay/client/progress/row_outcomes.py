"""Counts of finished, passed and failed rows, from the events of a watch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.model.run import RowResult

_NONE, _PASSED, _FAILED, _UNDECIDED = range(4)


class RowOutcomes:
    """Counts every row once, although a watch may repeat or replace rows. Uses a byte of memory per row.

    Args:
        repeats: Number of repeats per case.
    """

    def __init__(self, repeats: int) -> None:
        self._repeats = repeats
        self._outcomes = bytearray()
        self._counts = [0, 0, 0, 0]

    @property
    def done(self) -> int:
        """Number of finished rows."""
        return sum(self._counts[_PASSED:])

    @property
    def passed(self) -> int:
        """Number of passed rows."""
        return self._counts[_PASSED]

    @property
    def failed(self) -> int:
        """Number of failed rows."""
        return self._counts[_FAILED]

    def take(self, row: RowResult) -> bool:
        """Add a row; return whether it is new rather than a repetition or replacement."""
        place = row.case_index * self._repeats + row.repeat - 1
        if place >= len(self._outcomes):
            self._outcomes.extend(bytes(place + 1 - len(self._outcomes)))
        before = self._outcomes[place]
        outcome = _UNDECIDED if row.passed is None else _PASSED if row.passed else _FAILED
        self._outcomes[place] = outcome
        self._counts[outcome] += 1
        self._counts[before] -= 1
        return before == _NONE
