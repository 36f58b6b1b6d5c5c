"""Early stopping of the two runs of a group: checks rows as they are stored, and stores the stop once on both runs.

A check is part of the transaction that stores rows, which holds the locks of both runs: of two processes that finish
rows at once, the second sees the rows and the stop of the first. It reads the rows after those that this process has
already seen, and decides as `first_stop` does on all rows, so a check per batch decides like a check per row. After the
stop a row is asked only if it has begun: an answer to it is stored, or its errors are retried.
"""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from assay.errors import Problem, SpecError
from assay.model.labels import VARIANT_LABEL
from assay.model.run import AttemptOutcome
from assay.process.failpoints import failpoint
from assay.storage.texts import json_text
from assay_orchestrator.store import schema
from assay_orchestrator.store.shards import shards

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.comparison.stopping import Stop, Stopping
    from assay.model.run_spec import RunSpec
    from assay.model.stopping import StoppingSettings
    from assay_orchestrator.store.runs.runs import RunRecord
    from assay_orchestrator.store.shards.shards import Shard

_FIRST_PAGE, _LARGEST_PAGE = 16, 1024  # cases per run
_LARGEST_VALUE = 1e100
"""Values beyond the bounds by more than this are ignored, as in a comparison."""

_Values = list[float | None]


def require_group(connection: sa.Connection, run: RunRecord, settings: RunSpec) -> None:
    """Raise unless a new run fits the runs of its group: all or none of them stop early, and at most two do.

    Raises:
        SpecError: The run does not fit; contains every problem.
    """
    if not run.group_id:
        return
    table = schema.runs
    query = sa.select(table.c.run_id, table.c.spec_json, table.c.dataset_id).where(
        table.c.team == run.team, table.c.group_id == run.group_id, table.c.run_id != run.run_id
    )
    if settings.stopping is None:
        query = query.limit(1)
    others = [(row.run_id, json.loads(row.spec_json), row.dataset_id) for row in connection.execute(query)]
    own = _plain(settings.stopping)
    problems = []
    for run_id, spec, dataset_id in others:
        if spec.get("stopping") != own:
            problems.append(Problem(f"differs from that of run {run_id} of the group: use a new group_id", "stopping"))
        elif own is not None and dataset_id != run.dataset_id:
            problems.append(
                Problem(
                    f"differs from the dataset of run {run_id} of the group: upload one dataset for both", "dataset_id"
                )
            )
        elif own is not None and spec["labels"].get(VARIANT_LABEL) == settings.labels.get(VARIANT_LABEL):
            problems.append(Problem(f"is also used by run {run_id}: give each run its own", f"labels.{VARIANT_LABEL}"))
    if problems:
        raise SpecError(problems)


def _plain(stopping: StoppingSettings | None) -> dict[str, Any] | None:
    return None if stopping is None else json.loads(json_text(dataclasses.asdict(stopping)))


@dataclass(frozen=True, slots=True)
class _LockedRun:
    run_id: str
    removed_count: int
    stop_json: str | None


