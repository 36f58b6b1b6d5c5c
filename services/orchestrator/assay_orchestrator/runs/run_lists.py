"""Lists of runs: filtered, sorted, page by page."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.filters.matching import meets
from assay.filters.run_filter import EVERY_RUN, NEWEST_FIRST, RunKey
from assay.model.run import RunState
from assay.storage.time_limits import time_limit
from assay_orchestrator.runs.catalogue import readable_run
from assay_orchestrator.store.rows import results
from assay_orchestrator.store.runs import datasets, run_heads, runs
from assay_orchestrator.store.runs.lifecycle import is_shown_waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import sqlalchemy as sa

    from assay.filters.run_filter import RunFilter, RunOrder
    from assay.model.run import Run, RunSummary
    from assay.model.scope import Scope
    from assay.storage.database import Database
    from assay_orchestrator.store.runs.run_heads import RunHead
    from assay_orchestrator.store.runs.runs import RunRecord

_LIMIT_S = 10.0
_REMEDY = "delete runs that are no longer needed, or list them without filter, order and count"
_LISTED = ("groups",)
"""The details of metrics that a list shows: the means of groups of checks."""


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
        with_figures: Whether to include the figures of final summaries.
        with_total: Whether to count all matching runs.
    """

    run_filter: RunFilter = EVERY_RUN
    order: RunOrder = NEWEST_FIRST
    with_figures: bool = False
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
        runs: The runs.
        end: The position of the last run if more follow; else None.
        total_count: The number of matching runs; None if not counted.
    """

    runs: Sequence[Run]
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
        """Return up to `count` runs after a position."""

        def read(connection: sa.Connection) -> FoundRuns:
            if query.is_plain:
                return self._newest(connection, scope, query, after, count)
            with time_limit(connection, _LIMIT_S, _REMEDY):
                return self._found(connection, scope, query, after, count)

        return await self._database.read(read)

    def _newest(
        self, connection: sa.Connection, scope: Scope, query: RunQuery, after: RunPosition | None, count: int
    ) -> FoundRuns:
        before = (after.created_at, after.run_id) if after is not None else None
        listed = runs.list_newest(connection, scope, count + 1, before, query.run_filter.run_id_prefix)
        page = listed[:count]
        last = page[-1] if len(listed) > count else None
        end = RunPosition(last.created_at, last.created_at, last.run_id) if last is not None else None
        return FoundRuns(_shown(connection, page, with_figures=query.with_figures), end)

    def _found(
        self, connection: sa.Connection, scope: Scope, query: RunQuery, after: RunPosition | None, count: int
    ) -> FoundRuns:
        every_head = run_heads.read_heads(connection, scope, with_figures=query.needs_figures)
        heads = [head for head in every_head if self._accepts(query.run_filter, head)]
        following = [
            head for head in _sorted(heads, query.order) if after is None or _follows(head, query.order, after)
        ]
        page = following[:count]
        records = runs.read_runs(connection, scope, [head.run_id for head in page])
        end = _position(page[-1], query.order) if len(following) > count else None
        total = len(heads) if query.with_total else None
        return FoundRuns(_shown(connection, records, with_figures=query.with_figures), end, total)

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


def _shown(connection: sa.Connection, records: Sequence[RunRecord], *, with_figures: bool) -> list[Run]:
    names = {(record.team, record.dataset_id) for record in records}
    dataset_refs = {name: datasets.get_dataset(connection, *name) for name in names}
    shown = []
    for record in records:
        dataset = dataset_refs[record.team, record.dataset_id]
        assert dataset is not None, "a foreign key holds the dataset"
        counted = results.recounted(connection, record if with_figures else dataclasses.replace(record, summary=None))
        run = readable_run(results.with_answered(connection, counted), dataset)
        shown.append(run if run.summary is None else dataclasses.replace(run, summary=_figures(run.summary)))
    return shown


def _figures(summary: RunSummary) -> RunSummary:
    """Return the figures of a summary that lists show."""
    metrics = tuple(
        dataclasses.replace(metric, detail={key: metric.detail[key] for key in _LISTED if key in metric.detail})
        for metric in summary.metrics
    )
    return dataclasses.replace(summary, metrics=metrics, categories=(), tags=(), repeats={}, weighted={}, judging=None)
