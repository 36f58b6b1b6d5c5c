"""Sequences that can also be indexed by a metric's name: the scores of a row, the metrics of a summary."""

from __future__ import annotations

from typing import Any, Protocol, SupportsIndex, TypeVar, overload


class _OfMetric(Protocol):
    @property
    def metric(self) -> str: ...


T_co = TypeVar("T_co", bound=_OfMetric, covariant=True)


class ByMetric(tuple[T_co, ...]):
    """A tuple in the spec's order that also accepts metric names as keys.

    Example:
        >>> result.metrics["exact_match"] is result.metrics[0]  # doctest: +SKIP
        True
    """

    __slots__ = ()

    @overload
    def __getitem__(self, key: SupportsIndex | str) -> T_co: ...

    @overload
    def __getitem__(self, key: slice) -> tuple[T_co, ...]: ...

    def __getitem__(self, key: Any) -> Any:
        """Return the entry of a metric, or at a position.

        Raises:
            KeyError: There is no such metric; the message names the existing ones.
        """
        if not isinstance(key, str):
            return super().__getitem__(key)
        for entry in self:
            if entry.metric == key:
                return entry
        raise KeyError(f"no metric {key!r}; there are: {', '.join(entry.metric for entry in self)}")

    def __contains__(self, key: object) -> bool:
        """Return whether an entry, or one for a metric name, is present."""
        return any(entry.metric == key for entry in self) if isinstance(key, str) else super().__contains__(key)
