"""Lists of runs: filtered, sorted, page by page."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.filters.matching import meets
from assay.filters.run_filter import EVERY_RUN, NEWEST_FIRST, RunKey
from assay.model.run import RunState
from assay.model.views import RunView
from assay.storage.time_limits import time_limit
from assay.v1 import run_pb2 as pb
from assay.wire.pages import first_page
from assay.wire.run import RUN
from assay_orchestrator.runs.catalogue import readable_run
from assay_orchestrator.runs.run_views import in_view
from assay_orchestrator.store.rows import results
from assay_orchestrator.store.runs import datasets, run_heads, runs
from assay_orchestrator.store.runs.lifecycle import client_view, is_shown_waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import sqlalchemy as sa

    from assay.filters.run_filter import RunFilter, RunOrder
    from assay.model.run import DatasetRef, Run
    from assay.model.scope import Scope
    from assay.storage.database import Database
    from assay_orchestrator.store.runs.run_heads import RunHead

_LIMIT_S = 10.0
_REMEDY = "delete runs that are no longer needed, or list them without filter, order and count"
_CHUNK = 20
"""Runs that are in memory at once while a page is filled: a spec may have megabytes."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RunPosition:
    """The position of a run in an order: its sort value, then its time and id."""

    value: float | str | None
    created_at: str
    run_id: str


@dataclass(frozen=True, slots=True)
class RunQuery:
    """A query for runs.

    Args:
        run_filter: The conditions.
        order: The sort order.
        view: Which fields the runs have.
        with_total: Whether to count all matching runs.
    """

    run_filter: RunFilter = EVERY_RUN
    order: RunOrder = NEWEST_FIRST
    view: RunView = RunView.BASIC
    with_total: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether time and id alone select the runs, so that no other runs are read."""
        others = dataclasses.replace(self.run_filter, run_id_prefix="")
        return others == EVERY_RUN and self.order == NEWEST_FIRST and not self.with_total

    @property
    def needs_figures(self) -> bool:
        """Whether filter or order compare figures of summaries."""
        return bool(self.run_filter.figures or self.run_filter.verdicts) or self.order.key is RunKey.FIGURE


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """A page of runs.

    Args:
        runs: The messages of the runs, as clients see them.
        end: The position of the last run if more follow; else None.
        total_count: The number of matching runs; None if not counted.
    """

    runs: Sequence[pb.Run]
    end: RunPosition | None
    total_count: int | None = None


class RunLists:
    """The lists of runs of a store.

    Args:
        database: The store.
        storage_problem: Returns why a run's rows cannot be stored in this process, which may alone know it.
    """

    def __init__(self, database: Database, storage_problem: Callable[[str], str]) -> None:
        self._database = database
        self._storage_problem = storage_problem

    async def read(self, scope: Scope, query: RunQuery, after: RunPosition | None, count: int) -> FoundRuns:
        """Return up to `count` runs after a position, fewer if they do not fit in a message."""

        def read(connection: sa.Connection) -> FoundRuns:
            if query.is_plain:
                positions, total = self._newest(connection, scope, query, after, count)
            else:
                with time_limit(connection, _LIMIT_S, _REMEDY):
                    positions, total = self._found(connection, scope, query, after, count)
            wanted = positions[:count]
            page = first_page(self._messages(connection, scope, [place.run_id for place in wanted], query.view))
            last = next((place for place in wanted if page and place.run_id == page[-1].run_id), None)
            return FoundRuns(page, last if last is not None and last != positions[-1] else None, total)

        return await self._database.read(read)

    def _newest(
        self, connection: sa.Connection, scope: Scope, query: RunQuery, after: RunPosition | None, count: int
    ) -> tuple[list[RunPosition], int | None]:
        """Return the positions of the next runs of a plain query, one more than `count` if there is one."""
        before = (after.created_at, after.run_id) if after is not None else None
        keys = runs.list_newest(connection, scope, count + 1, before, query.run_filter.run_id_prefix)
        return [RunPosition(created_at, created_at, run_id) for created_at, run_id in keys], None

    def _found(
        self, connection: sa.Connection, scope: Scope, query: RunQuery, after: RunPosition | None, count: int
    ) -> tuple[list[RunPosition], int | None]:
        """Return the positions of the next runs of a query, one more than `count`, and the number of all runs."""
        every_head = run_heads.read_heads(connection, scope, with_figures=query.needs_figures)
        heads = [head for head in every_head if self._accepts(query.run_filter, head)]
        following = [
            head for head in _sorted(heads, query.order) if after is None or _follows(head, query.order, after)
        ]
        positions = [_position(head, query.order) for head in following[: count + 1]]
        return positions, len(heads) if query.with_total else None

    def _messages(
        self, connection: sa.Connection, scope: Scope, run_ids: Sequence[str], view: RunView
    ) -> Iterator[pb.Run]:
        """Yield the messages of runs, in the order of their ids."""
        references: dict[tuple[str, str], DatasetRef] = {}
        for start in range(0, len(run_ids), _CHUNK):
            for record in runs.read_runs(connection, scope, run_ids[start : start + _CHUNK]):
                name = (record.team, record.dataset_id)
                if name not in references:
                    reference = datasets.get_dataset(connection, *name)
                    assert reference is not None, "a foreign key holds the dataset"
                    references[name] = reference
                if view is RunView.BASIC:
                    record = dataclasses.replace(record, summary=None)
                counted = results.with_answered(connection, results.recounted(connection, record))
                run = in_view(readable_run(counted, references[name]), view)
                yield _message(client_view(run, self._storage_problem(run.run_id)))

    def _accepts(self, conditions: RunFilter, head: RunHead) -> bool:
        return (
            head.run_id.startswith(conditions.run_id_prefix)
            and (not conditions.name or head.name == conditions.name)
            and conditions.labels.items() <= head.labels.items()
            and (not conditions.datasets or not {head.dataset, head.dataset_id}.isdisjoint(conditions.datasets))
            and (not conditions.teams or head.fair_share in conditions.teams)
            and conditions.group_id in ("", head.group_id)
            and (not conditions.created_from or head.created_at >= conditions.created_from)
            and (not conditions.created_before or head.created_at < conditions.created_before)
            and (not conditions.states or self._state(head) in conditions.states)
            and (not conditions.verdicts or head.verdict in conditions.verdicts)
            and all(meets(head.figures.get(condition.metric), condition) for condition in conditions.figures)
        )

    def _state(self, head: RunHead) -> RunState:
        """Return a run's state as clients see it."""
        waits = is_shown_waiting(head.state, head.pause_cause, self._storage_problem(head.run_id))
        return RunState.PAUSED if waits else head.state


