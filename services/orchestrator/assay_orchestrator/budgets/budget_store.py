"""The database interface of budgets, and the error of an exhausted budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    import sqlalchemy as sa

T = TypeVar("T")


class BudgetStore(Protocol):
    """The database for the use of a run."""

    async def write(self, change: Callable[[sa.Connection], T]) -> T:
        """Apply a change as soon as it can be stored."""

    async def write_once(self, change: Callable[[sa.Connection], T]) -> T:
        """Apply a change, or fail at once."""


class BudgetExhaustedError(Exception):
    """The call must not go out: the run is being paused, because its team has too little left or otherwise."""
