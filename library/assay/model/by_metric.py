"""Sequences that are read by a metric's name too: the scores of a row, the metrics of a summary."""

from __future__ import annotations

from typing import Any, Protocol, SupportsIndex, TypeVar, overload


class _OfMetric(Protocol):
    @property
    def metric(self) -> str: ...


T_co = TypeVar("T_co", bound=_OfMetric, covariant=True)


class ByMetric(tuple[T_co, ...]):
    """A tuple in the spec's order, whose entries are also found by the name of their metric.

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
        """Return the entry of a metric, or that at a position.

        Raises:
            KeyError: There is none of that metric; names those that there are.
        """
        if not isinstance(key, str):
            return super().__getitem__(key)
        for entry in self:
            if entry.metric == key:
                return entry
        raise KeyError(f"no metric {key!r}; there are: {', '.join(entry.metric for entry in self)}")

    def __contains__(self, key: object) -> bool:
        """Return whether there is an entry, or one of the metric of that name."""
        return any(entry.metric == key for entry in self) if isinstance(key, str) else super().__contains__(key)
