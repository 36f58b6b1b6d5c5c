"""The current run, case and team, as fields of log lines."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NOTHING: Mapping[str, str] = {}
_fields: ContextVar[Mapping[str, str]] = ContextVar("fields of log lines", default=_NOTHING)


def fields() -> Mapping[str, str]:
    """Return the fields of the current task, by name."""
    return _fields.get()


def add_fields(**values: str) -> None:
    """Add fields to the current task and the tasks that it starts; an empty value adds nothing."""
    _fields.set({**_fields.get(), **{name: value for name, value in values.items() if value}})


@contextmanager
def added_fields(**values: str) -> Iterator[None]:
    """Add fields inside the block."""
    before = _fields.set({**_fields.get(), **{name: value for name, value in values.items() if value}})
    try:
        yield
    finally:
        _fields.reset(before)
