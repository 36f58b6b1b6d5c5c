"""The checker itself: whatever is wrong with what is stored, or with what was seen, is noticed."""

from __future__ import annotations

import asyncio
import dataclasses
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from tests.chaos.drills import Plan, drilling
from tests.chaos.histories import History, Verdict, check
from tests.chaos.outer_services import Call
from tests.chaos.topologies import Ending, OneOrchestrator

if TYPE_CHECKING:
    from pathlib import Path

PLAN = Plan(case_count=12, repeats=1, embeds=False)


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """A run that nothing disturbed, as it was seen, and what is stored of it."""

    history: History
    calls: list[Call]
    data: Path

    def call(self, case_index: int, later_s: float) -> Call:
        """Return another call for a case, so much later than the first."""
        key = f"{self.history.run_id}/{case_index}/1"
        return Call(key, next(call.began_at for call in self.calls if call.key == key) + later_s)

    def verdict(self, calls: list[Call], endings: list[Ending]) -> Verdict:
        """Return what the checker says."""
        engine = sa.create_engine(f"sqlite:///{self.data}/assay.db", poolclass=sa.NullPool)
        try:
            return check(engine, self.history, calls, endings)
        finally:
            engine.dispose()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    """Return the run."""
    folder = tmp_path_factory.mktemp("c")

    async def run() -> Seen:
        async with drilling(PLAN, folder, OneOrchestrator) as drill:
            drill.topology.start()
            history = await drill.submit()
            await drill.watch_to_the_end(history)
            (verdict,) = await drill.conclude()
            assert not verdict.problems
            return Seen(history, drill.agent.calls, folder / "data")

    return asyncio.run(run())


@pytest.fixture
def seen(whole: Seen, tmp_path: Path) -> Seen:
    """Return a copy of it, to be spoilt."""
    shutil.copytree(whole.data, tmp_path / "data")
    history = dataclasses.replace(whole.history, seen=dict(whole.history.seen), problems=[])
    return Seen(history, whole.calls, tmp_path / "data")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("DELETE FROM results WHERE case_index = 3", "11 of 12 rows have a result"),
        ("DELETE FROM results WHERE case_index = 3", "of row c3/1 was told and is lost"),
        ("UPDATE results SET passed = NOT passed WHERE case_index = 3", "of row c3/1 was told and is lost"),
        ("UPDATE results SET passed = NOT passed WHERE case_index = 3", "the stored summary is not that"),
        ("UPDATE results SET scores_json = replace(scores_json, '1.0', '0.9999999999999999')", "the stored summary"),
        ("UPDATE results SET sequence = 99 WHERE case_index = 3", "are missing"),
        ("UPDATE runs SET last_sequence = 15", "events [15] of 15 are missing"),
        ("UPDATE run_events SET sequence = 2 WHERE sequence = 1", "two events have the same number"),
        ("UPDATE results SET case_index = 50 WHERE case_index = 3", "was told and is lost"),
        ("UPDATE runs SET finished_count = 11", "the run counts (11,"),
        ("UPDATE runs SET state = 'running'", "the run is running"),
        ("UPDATE runs SET run_id = 'other'", "was acknowledged and is not there"),
        ("UPDATE shards SET state = 'taken'", "1 shards that are not done are left"),
        ("UPDATE shards SET slots = 8", "8 slots still held are left"),
        ("DELETE FROM answers WHERE case_index = 3", "/3/1 was asked and has no answer"),
        ("UPDATE answers SET created_at = '2020-01-01T00:00:00.000Z'", "after its answer was stored"),
        ("UPDATE dataset_cases SET upload_id = 'x'", "12 cases of uploads that broke off are left"),
        ("INSERT INTO deletions (run_id, created_at) VALUES ('r', '')", "1 unfinished deletions are left"),
    ],
)
def test_what_is_stored_is_checked(seen: Seen, change: str, problem: str) -> None:
    """Anything that is not stored as it was seen is told."""
    with closing(sqlite3.connect(seen.data / "assay.db")) as connection, connection:
        connection.execute(change)
    assert problem in "\n".join(seen.verdict(seen.calls, []).problems)


def test_calls_are_checked(seen: Seen) -> None:
    """A question after its answer was stored, and one that nothing explains, are told; one after a kill is counted."""
    late = seen.verdict([*seen.calls, seen.call(3, 3600)], [])
    assert (late.repaid, late.unexplained) == (1, 1)
    killed_at = seen.call(3, 0.0001).began_at
    early = [seen.call(3, -2.0), *seen.calls]
    unexplained = seen.verdict(early, [])
    assert (unexplained.repaid, unexplained.repeated, unexplained.unexplained) == (0, 0, 1)
    explained = seen.verdict(early, [Ending("orchestrator", killed_at - 1, -9)])
    assert (explained.repaid, explained.repeated, explained.unexplained, explained.problems) == (0, 1, 0, [])
    fewer = seen.verdict([call for call in seen.calls if not call.key.endswith("/3/1")], [])
    assert "1 answers are stored to questions that were never asked" in fewer.problems


def test_what_watchers_were_told_is_checked(seen: Seen) -> None:
    """An event that a watcher was never told of is told."""
    del seen.history.seen[5]
    seen.history.problems.append("event 4 was told after event 7")
    found = seen.verdict(seen.calls, []).problems
    assert found == ["event 4 was told after event 7", "1 events were never told to the watcher, such as 5"]
