"""Lists of runs: those that meet a filter, in an order, page by page."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.filters.run_filter import EVERY_RUN, NEWEST_FIRST, RunKey
from assay.model.run import RunState
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

_LISTED = ("metrics",)
"""What a list shows of the details of metrics: the means of labelled checks."""


@dataclass(frozen=True, slots=True)
class RunPosition:
    """Where a run stands in an order: what it is sorted by, then its time and id."""

    value: float | str | None
    created_at: str
    run_id: str


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Which runs are wanted, and in which order.

    Args:
        wanted: The conditions that they meet.
        order: What they are sorted by.
        with_figures: Whether they have the figures of their final summaries.
        with_total: Whether all of them are counted.
    """

    wanted: RunFilter = EVERY_RUN
    order: RunOrder = NEWEST_FIRST
    with_figures: bool = False
    with_total: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the runs are found by time and id alone, without reading others."""
        others = dataclasses.replace(self.wanted, run_id_prefix="")
        return others == EVERY_RUN and self.order == NEWEST_FIRST and not self.with_total


@dataclass(frozen=True, slots=True)
class FoundRuns:
    """A page of runs.

    Args:
        runs: The runs.
        end: The position of the last, where more follow; else None.
        total_count: Runs that meet the conditions; None where they were not counted.
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
            return self._found(connection, scope, query, after, count)

        return await self._database.read(read)

    def _newest(
        self, connection: sa.Connection, scope: Scope, query: RunQuery, after: RunPosition | None, count: int
    ) -> FoundRuns:
        before = (after.created_at, after.run_id) if after is not None else None
        listed = runs.list_newest(connection, scope, count + 1, before, query.wanted.run_id_prefix)
        page = listed[:count]
        last = page[-1] if len(listed) > count else None
        end = RunPosition(last.created_at, last.created_at, last.run_id) if last is not None else None
        return FoundRuns(_shown(connection, page, with_figures=query.with_figures), end)

    def _found(
        self, connection: sa.Connection, scope: Scope, query: RunQuery, after: RunPosition | None, count: int
    ) -> FoundRuns:
        heads = [head for head in run_heads.read_heads(connection, scope) if self._accepts(query.wanted, head)]
        due = [head for head in _sorted(heads, query.order) if after is None or _follows(head, query.order, after)]
        page = due[:count]
        records = runs.read_runs(connection, scope, [head.run_id for head in page])
        end = _position(page[-1], query.order) if len(due) > count else None
        total = len(heads) if query.with_total else None
        return FoundRuns(_shown(connection, records, with_figures=query.with_figures), end, total)

    def _accepts(self, wanted: RunFilter, head: RunHead) -> bool:
        return (
            head.run_id.startswith(wanted.run_id_prefix)
            and (not wanted.name or head.name == wanted.name)
            and wanted.labels.items() <= head.labels.items()
            and (not wanted.datasets or not {head.dataset, head.dataset_id}.isdisjoint(wanted.datasets))
            and (not wanted.teams or head.fair_share in wanted.teams)
            and wanted.group_id in ("", head.group_id)
            and (not wanted.created_from or head.created_at >= wanted.created_from)
            and (not wanted.created_before or head.created_at < wanted.created_before)
            and (not wanted.states or self._state(head) in wanted.states)
        )

    def _state(self, head: RunHead) -> RunState:
        """Return the state of a run as clients see it."""
        waits = is_shown_waiting(head.state, head.pause_cause, self._storage_problem(head.run_id))
        return RunState.PAUSED if waits else head.state


def _value(head: RunHead, key: RunKey) -> float | str | None:
    match key:
        case RunKey.CREATED:
            return head.created_at
        case RunKey.ENDED:
            return head.ended_at
        case RunKey.NAME:
            return head.name
        case RunKey.PASS_RATE:
            return head.pass_rate


def _position(head: RunHead, order: RunOrder) -> RunPosition:
    return RunPosition(_value(head, order.key), head.created_at, head.run_id)


def _sorted(heads: Sequence[RunHead], order: RunOrder) -> list[RunHead]:
    """Return runs, which come newest first, in an order; sorting keeps equal ones as they come."""
    with_value = [head for head in heads if _value(head, order.key) is not None]
    with_value.sort(key=lambda head: _value(head, order.key), reverse=order.descending)  # type: ignore[arg-type,return-value]  # none is None
    return with_value + [head for head in heads if _value(head, order.key) is None]


def _follows(head: RunHead, order: RunOrder, after: RunPosition) -> bool:
    value = _value(head, order.key)
    if value == after.value:
        return (head.created_at, head.run_id) < (after.created_at, after.run_id)
    if value is None or after.value is None:
        return value is None
    return value < after.value if order.descending else value > after.value  # type: ignore[operator]  # of one kind


def _shown(connection: sa.Connection, records: Sequence[RunRecord], *, with_figures: bool) -> list[Run]:
    names = {(record.team, record.dataset_id) for record in records}
    known = {name: datasets.get_dataset(connection, *name) for name in names}
    found = []
    for record in records:
        dataset = known[record.team, record.dataset_id]
        assert dataset is not None, "a foreign key holds the dataset"
        kept = results.recounted(connection, record if with_figures else dataclasses.replace(record, summary=None))
        run = readable_run(results.with_answered(connection, kept), dataset)
        found.append(run if run.summary is None else dataclasses.replace(run, summary=_figures(run.summary)))
    return found


def _figures(summary: RunSummary) -> RunSummary:
    """Return the figures of a summary that a list shows."""
    metrics = tuple(
        dataclasses.replace(metric, detail={key: metric.detail[key] for key in _LISTED if key in metric.detail})
        for metric in summary.metrics
    )
    return dataclasses.replace(summary, metrics=metrics, categories=(), tags=(), repeats={}, weighted={}, judging=None)
