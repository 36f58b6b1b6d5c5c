"""Filtered and sorted rows of a run: pages, counts, and the neighbours of a case."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from assay.filters.pages import RowFacets
from assay.filters.row_filter import DATASET_ORDER, EVERY_ROW, RowKey, RowOutcome
from assay_orchestrator.store import schema
from assay_orchestrator.store.rows import results
from assay_orchestrator.store.rows.row_conditions import OUTCOME, RowConditions
from assay_orchestrator.store.runs import runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.filters.row_filter import RowFilter, RowOrder
    from assay.model.run import RowResult
    from assay.model.scope import Scope

MAX_FACET_NAMES = 100
"""Maximum number of categories and of tags that are counted separately."""

_ROWS = schema.results


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a row in an order: its sort value, then its place in the dataset."""

    value: float | str | None
    key: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RowQuery:
    """A query for rows of a run.

    Args:
        row_filter: The filter.
        order: The sort order.
    """

    row_filter: RowFilter = EVERY_ROW
    order: RowOrder = DATASET_ORDER

    @property
    def is_plain(self) -> bool:
        """Whether the key alone selects the rows, so that no other rows are read."""
        return self.row_filter == EVERY_ROW and self.order == DATASET_ORDER

    @property
    def is_by_metric_alone(self) -> bool:
        """Whether the query returns all rows of the run, sorted by a metric: its values alone select them."""
        return self.row_filter == EVERY_ROW and self.order.key is RowKey.METRIC


def find_rows(
    connection: sa.Connection, scope: Scope, run_id: str, query: RowQuery, after: Position | None, count: int
) -> list[tuple[RowResult, Position]]:
    """Return up to `count` rows after a position, with their own positions and without answers.

    Raises:
        NotFoundError: The scope cannot reach the run, or it was deleted.
    """
    runs.require_run(connection, scope, run_id)
    if query.is_plain:
        return _plain(connection, run_id, after, count)
    conditions = RowConditions(connection, run_id)
    keys: Sequence[Any]
    if query.is_by_metric_alone:
        keys = _by_metric(connection, conditions, query.order, after, count)
    else:
        value, met = conditions.sort_value(query.order), conditions.met_by(query.row_filter)
        keys = connection.execute(_sorted(_ROWS, value, met, query.order, after).limit(count)).all()
    positions = {(row[0], row[1]): row[2] for row in keys}
    rows = results.read_rows(connection, run_id, list(positions))
    return [(rows[key], Position(value, key)) for key, value in positions.items()]


def _by_metric(
    connection: sa.Connection, conditions: RowConditions, order: RowOrder, after: Position | None, count: int
) -> Sequence[Any]:
    """Return case, repeat and value of rows of the run; rows without a value come last."""
    values, every_row = schema.score_values.c, conditions.met_by(EVERY_ROW)
    has_value = [values.run_id == conditions.run_id, values.metric == order.metric]
    keys: list[Any] = []
    if after is None or after.value is not None:
        keys += connection.execute(_sorted(schema.score_values, values.value, has_value, order, after).limit(count))
        after = None
    # Usually every row has a value: counting both takes less time than searching for rows without.
    if len(keys) < count and _count(connection, every_row) > _count(connection, has_value):
        key, is_missing = (_ROWS.c.case_index, _ROWS.c.repeat), conditions.sort_value(order).is_(None)
        missing = sa.select(*key, sa.null()).where(*every_row, is_missing).order_by(*key)
        if after is not None:
            missing = missing.where(_is_later(key, after))
        keys += connection.execute(missing.limit(count - len(keys)))
    return keys


def _sorted(
    table: sa.Table,
    value: sa.ColumnElement[Any],
    met: Sequence[sa.ColumnElement[bool]],
    order: RowOrder,
    after: Position | None,
) -> sa.Select[Any]:
    """Return the sorted query for case, repeat and value of entries that meet the conditions."""
    key = table.c.case_index, table.c.repeat
    query: sa.Select[Any] = sa.select(*key, value.label("sorted_by")).where(*met)
    if after is not None:
        query = query.where(_follows(value, key, after, descending=order.descending))
    return query.order_by(*_ordered(value, key, descending=order.descending))


def count_rows(connection: sa.Connection, scope: Scope, run_id: str, query: RowQuery) -> int:
    """Count the rows of a query.

    Raises:
        NotFoundError: The scope cannot reach the run, or it was deleted.
    """
    runs.require_run(connection, scope, run_id)
    return _count(connection, RowConditions(connection, run_id).met_by(query.row_filter))


def _count(connection: sa.Connection, met: Sequence[sa.ColumnElement[bool]]) -> int:
    return connection.execute(sa.select(sa.func.count()).where(*met)).scalar_one()


