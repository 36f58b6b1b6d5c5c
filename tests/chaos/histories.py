"""What a run's clients and agent saw, and whether what is stored agrees with it."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from assay.metrics.core.explanations import score_message
from assay.model.run import RowResult, Run, RunState, StateChanged
from assay_orchestrator.runs.catalogue import readable_run
from assay_orchestrator.store import schema
from assay_orchestrator.store.rows import results
from assay_orchestrator.store.runs import datasets, runs
from assay_orchestrator.summary.partial import described, fold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.chaos.outer_services import Call
    from tests.chaos.topologies import Ending

    from assay.client.client import Client

_CLOCK_STEP_S = 0.002
"""What the store says of the time is cut to milliseconds."""


@dataclass(slots=True)
class History:
    """What was seen of one run from outside.

    Args:
        run_id: The run.
        row_count: Its cases times its repeats.
        turn_count: Questions per row.
        seen: What watchers were told: the row of every result by its number, None for other events.
        problems: What was wrong while it happened.
        replaced: Whether rows were tried again: then numbers of results that were replaced are missing.
        late_s: How long after a disturbance a question that was on its way before may still reach the agent.
        clock_jumps: Whether the store's times say nothing about what came first.
        woken: From when to when a process went on that had stood still, and was thought dead: a question that it was
            sending then may still reach the agent. It was in flight, and is counted with those.
    """

    run_id: str
    row_count: int
    turn_count: int = 1
    seen: dict[int, RowResult | None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    replaced: bool = False
    late_s: float = 0.5
    clock_jumps: bool = False
    woken: list[tuple[float, float]] = field(default_factory=list)

    async def watch(self, client: Client) -> None:
        """Follow the run until it ends or pauses, and note every event that is told."""
        cursor = max(self.seen, default=0)
        paused_at: int | None = None  # a pause that cannot be stored is no event: a snapshot alone shows it
        async for event in client.watch_run(self.run_id, after_sequence=cursor):
            if isinstance(event, Run):
                paused_at = event.last_sequence if event.state is RunState.PAUSED else None
                if paused_at is not None and paused_at <= cursor:
                    return
                continue
            if event.sequence <= cursor:
                self.problems.append(f"event {event.sequence} was told after event {cursor}")
            cursor = event.sequence
            self.seen[cursor] = event if isinstance(event, RowResult) else None
            if isinstance(event, StateChanged) and event.state is RunState.PAUSED:
                return
            if cursor == paused_at:
                return


@dataclass(slots=True)
class Verdict:
    """What became of a run.

    Args:
        lost: Acknowledged results that are not stored as they were acknowledged.
        duplicated: Rows with more than one result, and results of no row.
        repaid: Questions that were asked although their answer was stored.
        repeated: Questions that were asked again because a disturbance came between asking and storing.
        unexplained: Questions that were asked again for no reason.
        problems: All that is wrong, in sentences.
        summary: The stored summary, without times.
    """

    lost: int = 0
    duplicated: int = 0
    repaid: int = 0
    repeated: int = 0
    unexplained: int = 0
    problems: list[str] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)


def check(engine: sa.Engine, history: History, calls: Sequence[Call], endings: Sequence[Ending]) -> Verdict:
    """Return what is wrong with a run that has ended, whatever happened to the processes meanwhile."""
    verdict = Verdict(problems=list(history.problems))
    with engine.begin() as connection:
        run = runs.load_run(connection, history.run_id)
        if run is None:
            verdict.problems.append(f"run {history.run_id} was acknowledged and is not there")
            return verdict
        stored = list(results.read_all(connection, run.run_id))
        if run.state is not RunState.COMPLETED:
            verdict.problems.append(f"the run is {run.state.value}: {run.state_message}")
        _check_rows(verdict, history, run, stored)
        _check_sequence(verdict, history, connection, run, stored)
        _check_summary(verdict, connection, run)
        _check_leftovers(verdict, connection)
        _check_calls(verdict, connection, history, calls, endings)
    return verdict


def _check_rows(verdict: Verdict, history: History, run: runs.RunRecord, stored: Sequence[RowResult]) -> None:
    rows = Counter((row.case_index, row.repeat) for row in stored)
    verdict.duplicated = sum(count - 1 for count in rows.values()) + max(0, len(rows) - history.row_count)
    if len(rows) != history.row_count:
        verdict.problems.append(f"{len(rows)} of {history.row_count} rows have a result")
    if verdict.duplicated:
        verdict.problems.append(f"{verdict.duplicated} results too many")
    counted = (run.finished_count, run.passed_count, run.failed_count)
    found = (len(stored), sum(row.passed is True for row in stored), sum(row.passed is False for row in stored))
    if counted != found:
        verdict.problems.append(f"the run counts {counted} finished, passed and failed rows, and there are {found}")
    by_number = {row.sequence: row for row in stored}
    for sequence, row in history.seen.items():
        if row is None:
            continue
        kept = by_number.get(sequence)
        if kept is None and history.replaced:
            continue  # a later attempt took its place
        if kept is None or _essence(kept) != _essence(row):
            verdict.lost += 1
            verdict.problems.append(f"result {sequence} of row {row.case_id}/{row.repeat} was told and is lost")


def _essence(row: RowResult) -> tuple[object, ...]:
    # Only the wire adds the sentence on a score.
    scores = [dataclasses.replace(score, message=score_message(score)) for score in row.scores]
    return (row.case_index, row.repeat, row.case_id, row.status, row.passed, scores)


def _check_sequence(
    verdict: Verdict, history: History, connection: sa.Connection, run: runs.RunRecord, stored: Sequence[RowResult]
) -> None:
    changes = runs.read_state_changes(connection, run.run_id, 0, 100_000)
    numbers = Counter([row.sequence for row in stored] + [change.sequence for change in changes])
    if any(count > 1 for count in numbers.values()):
        verdict.problems.append("two events have the same number")
    missing = set(range(1, run.last_sequence + 1)) - set(numbers)
    if (missing and not history.replaced) or max(numbers, default=0) > run.last_sequence:
        verdict.problems.append(f"events {sorted(missing)[:10]} of {run.last_sequence} are missing")
    if not history.replaced and (untold := set(numbers) - set(history.seen)):
        verdict.problems.append(f"{len(untold)} events were never told to the watcher, such as {min(untold)}")


def _check_summary(verdict: Verdict, connection: sa.Connection, run: runs.RunRecord) -> None:
    dataset = datasets.get_dataset(connection, run.team, run.dataset_id)
    assert dataset is not None, "a foreign key holds the dataset"
    readable = readable_run(run, dataset)
    folded = dataclasses.asdict(described(fold(connection, readable), readable))
    stored = dict(run.summary or {})
    if json.dumps(stored, sort_keys=True) != json.dumps(folded, sort_keys=True):
        verdict.problems.append("the stored summary is not that of the stored rows")
    verdict.summary = {name: value for name, value in stored.items() if name != "latency"}


def _check_leftovers(verdict: Verdict, connection: sa.Connection) -> None:
    known = sa.select(schema.datasets.c.upload_id)
    # A shared database keeps them for a day: they may be somebody else's, who is at it still.
    shared = connection.dialect.name == "postgresql"
    orphans = sa.select(sa.func.count()).where(schema.dataset_cases.c.upload_id.not_in(known), sa.literal(not shared))
    for what, query in (
        ("cases of uploads that broke off", orphans),
        ("unfinished deletions", sa.select(sa.func.count()).select_from(schema.deletions)),
        ("shards that are not done", sa.select(sa.func.count()).where(schema.shards.c.state != "done")),
        ("slots still held", sa.select(sa.func.coalesce(sa.func.sum(schema.shards.c.slots), 0))),
    ):
        count = connection.execute(query).scalar_one()
        if count:
            verdict.problems.append(f"{count} {what} are left")


def _check_calls(
    verdict: Verdict,
    connection: sa.Connection,
    history: History,
    calls: Sequence[Call],
    endings: Sequence[Ending],
) -> None:
    moments = sorted(ending.at for ending in endings)
    stored_at = _stored_at(connection, history)
    by_key: dict[str, list[float]] = {}
    for call in calls:
        if call.key.startswith(f"{history.run_id}/"):
            by_key.setdefault(call.key, []).append(call.began_at)
    for key, times in by_key.items():
        stored = stored_at.get(re.sub("@[0-9]+", "", key))
        if stored is None:
            verdict.problems.append(f"{key} was asked and has no answer")
        elif times[-1] > stored + _CLOCK_STEP_S and not history.clock_jumps and not _was_sent(history, times[-1]):
            verdict.repaid += 1
            verdict.problems.append(f"{key} was asked {times[-1] - stored:.3f} s after its answer was stored")
        for before, after in itertools.pairwise(times):
            if any(before - history.late_s <= moment <= after for moment in moments):
                verdict.repeated += 1
            else:
                verdict.unexplained += 1
                verdict.problems.append(f"{key} was asked again though nothing happened in between")
    if never := set(stored_at) - {re.sub("@[0-9]+", "", key) for key in by_key}:
        verdict.problems.append(f"{len(never)} answers are stored to questions that were never asked")


def _was_sent(history: History, moment: float) -> bool:
    """Return whether a question that came then had been in flight while the process that asked it stood still."""
    return any(begin <= moment <= end for begin, end in history.woken)


def _stored_at(connection: sa.Connection, history: History) -> dict[str, float]:
    """Return when the answer to each question that stands was stored, by idempotency key."""
    table = schema.answers
    query = sa.select(table.c.case_index, table.c.repeat, table.c.turn_index, table.c.created_at)
    times = {}
    for case_index, repeat, turn_index, text in connection.execute(query.where(table.c.run_id == history.run_id)):
        row = f"{history.run_id}/{case_index}/{repeat}"
        times[row if history.turn_count == 1 else f"{row}/{turn_index}"] = datetime.fromisoformat(text).timestamp()
    return times
