"""Comparisons of runs for clients: figures, and pages of the compared cases."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from assay.comparison.case_list import CaseList, ComparedCasePage
from assay.comparison.cases import CaseScores
from assay.comparison.compare import (
    ComparedRun,
    compare_runs,
    flipped_ids,
    matched_runs,
    with_questions,
    without_rows,
)
from assay.comparison.facts import facts_of
from assay.comparison.joined import label_of
from assay.errors import InvalidInputError, OverloadedError
from assay.filters.row_text import parse_row_filter
from assay.model.limits import MAX_COMPARED_FIGURES, MAX_COMPARED_ROWS
from assay.reports.comparison.document.compared_run import content_of, implied_values
from assay.reports.document.document import head_document
from assay.storage.time_limits import time_limit
from assay.text.unsafe_text import json_text
from assay_orchestrator.store.rows import compared_rows

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    import sqlalchemy as sa

    from assay.comparison.case_list import CaseQuery, ComparedCase
    from assay.comparison.model import Comparison, ComparisonSettings
    from assay.filters.row_filter import RowFilter
    from assay.model.run import Run
    from assay.model.scope import Scope
    from assay.storage.database import Database
    from assay_orchestrator.store.page_tokens import PageTokens

"""Maximum rows of all runs in a comparison."""
_MOST_WAITING = 8
_MOST_KEPT_ROWS = 250_000
_FILTER_LIMIT_S = 10.0
_FILTER_REMEDY = "search for a longer or rarer text, or compare without a filter"
_TEXT_CHARS = 4_000
_PAGE_CHARS = 700_000  # up to four bytes each
_PAGE_VALUES = 20_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Read:
    """Runs with their rows, and the place of each case in its dataset."""

    runs: list[ComparedRun]
    indexes: list[list[int]]


@dataclass(slots=True)
class _Queue:
    """The comparisons of one team."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    count: int = 0