class StopLook:
    """Checks the rows of a run and of the other run of its group, for one process.

    It remembers the rows it has seen. If the store may differ from that, because a transaction was rolled back or rows
    were removed, it reads all rows again.

    Args:
        run_id: The run.
        settings: Its settings, with a group and early stopping.
    """

    def __init__(self, run_id: str, settings: RunSpec) -> None:
        assert settings.stopping is not None, "only runs that may stop early are checked"
        self._run_id = run_id
        self._group_id = settings.group_id
        self._repeats = settings.repeats
        self._settings: StoppingSettings = settings.stopping
        self._sides: dict[str, str] = {}
        self._locked: list[_LockedRun] = []
        self._state = self._fresh()
        self._seen = 0
        self._version: tuple[int, ...] = ()
        self._is_committed = True
        self.is_stopped = False
        """Whether the runs had stopped by the end of the last check."""
        self.is_new = False
        """Whether the last check stored the stop."""

    @property
    def run_ids(self) -> list[str]:
        """The runs of the group at the last check."""
        return [run.run_id for run in self._locked]

    def lock(self, connection: sa.Connection) -> None:
        """Lock the runs of the group until the commit; must precede any other lock on them."""
        table, own = schema.runs, schema.runs.alias()
        team = sa.select(own.c.team).where(own.c.run_id == self._run_id).scalar_subquery()
        query = (
            sa.select(table.c.run_id, table.c.removed_count, table.c.stop_json)
            .where(table.c.team == team, table.c.group_id == self._group_id)
            .order_by(table.c.run_id)
            .with_for_update(of=table)
        )
        self._locked = [_LockedRun(*row) for row in connection.execute(query)]
        self.is_stopped = any(run.stop_json is not None for run in self._locked)
        self.is_new = False

    def look(self, connection: sa.Connection) -> None:
        """Check the rows stored by now, and store a stop that they allow; after `lock`, in the same transaction."""
        if self.is_stopped or len(self._locked) != 2:
            return
        version = tuple(run.removed_count for run in self._locked)
        if not self._is_committed or version != self._version:
            self._state, self._seen, self._version = self._fresh(), 0, version
        # Until the commit: after a rollback, the rows seen here may be missing from the store.
        self._is_committed = False
        stop = self._advance(connection)
        if stop is None:
            return
        self.is_stopped = self.is_new = True
        _store(connection, stop, self.run_ids)
        failpoint("early_stop.before_commit")

    def committed(self) -> None:
        """Remember the rows that the last check saw: its transaction is committed."""
        self._is_committed = True

    def _fresh(self) -> Stopping:
        # Imported here: few runs stop early.
        from assay.comparison.stopping import Stopping
        from assay.comparison.stopping_settings import plan_of

        return Stopping(plan_of(self._settings, self._repeats))

    def _advance(self, connection: sa.Connection) -> Stop | None:
        a, b = self._by_side(connection)
        size = _FIRST_PAGE
        while self._seen < self._settings.cases:
            unseen = self._finished(connection, a, size)
            pairs = list(zip(unseen, self._finished(connection, b, len(unseen)) if unseen else (), strict=False))
            stop = self._state.take(pairs)
            self._seen += len(pairs)
            if stop is not None or len(pairs) < size:
                return stop
            size = min(2 * size, _LARGEST_PAGE)
        return None

    def _by_side(self, connection: sa.Connection) -> list[str]:
        """Return the runs, the baseline first."""
        table = schema.runs
        if not self._sides.keys() >= set(self.run_ids):
            query = sa.select(table.c.run_id, table.c.spec_json).where(table.c.run_id.in_(self.run_ids))
            specs = {run_id: json.loads(text) for run_id, text in connection.execute(query)}
            self._sides = {run_id: spec["labels"][VARIANT_LABEL] for run_id, spec in specs.items()}
        return sorted(self.run_ids, key=lambda run_id: self._settings.variants.index(self._sides[run_id]))

    def _finished(self, connection: sa.Connection, run_id: str, count: int) -> _Values:
        """Return the values of up to `count` unseen cases of a run, stopping at the first unfinished case."""
        table, first = schema.results.c, self._seen
        rows = connection.execute(
            sa.select(table.case_index, table.passed, table.values_json)
            .where(table.run_id == run_id, table.case_index >= first, table.case_index < first + count)
            .order_by(table.case_index, table.repeat)
        )
        by_case: dict[int, list[float | None]] = {}
        for case_index, passed, values_json in rows:
            by_case.setdefault(case_index, []).append(self._value(passed, values_json))
        case_values: _Values = []
        while len(repeats := by_case.get(first + len(case_values), ())) == self._repeats:
            usable = [value for value in repeats if value is not None]
            mean = sum(usable) / len(usable) if usable else math.nan
            case_values.append(None if math.isnan(mean) else mean)
        return case_values

    def _value(self, passed: bool | None, values_json: str) -> float | None:
        """Return the value of a row; a rounding error beyond the metric's bounds is clipped.

        NaN if an error left no value, which excludes the whole case from the comparison; None if the metric skips the
        row.
        """
        metric, scale = self._settings.metric, self._settings.scale
        from assay.comparison.model import PASS_RATE

        values = json.loads(values_json)
        value = passed if metric == PASS_RATE else values.get(metric)
        if value is None:
            is_error = None in values.values() if metric == PASS_RATE else metric in values
            return math.nan if is_error else None
        if abs(value) > _LARGEST_VALUE:
            return None
        return float(value) if scale is None else min(max(float(value), scale[0]), scale[1])