def _value(head: RunHead, order: RunOrder) -> float | str | None:
    match order.key:
        case RunKey.CREATED:
            return head.created_at
        case RunKey.ENDED:
            return head.ended_at
        case RunKey.NAME:
            return head.name
        case RunKey.FIGURE:
            return head.figures.get(order.figure)


def _position(head: RunHead, order: RunOrder) -> RunPosition:
    return RunPosition(_value(head, order), head.created_at, head.run_id)


def _sorted(heads: Sequence[RunHead], order: RunOrder) -> list[RunHead]:
    """Return runs, newest first, in an order; the sort is stable."""
    with_value = [head for head in heads if _value(head, order) is not None]
    with_value.sort(key=lambda head: _value(head, order), reverse=order.descending)  # type: ignore[arg-type,return-value]  # none is None
    return with_value + [head for head in heads if _value(head, order) is None]


def _follows(head: RunHead, order: RunOrder, after: RunPosition) -> bool:
    value = _value(head, order)
    if value == after.value:
        return (head.created_at, head.run_id) < (after.created_at, after.run_id)
    if value is None or after.value is None:
        return value is None
    return value < after.value if order.descending else value > after.value  # type: ignore[operator]  # of one kind


def _message(run: Run) -> pb.Run:
    """Return the message of a run; a run that does not fit says so and does not break the list."""
    try:
        return RUN.to_wire(run)
    except (TypeError, ValueError) as problem:
        _log.error("cannot show run: run=%s", run.run_id, exc_info=problem)
        return pb.Run(run_id=run.run_id, state_message=f"this run cannot be shown ({problem}): delete it")
