"""What budgets need of the database, and the error of one that is used up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    import sqlalchemy as sa

T = TypeVar("T")


class BudgetStore(Protocol):
    """The database as a run uses it."""

    async def write(self, change: Callable[[sa.Connection], T]) -> T:
        """Make a change as soon as it can be stored."""
        ...

    async def write_once(self, change: Callable[[sa.Connection], T]) -> T:
        """Make a change, or fail at once."""
        ...


class BudgetExhaustedError(Exception):
    """The call is not to be made: the run is being paused, as its team has too little left or for another reason."""