def _store(connection: sa.Connection, stop: Stop, run_ids: Sequence[str]) -> None:
    """Store a stop on both runs, and end the waiting shards in which nothing has begun."""
    owners, table = schema.runs, schema.shards
    text = json_text({**dataclasses.asdict(stop), "rule": stop.rule.value, "verdict": stop.verdict.value})
    connection.execute(owners.update().where(owners.c.run_id.in_(run_ids)).values(stop_json=text))
    has_begun = sa.or_(*(sa.exists().where(shards.is_in_shard(rows), *conditions) for rows, conditions in _begun()))
    connection.execute(
        table.update()
        .where(table.c.run_id.in_(run_ids), table.c.state == "waiting", ~has_begun)
        .values(state="done", row_count=0)
    )
    for run_id in run_ids:
        _count_rows(connection, run_id)


def _begun() -> Sequence[tuple[sa.Table, Sequence[sa.ColumnElement[bool]]]]:
    """Return the tables whose entries show that a row has begun, with further conditions on those entries."""
    history = schema.row_history
    return (
        (schema.answers, ()),
        (schema.results, ()),
        (history, (history.c.outcome == AttemptOutcome.RETRIED.value,)),
    )


def _count_rows(connection: sa.Connection, run_id: str) -> None:
    """Set the expected rows of a run to those of its shards."""
    owners, table = schema.runs, schema.shards
    total = sa.select(sa.func.coalesce(sa.func.sum(table.c.row_count), 0)).where(table.c.run_id == run_id)
    connection.execute(owners.update().where(owners.c.run_id == run_id).values(total_count=total.scalar_subquery()))


def drop_unasked(connection: sa.Connection, shard: Shard) -> None:
    """Remove the rows of a shard that have not begun from its run, if the run has stopped early.

    Nothing of the shard may be in flight.
    """
    shards.lock_sharing(connection, shard.run_id)
    if not is_stopped(connection, shard.run_id):
        return
    begun: set[tuple[int, int]] = set()
    for rows, conditions in _begun():
        keys = connection.execute(
            sa.select(rows.c.case_index, rows.c.repeat).where(
                rows.c.run_id == shard.run_id,
                rows.c.case_index >= shard.first_case,
                rows.c.case_index < shard.first_case + shard.case_count,
                *conditions,
            )
        )
        begun |= {(row.case_index, row.repeat) for row in keys}
    shards.change_shard(connection, shard.run_id, shard.shard_index, row_count=len(begun))
    _count_rows(connection, shard.run_id)


def is_stopped(connection: sa.Connection, run_id: str) -> bool:
    """Return whether a run has stopped early."""
    table = schema.runs
    query = sa.select(table.c.run_id).where(table.c.run_id == run_id, table.c.stop_json.is_not(None))
    return connection.execute(query).one_or_none() is not None


def read_stop(connection: sa.Connection, run_id: str) -> Stop | None:
    """Return when a run stopped early; None if it has not."""
    table = schema.runs
    text = connection.execute(sa.select(table.c.stop_json).where(table.c.run_id == run_id)).scalar_one_or_none()
    if text is None:
        return None
    from assay.comparison.model import ComparisonVerdict
    from assay.comparison.stopping import Stop
    from assay.model.stopping import StoppingRule

    data = json.loads(text)
    plain = {
        "rule": StoppingRule(data["rule"]),
        "verdict": ComparisonVerdict(data["verdict"]),
        "looks": tuple(data["looks"]),
    }
    return Stop(**{**data, **plain})
