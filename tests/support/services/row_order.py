"""Sorts rows in Python, as a reference for the order of the database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.filters.matching import metric_value
from assay.filters.row_filter import RowKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from assay.filters.row_filter import RowOrder
    from assay.model.run import RowResult


def sort_rows(rows: Iterable[RowResult], order: RowOrder) -> list[RowResult]:
    """Return rows in an order; rows without a value come last, equal rows stay in dataset order."""
    placed = sorted(rows, key=lambda row: (row.case_index, row.repeat))
    if order.key is RowKey.DATASET:
        placed.sort(key=lambda row: -row.case_index if order.descending else row.case_index)
        return placed
    valued: list[Any] = [(value, row) for row in placed if (value := _sort_value(row, order)) is not None]
    valued.sort(key=lambda pair: pair[0], reverse=order.descending)
    return [row for _, row in valued] + [row for row in placed if _sort_value(row, order) is None]


def _sort_value(row: RowResult, order: RowOrder) -> float | str | None:
    if order.key is RowKey.CASE:
        return row.case_id
    return row.latency_ms if order.key is RowKey.LATENCY else metric_value(row, order.metric)