class Comparisons:
    """Compares stored runs by their scores: one comparison per team at a time, off the event loop.

    If they are few, the rows of the last comparison stay in memory for the pages that follow it.

    Args:
        database: The store.
        tokens: Creates and reads page tokens.
    """

    def __init__(self, database: Database, tokens: PageTokens) -> None:
        self._database = database
        self._tokens = tokens
        self._queues: dict[str, _Queue] = {}
        self._kept: tuple[tuple[object, ...], _Read] | None = None

    async def compare(self, scope: Scope, runs: Sequence[Run], settings: ComparisonSettings) -> Comparison:
        """Return the figures of runs; the first run is the baseline.

        Args:
            scope: The scope of the reader.
            runs: The runs, with their summaries.
            settings: How to compare them, checked.

        Raises:
            NotFoundError: A run was deleted.
            InvalidInputError: The runs cannot be compared.
            OverloadedError: Too many comparisons of the team wait.
            DeadlineError: The filter took too long.
        """
        check_size(runs)

        async def work() -> Comparison:
            read = await self._read(scope, runs, settings)
            comparison = await asyncio.to_thread(compare_runs, read.runs, settings)
            positions = _positions(read.runs[0], read.indexes[0], flipped_ids(comparison))
            questions = await self._database.read(lambda c: _questions(c, scope, runs[0].run_id, positions))
            return with_questions(comparison, questions)

        return await self._alone(scope.team, work)

    async def list_cases(
        self,
        scope: Scope,
        runs: Sequence[Run],
        settings: ComparisonSettings,
        query: CaseQuery,
        *,
        page_size: int,
        page_token: str,
        with_answers: bool,
    ) -> ComparedCasePage:
        """Return a page of compared cases.

        Raises:
            InvalidInputError: The token belongs to another query, or rows of the runs have changed since.
            InvalidInputError: As `compare`, or a run lacks a metric of the query.
            NotFoundError, OverloadedError, DeadlineError: As `compare`.
        """
        check_size(runs)
        bound_to = ("ListComparedCases", json.dumps([_identity(runs, settings), dataclasses.astuple(query)]))
        position = await self._tokens.read(scope, bound_to, page_token, (int,))
        begin = int(position[0]) if position is not None else 0

        def listed(read: _Read) -> tuple[list[ComparedCase], int]:
            case_list = CaseList(read.runs, settings)
            case_list.check(query)
            places = case_list.places(query)
            size = min(page_size, max(1, _PAGE_VALUES // (len(runs) * max(2, len(query.metrics)))))
            return case_list.cases(places[begin : begin + size].tolist(), query), len(places)

        async def work() -> tuple[list[ComparedCase], int]:
            read = await self._read(scope, runs, settings)
            cases, total = await asyncio.to_thread(listed, read)
            if with_answers and cases:
                ids = [case.case_id for case in cases]
                positions = [
                    _positions(run, indexes, ids) for run, indexes in zip(read.runs, read.indexes, strict=True)
                ]
                cases = await self._database.read(lambda c: _with_texts(c, scope, runs, cases, positions))
            return cases, total

        cases, total = await self._alone(scope.team, work)
        end = begin + len(cases)
        token = await self._tokens.make(scope, bound_to, (end,)) if cases and end < total else ""
        return ComparedCasePage(cases, token, total)

    async def _read(self, scope: Scope, runs: Sequence[Run], settings: ComparisonSettings) -> _Read:
        key = (scope, json.dumps(_identity(runs, settings)))
        if self._kept is not None and self._kept[0] == key:
            return self._kept[1]
        self._kept = None  # frees memory: two would not fit at a time
        row_filter = None
        if settings.where:
            metrics = dict.fromkeys(metric.name for run in runs for metric in run.spec.metrics)
            row_filter = parse_row_filter(settings.where, where="settings.filter", metrics=metrics)
        # Equal datasets ask equal questions.
        with_contents = len({run.dataset.dataset_id for run in runs}) > 1
        fresh = _Read([], [])
        for run in runs:
            read_run = partial(
                _read_run,
                scope=scope,
                run=run,
                cluster=settings.cluster,
                row_filter=row_filter,
                with_contents=with_contents,
            )
            compared, indexes = await self._database.read(read_run)
            fresh.runs.append(compared)
            fresh.indexes.append(indexes)
        fresh.runs[:] = matched_runs(fresh.runs)
        if sum(run.counts.finished_count for run in runs) <= _MOST_KEPT_ROWS:
            self._kept = (key, fresh)
        return fresh

    async def _alone(self, team: str, work: Callable[[], Awaitable[T]]) -> T:
        """Run a team's comparisons one after the other, each to its end even if its caller has left."""
        queue = self._queues.setdefault(team, _Queue())
        if queue.count > _MOST_WAITING:
            raise OverloadedError(
                f"{_MOST_WAITING} comparisons wait for a running one: try again in a few seconds",
                retry_after_s=5.0,
            )
        queue.count += 1

        def left() -> None:
            queue.count -= 1
            if not queue.count and self._queues.get(team) is queue:
                del self._queues[team]

        try:
            await queue.lock.acquire()
        except BaseException:  # cancelled while it waited, so it holds nothing: raised again
            left()
            raise

        def ended(task: asyncio.Future[T]) -> None:
            queue.lock.release()
            left()
            if not task.cancelled():
                task.exception()  # its caller may have left

        task = asyncio.ensure_future(work())
        task.add_done_callback(ended)
        return await asyncio.shield(task)


def _positions(run: ComparedRun, indexes: Sequence[int], case_ids: Collection[str]) -> dict[str, int]:
    """Return the positions of some cases in a run's dataset, for the cases it has."""
    ids = list(case_ids)
    places = run.cases.places(ids).tolist()
    return {case_id: indexes[place] for case_id, place in zip(ids, places, strict=True) if place >= 0}


def _identity(runs: Sequence[Run], settings: ComparisonSettings) -> list[object]:
    """Return a value that changes with the comparison; removing rows stores no event."""
    versions = [[run.run_id, run.last_sequence, run.counts.finished_count] for run in runs]
    return [versions, dataclasses.astuple(settings)]


def check_size(runs: Sequence[Run]) -> None:
    """Check that runs have rows, and that their comparison is neither too long nor too large for a message.

    Raises:
        InvalidInputError: A run has no rows, or together they have too many rows or metrics.
    """
    for run in runs:
        if run.summary is None:
            raise without_rows(run.run_id)
    total = sum(run.counts.finished_count for run in runs)
    if total > MAX_COMPARED_ROWS:
        raise InvalidInputError(
            f"the runs have {total:,} rows, more than the {MAX_COMPARED_ROWS:,} that are compared at once: compare "
            "fewer runs"
        )
    metrics = {metric.name for run in runs for metric in run.spec.metrics}
    figures = math.comb(len(runs), 2) * len(metrics)
    if figures > MAX_COMPARED_FIGURES:
        raise InvalidInputError(
            f"{len(runs)} runs with {len(metrics)} metrics have {figures:,} pairs of figures, more than the "
            f"{MAX_COMPARED_FIGURES:,} that fit in a message: compare fewer runs at once"
        )


def _read_run(
    connection: sa.Connection,
    *,
    scope: Scope,
    run: Run,
    cluster: str,
    row_filter: RowFilter | None,
    with_contents: bool,
) -> tuple[ComparedRun, list[int]]:
    """Return a run in the form for comparisons, and the position of each of its cases."""
    # As from its report: the compared values must not depend on where the run was read.
    facts = facts_of(json.loads(json_text(head_document(run, None))))
    configured = {metric.name for metric in run.spec.metrics}
    implied = [name for name in facts.metrics if name not in configured]
    cases, indexes = CaseScores(tuple(facts.metrics), cluster or facts.cluster, facts.max_agent_errors), list[int]()
    meeting: set[tuple[int, int]] | None = None
    if row_filter is not None:
        with time_limit(connection, _FILTER_LIMIT_S, _FILTER_REMEDY):
            meeting = compared_rows.find_keys(connection, scope, run.run_id, row_filter)
    with_usage = bool({"tokens", "cost"} & {*implied})
    for page in compared_rows.read_scored(connection, scope, run.run_id, with_usage=with_usage):
        turns = {}
        if with_contents:
            positions = sorted({row.case_index for row in page})
            turns = compared_rows.read_last_turns(connection, scope, run.run_id, positions)
        for row in page:
            values = {**row.values}
            errors = [name for name, value in values.items() if value is None]
            if implied:
                response = {"usage": row.usage}
                computed = implied_values({"status": row.status, "latency_ms": row.latency_ms, "response": response})
                values |= {name: computed.get(name) for name in implied}
                errors += [name for name in implied if row.status.is_failed and values[name] is None]
            if not indexes or row.case_index != indexes[-1]:
                indexes.append(row.case_index)
            cases.take(
                row.case_id,
                values,
                passed=row.passed,
                status=row.status,
                errors=errors,
                repeat=row.repeat,
                category=row.category,
                tags=row.tags,
                content=content_of(*turns[row.case_index]) if with_contents else b"",
                meets_filter=meeting is None or (row.case_index, row.repeat) in meeting,
            )
    return ComparedRun(facts, cases), indexes


def _with_texts(
    connection: sa.Connection,
    scope: Scope,
    runs: Sequence[Run],
    cases: Sequence[ComparedCase],
    positions: Sequence[dict[str, int]],
) -> list[ComparedCase]:
    """Return the first cases, at least one, that fit in a message with excerpts of question and answers."""
    answers = {
        label_of(at): _answers(connection, scope, run.run_id, positions[at])
        for at, run in enumerate(runs)
        if positions[at]
    }
    last_turns = compared_rows.read_last_turns(connection, scope, runs[0].run_id, sorted(positions[0].values()))
    page: list[ComparedCase] = []
    size = 0
    for case in cases:
        variants = [
            dataclasses.replace(variant, answer=answers[variant.label][case.case_id]) for variant in case.variants
        ]
        question = last_turns[positions[0][case.case_id]][0][:_TEXT_CHARS]
        size += len(question) + sum(len(variant.answer or "") for variant in variants)
        if page and size > _PAGE_CHARS:
            break
        page.append(dataclasses.replace(case, variants=tuple(variants), question=question))
    return page


def _questions(connection: sa.Connection, scope: Scope, run_id: str, positions: dict[str, int]) -> dict[str, str]:
    """Return the last user message in some cases of a run; there may be none."""
    if not positions:
        return {}
    turns = compared_rows.read_last_turns(connection, scope, run_id, sorted(positions.values()))
    return {case_id: turns[at][0] for case_id, at in positions.items()}


def _answers(connection: sa.Connection, scope: Scope, run_id: str, positions: dict[str, int]) -> dict[str, str]:
    """Return an excerpt of the answer to each case; empty without an answer."""
    texts = compared_rows.read_first_answers(connection, scope, run_id, sorted(positions.values()))
    return {case_id: texts.get(at, "")[:_TEXT_CHARS] for case_id, at in positions.items()}