def count_facets(connection: sa.Connection, scope: Scope, run_id: str, query: RowQuery) -> RowFacets:
    """Count the rows of a query by outcome, category, tag and repeat.

    Raises:
        NotFoundError: The scope cannot reach the run, or it was deleted.
    """
    runs.require_run(connection, scope, run_id)
    groups = (OUTCOME.label("outcome"), _ROWS.c.category, _ROWS.c.tags_json, _ROWS.c.repeat)
    grouped = sa.select(*groups, sa.func.count()).where(*RowConditions(connection, run_id).met_by(query.row_filter))
    outcomes, categories, tags, repeats = Counter[str](), Counter[str](), Counter[str](), Counter[int]()
    # By position: PostgreSQL would take the outcome's parameters for those of another expression.
    for outcome, category, tags_json, repeat, count in connection.execute(grouped.group_by(*map(sa.text, "1234"))):
        outcomes[outcome] += count
        categories[category] += count
        repeats[repeat] += count
        for tag in set(json.loads(tags_json)):
            tags[tag] += count
    return RowFacets(
        outcomes={outcome: outcomes[outcome] for outcome in RowOutcome if outcome in outcomes},
        categories=_most_frequent(categories),
        tags=_most_frequent(tags),
        repeats=dict(sorted(repeats.items())),
        omitted_category_count=max(0, len(categories) - MAX_FACET_NAMES),
        omitted_tag_count=max(0, len(tags) - MAX_FACET_NAMES),
    )


def find_neighbours(
    connection: sa.Connection, scope: Scope, run_id: str, query: RowQuery, case_index: int
) -> tuple[str, str]:
    """Return the ids of the cases before and after a case; empty at an end.

    A case is placed at its first row that matches the filter. The case itself is placed at its own first row, even if
    that does not match; without rows it comes last, in dataset order at its own place.

    Raises:
        NotFoundError: The scope cannot reach the run, or it was deleted.
    """
    runs.require_run(connection, scope, run_id)
    conditions = RowConditions(connection, run_id)
    value, key = conditions.sort_value(query.order), _ROWS.c.case_index
    by_case = sa.select(key, _ROWS.c.case_id, value.label("sorted_by"))
    own = by_case.where(_ROWS.c.run_id == run_id, key == case_index)
    others = by_case.where(*conditions.met_by(query.row_filter), key != case_index)
    if query.order.key is RowKey.DATASET:
        position = Position(case_index, (case_index,))
    else:
        first = sa.func.max(value) if query.order.descending else sa.func.min(value)
        own = own.with_only_columns(first.label("sorted_by"))
        position = Position(connection.execute(own).scalar_one(), (case_index,))
        grouped = others.with_only_columns(key, sa.func.min(_ROWS.c.case_id).label("case_id"), first.label("sorted_by"))
        others = grouped.group_by(key)
    before, after = (
        _neighbour(connection, others.subquery(), position, query.order, is_next=is_next) for is_next in (False, True)
    )
    return before, after


def _neighbour(
    connection: sa.Connection, cases: sa.Subquery, position: Position, order: RowOrder, *, is_next: bool
) -> str:
    columns = (cases.c.case_index,)
    value = columns[0] if order.key is RowKey.DATASET else cases.c.sorted_by
    after = _follows(value, columns, position, descending=order.descending)
    placed = _ordered(value, columns, descending=order.descending, is_reversed=not is_next)
    # Rows that do not follow precede: the case itself is not among them.
    query = sa.select(cases.c.case_id).where(after if is_next else ~after).order_by(*placed).limit(1)
    return connection.execute(query).scalar_one_or_none() or ""


def _plain(
    connection: sa.Connection, run_id: str, after: Position | None, count: int
) -> list[tuple[RowResult, Position]]:
    case_index, repeat = after.key if after is not None else (-1, -1)
    rows = results.read_in_order(connection, run_id, (case_index, repeat), count)
    return [(row, Position(row.case_index, (row.case_index, row.repeat))) for row in rows]


def _follows(
    value: sa.ColumnElement[Any], columns: Sequence[sa.ColumnElement[int]], after: Position, *, descending: bool
) -> sa.ColumnElement[bool]:
    """Return whether a row follows a position; never NULL, so that the condition can be negated."""
    later = _is_later(columns, after)
    if value is columns[0] and not descending:  # the order of the primary key
        return later
    if after.value is None:
        return sa.and_(value.is_(None), later)
    bound = sa.literal(after.value, value.type)
    beyond = value < bound if descending else value > bound
    return sa.or_(value.is_(None), beyond, sa.and_(value == bound, later))


def _is_later(columns: Sequence[sa.ColumnElement[int]], after: Position) -> sa.ColumnElement[bool]:
    return sa.tuple_(*columns) > sa.tuple_(*(sa.literal(key, sa.BigInteger) for key in after.key))


def _ordered(
    value: sa.ColumnElement[Any],
    columns: Sequence[sa.ColumnElement[int]],
    *,
    descending: bool,
    is_reversed: bool = False,
) -> list[sa.ColumnElement[Any]]:
    def placed(term: sa.ColumnElement[Any], down: bool) -> sa.UnaryExpression[Any]:
        return term.desc() if down is not is_reversed else term.asc()

    if value is columns[0]:  # the position in the dataset, which orders the primary key
        return [placed(value, descending), *(placed(column, down=False) for column in columns[1:])]
    first = placed(value, descending)
    in_place = first.nulls_first() if is_reversed else first.nulls_last()
    return [in_place, *(placed(column, down=False) for column in columns)]


def _most_frequent(counts: Counter[str]) -> dict[str, int]:
    ordered = sorted(counts.items(), key=lambda counted: (-counted[1], counted[0]))
    return dict(ordered[:MAX_FACET_NAMES])
