"""Pages of a run's rows, and single cases, for clients."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from assay.filters.pages import CaseDetail, RowFacets
from assay.filters.row_text import parse_row_query
from assay.storage.time_limits import time_limit
from assay_orchestrator.store import history
from assay_orchestrator.store.rows import found_rows
from assay_orchestrator.store.rows.found_rows import Position, RowQuery
from assay_orchestrator.store.runs import datasets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import sqlalchemy as sa

    from assay.model.run import Run
    from assay.model.scope import Scope
    from assay.storage.database import Database
    from assay.v1 import row_pb2 as pb
    from assay_orchestrator.store.page_tokens import PageTokens

_LIMIT_S = 10.0
_REMEDY = "search for a longer or rarer text, add conditions, or leave out counts and order"

T = TypeVar("T")
_Found: TypeAlias = "tuple[list[pb.RowResult], Position | None, int | None, RowFacets | None]"


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A client's request for a page.

    Args:
        filter_text: The filter of the rows.
        order_text: The sort order.
        page_size: Maximum number of rows.
        page_token: Where the page begins; empty for the first.
        with_answers: Whether the rows include answers, inputs and references.
        with_total: Whether to count all matching rows.
        with_facets: Whether to count them by outcome, category, tag and repeat.
    """

    filter_text: str
    order_text: str
    page_size: int
    page_token: str
    with_answers: bool
    with_total: bool
    with_facets: bool


@dataclass(frozen=True, slots=True)
class RowPage:
    """A page.

    Args:
        results: The messages of its rows, in the requested order.
        next_page_token: Continues the same query; empty on the last page.
        total_count: The number of matching rows; None if not requested.
        facets: Counts of these rows; None if not requested.
        is_of_cases: Whether the filter names the cases of the rows.
    """

    results: Sequence[pb.RowResult]
    next_page_token: str
    total_count: int | None
    facets: RowFacets | None
    is_of_cases: bool


class RowPages:
    """Reads pages.

    A query that reads more than its page runs alone, and not for long, so that readers stay free for other calls.

    Args:
        database: The store.
        tokens: Creates and reads page tokens.
    """

    def __init__(self, database: Database, tokens: PageTokens) -> None:
        self._database = database
        self._tokens = tokens
        self._scan = asyncio.Semaphore(1)

    async def read(self, scope: Scope, run: Run, request: PageRequest) -> RowPage:
        """Return a page of the rows of a run.

        Raises:
            NotFoundError: The run was deleted.
            InvalidInputError: Filter or order are wrong, or name a metric that the run does not have; holds every
                problem.
            InvalidInputError: The page token belongs to another query.
            DeadlineError: The query took too long.
        """
        query = _query(run, request.filter_text, request.order_text)
        bound_to = ("ListRows", run.run_id, request.filter_text, request.order_text)
        after = await self._position(scope, bound_to, query, request.page_token)

        def read(connection: sa.Connection) -> _Found:
            size, with_answers = request.page_size, request.with_answers
            page, end = history.read_page(connection, scope, run.run_id, query, after, size, with_answers=with_answers)
            facets = found_rows.count_facets(connection, scope, run.run_id, query) if request.with_facets else None
            total = sum(facets.outcomes.values()) if facets is not None else None
            if request.with_total and total is None:
                total = found_rows.count_rows(connection, scope, run.run_id, query)
            return page, end, total, facets

        is_scan = not query.is_plain or request.with_total or request.with_facets
        page, end, total, facets = await self._read(read, is_scan=is_scan)
        token = await self._tokens.make(scope, bound_to, _place(end, query)) if end is not None else ""
        return RowPage(page, token, total if request.with_total else None, facets, bool(query.row_filter.case_ids))

    async def read_case(self, scope: Scope, run: Run, case_id: str, filter_text: str, order_text: str) -> CaseDetail:
        """Return a case of a run without its rows, and its neighbours under a filter and an order.

        Raises:
            NotFoundError: The run was deleted, or its dataset lacks the case.
            InvalidInputError: As `read`.
            DeadlineError: The query took too long.
        """
        query = _query(run, filter_text, order_text)

        def read(connection: sa.Connection) -> CaseDetail:
            case_index = history.find_case(connection, scope, run.run_id, case_id)
            stored = datasets.read_case(connection, run.run_id, case_index)
            before, after = found_rows.find_neighbours(connection, scope, run.run_id, query, case_index)
            return CaseDetail(stored.case, case_index, (), before, after, stored.problem)

        return await self._read(read, is_scan=not query.is_plain)

    async def _position(
        self, scope: Scope, bound_to: tuple[str, ...], query: RowQuery, page_token: str
    ) -> Position | None:
        if query.is_plain:
            key = await self._tokens.read(scope, bound_to, page_token, (int, int))
            return Position(None, (int(key[0]), int(key[1]))) if key is not None else None
        position = await self._tokens.read(scope, bound_to, page_token, (str, int, int))
        return (
            Position(json.loads(str(position[0])), (int(position[1]), int(position[2])))
            if position is not None
            else None
        )

    async def _read(self, read: Callable[[sa.Connection], T], *, is_scan: bool) -> T:
        if not is_scan:
            return await self._database.read(read)

        def limited(connection: sa.Connection) -> T:
            with time_limit(connection, _LIMIT_S, _REMEDY):
                return read(connection)

        async with self._scan:
            return await self._database.read(limited)


def _place(end: Position, query: RowQuery) -> tuple[str | int, ...]:
    return end.key if query.is_plain else (json.dumps(end.value, ensure_ascii=False), *end.key)


def _query(run: Run, filter_text: str, order_text: str) -> RowQuery:
    """Return the query of a request.

    Raises:
        InvalidInputError: Filter or order are wrong, or name a metric that the run does not have; holds every problem.
    """
    metrics = [metric.name for metric in run.spec.metrics]
    return RowQuery(*parse_row_query(filter_text, order_text, names=("filter", "order_by"), metrics=metrics))
