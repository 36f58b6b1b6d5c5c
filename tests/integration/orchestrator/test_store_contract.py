"""What the store promises, whichever database keeps it: one suite, run on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import dataclasses
import math
import threading
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
import sqlalchemy as sa

from assay.errors import DatasetError, StorageError
from assay.model.answers.agent_response import AgentResponse, AgentStatus
from assay.model.case import Case, Turn
from assay.model.run import DatasetRef, RowResult, RunState, Score, ScoreStatus
from assay.model.scope import LOCAL
from assay_orchestrator.store import control, history, schema
from assay_orchestrator.store.control import Resumption
from assay_orchestrator.store.rows import attempts, results
from assay_orchestrator.store.rows.attempts import RowAttempts
from assay_orchestrator.store.rows.results import AnswerRecord
from assay_orchestrator.store.runs import datasets, lifecycle, runs
from assay_orchestrator.store.runs.runs import RunRecord
from assay_orchestrator.store.shards import fairness, shards
from assay_orchestrator.store.shards.fairness import FairShares

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from assay.storage.database import Database
    from assay_orchestrator.store.shards.shards import Shard

DATASET = DatasetRef("d", "names", 3)


def record(run_id: str = "r", request_id: str = "q", **changes: Any) -> RunRecord:
    """Return a run over DATASET."""
    made = RunRecord(run_id, request_id, "h", {"name": "n"}, "d", 3, "0.1.0", "2026-05-01T00:00:00.000Z", "local")
    return dataclasses.replace(made, **changes)


def row(case_index: int, repeat: int = 1, **changes: Any) -> RowResult:
    """Return a result without scores."""
    made = RowResult(f"c{case_index}", case_index, repeat, "", AgentStatus.SUCCESS, True, (), 1.5, "")
    return dataclasses.replace(made, **changes)


def answer(case_index: int, text: str = "yes") -> AnswerRecord:
    """Return a stored answer to the first turn."""
    return AnswerRecord(case_index, 1, 0, AgentResponse(text=text))


@pytest_asyncio.fixture
async def store(open_store: Callable[[], Database]) -> AsyncIterator[Database]:
    """Return a store that holds DATASET and one run over it."""
    database = open_store()

    def fill(connection: sa.Connection) -> None:
        cases = [Case(f"c{index}", (Turn(f"q{index}", references=("a",)),)) for index in range(3)]
        datasets.add_cases(connection, "u", 0, [(case.case_id, datasets.case_text(case)) for case in cases])
        datasets.finish_upload(connection, LOCAL, "u", DATASET)
        runs.create_run(connection, record())

    try:
        await database.write(fill)
        yield database
    finally:
        database.close()


async def test_a_change_is_stored_whole_or_not_at_all(store: Database) -> None:
    """A change that raises in the middle leaves nothing behind, and the next one works."""

    def half(connection: sa.Connection) -> None:
        results.put_rows(connection, "r", [answer(0)], [row(0)], {})
        raise KeyError("in the middle")

    with pytest.raises(KeyError):
        await store.write(half)
    assert await store.read(lambda c: results.count_finished(c, "r")) == 0
    stored = await store.write(lambda c: results.put_rows(c, "r", [answer(0)], [row(0)], {}))
    assert stored.first_sequence == 1


async def test_a_row_has_one_result(store: Database) -> None:
    """A second answer or result of a row is refused, and nothing that came with it is stored."""
    await store.write(lambda c: results.put_rows(c, "r", [answer(0)], [row(0)], {}))
    with pytest.raises(StorageError):
        await store.write(lambda c: results.put_rows(c, "r", [], [row(1), row(0)], {}))
    with pytest.raises(StorageError):
        await store.write(lambda c: results.put_rows(c, "r", [answer(1), answer(0)], [], {}))
    run = await store.read(lambda c: runs.load_run(c, "r"))
    assert run is not None
    assert (run.finished_count, run.last_sequence) == (1, 1)
    assert await store.read(lambda c: list(results.read_answers(c, "r", [0, 1, 2]))) == [(0, 1)]


async def test_sequences_have_no_gaps_under_many_writers(store: Database) -> None:
    """Writers that come together number their rows 1, 2, 3, ... and every watcher sees them in that order."""
    seen: list[int] = []
    writing = asyncio.Event()

    async def watch() -> None:
        while len(seen) < 8 * 30 + 8:
            after = seen[-1] if seen else 0
            page = await store.read(
                lambda c, after=after: history.read_events(c, LOCAL, "r", after, 50, with_answers=False)  # type: ignore[misc]
            )
            seen.extend(event.sequence for event in page)
            writing.set()

    async def write(writer: int) -> None:
        await writing.wait()
        for batch in range(10):
            new = [row(writer, 3 * batch + offset) for offset in range(3)]
            await store.write(lambda c, new=new: results.put_rows(c, "r", [], new, {}))  # type: ignore[misc]  # a default
        await store.write(lambda c: runs.change_state(c, "r", RunState.RUNNING))

    await asyncio.gather(watch(), *(write(writer) for writer in range(8)))
    assert seen == list(range(1, 8 * 30 + 8 + 1))
    run = await store.read(lambda c: runs.load_run(c, "r"))
    assert run is not None
    assert (run.finished_count, run.passed_count, run.last_sequence) == (240, 240, 248)


async def test_a_read_sees_one_moment(store: Database) -> None:
    """What is committed between two queries of a read is seen by neither: a watcher would miss the rows between."""
    loop, stored = asyncio.get_running_loop(), threading.Event()

    def count_twice(connection: sa.Connection) -> tuple[int, int]:
        first = results.count_finished(connection, "r")
        loop.call_soon_threadsafe(started.set)
        assert stored.wait(30)
        return first, results.count_finished(connection, "r")

    started = asyncio.Event()
    reading = asyncio.ensure_future(store.read(count_twice))
    await started.wait()
    await store.write(lambda c: results.put_rows(c, "r", [], [row(0)], {}))
    stored.set()
    assert await reading == (0, 0)


async def test_a_read_that_raises_freezes_no_later_one(store: Database) -> None:
    """A read that raises while its rows are still coming leaves no old snapshot, even while the exception lives."""
    await store.write(lambda c: results.put_rows(c, "r", [], [row(0), row(1)], {}))
    reading = threading.Barrier(2)  # two reading threads at least are affected

    def convert(connection: sa.Connection) -> None:
        reading.wait(30)
        rows = connection.execute(sa.select(schema.results))  # the exception holds it
        for found in rows:
            raise ValueError(f"row {found.case_index} cannot be converted")

    problems = await asyncio.gather(store.read(convert), store.read(convert), return_exceptions=True)
    await store.write(lambda c: results.put_rows(c, "r", [], [row(2)], {}))
    counts = [await store.read(lambda c: results.count_finished(c, "r")) for _ in range(20)]
    assert counts == [3] * 20
    assert [type(problem) for problem in problems] == [ValueError, ValueError]


async def test_a_query_that_keeps_its_cursor_freezes_no_later_one(store: Database) -> None:
    """A read that ends before it has read all of its rows leaves no old snapshot, even where its result is kept."""
    await store.write(lambda c: results.put_rows(c, "r", [], [row(0), row(1)], {}))
    reading, kept = threading.Barrier(2), []

    def begin(connection: sa.Connection) -> None:
        reading.wait(30)
        kept.append(connection.execute(sa.select(schema.results)))
        assert kept[-1].fetchone() is not None

    await asyncio.gather(store.read(begin), store.read(begin))
    await store.write(lambda c: results.put_rows(c, "r", [], [row(2)], {}))
    assert [await store.read(lambda c: results.count_finished(c, "r")) for _ in range(20)] == [3] * 20


async def test_a_request_makes_one_run_however_often_it_comes(store: Database) -> None:
    """The same request at the same time makes one run, which all of them get."""
    made = await asyncio.gather(
        *(store.write(lambda c, n=n: runs.create_run(c, record(f"run-{n}", "same"))) for n in range(8))  # type: ignore[misc]
    )
    assert sum(is_new for _, is_new in made) == 1
    assert len({run.run_id for run, _ in made}) == 1


async def test_equal_datasets_are_stored_once(store: Database) -> None:
    """Uploads of equal cases that end at the same time become one dataset; the others' cases go."""
    for upload in range(4):
        await store.write(lambda c, u=upload: datasets.add_cases(c, f"u{u}", 0, [("c", "{}")]))  # type: ignore[misc]
    new = DatasetRef("same", "n", 1)
    await asyncio.gather(
        *(store.write(lambda c, u=upload: datasets.finish_upload(c, LOCAL, f"u{u}", new)) for upload in range(4))  # type: ignore[misc]
    )
    assert await store.read(lambda c: datasets.get_dataset(c, LOCAL.team, "same")) == new
    count = sa.select(sa.func.count()).select_from(schema.dataset_cases).where(schema.dataset_cases.c.case_id == "c")
    assert await store.read(lambda c: c.execute(count).scalar()) == 1


async def test_case_ids_are_unique_in_a_dataset(store: Database) -> None:
    """An id used twice is named, in one batch or in two; the transaction goes on."""

    def add(connection: sa.Connection) -> int | None:
        datasets.add_cases(connection, "v", 0, [("a", "{}"), ("b", "{}")])
        with pytest.raises(DatasetError, match=r"used twice: x$"):
            datasets.add_cases(connection, "v", 2, [("x", "{}"), ("x", "{}")])
        with pytest.raises(DatasetError, match=r"used twice: b$"):
            datasets.add_cases(connection, "v", 2, [("c", "{}"), ("b", "{}")])
        datasets.add_cases(connection, "w", 0, [("a", "{}")])  # another dataset may have it
        cases = schema.dataset_cases
        return connection.execute(sa.select(sa.func.count()).where(cases.c.upload_id.in_(["v", "w"]))).scalar()

    assert await store.write(add) == 3


async def test_broken_uploads_go_and_datasets_stay(store: Database, database_url: str) -> None:
    """Cases that belong to no dataset go: at once when their upload broke off, at the start when a process died.

    Where somebody else may be uploading into the same database, only those of yesterday go at the start.
    """
    fresh, old = datasets.new_upload_id(), "upload-20260101T000000Z-0"

    def stored(connection: sa.Connection) -> set[str]:
        return set(connection.execute(sa.select(schema.dataset_cases.c.upload_id)).scalars())

    for upload in (fresh, old, "broken"):
        await store.write(lambda c, u=upload: datasets.add_cases(c, u, 0, [("a", "{}")]))  # type: ignore[misc]
    await store.write(lambda c: datasets.discard_upload(c, "broken"))
    await store.write(lambda c: datasets.discard_upload(c, "u"))  # the upload of DATASET, which is complete
    assert await store.read(stored) == {"u", fresh, old}
    await store.write(datasets.discard_unfinished_uploads)
    assert await store.read(stored) == ({"u", fresh} if database_url else {"u"})


async def test_rows_come_back_as_they_were(store: Database) -> None:
    """Verdicts, absent values, exact numbers, vectors, tags and every language survive."""
    scores = (
        Score("exact_match", ScoreStatus.SCORED, 0.1 + 0.2, True, detail={"version": "1", "نص": "مرحبا 👋"}),
        Score("judge", ScoreStatus.ERROR, reason="judge_unavailable"),
    )
    rows = [
        row(0, passed=None, latency_ms=None, status=AgentStatus.ERROR, message="timeout"),
        row(1, passed=False, latency_ms=0.1, scores=scores, tags=("أ", "b"), weight=1e-3, category="فئة"),
        row(2, passed=True, answer_vector=bytes(range(256))),
    ]
    await store.write(lambda c: results.put_rows(c, "r", [answer(1, "\u200fمرحبا\n👋")], rows, {}))
    found = await store.read(lambda c: results.read_sequence(c, "r", 0, 9))
    assert [dataclasses.replace(one, sequence=0) for one in found] == rows
    vectors = sa.select(schema.results.c.case_index).where(schema.results.c.answer_vector.is_not(None))
    assert await store.read(lambda c: c.execute(vectors).scalars().all()) == [2]
    stored = await store.read(lambda c: results.read_answers(c, "r", [1]))
    assert stored[1, 1][0].text == "\u200fمرحبا\n👋"


async def test_text_that_no_database_takes_is_stored_cleaned(store: Database) -> None:
    """NUL and lone surrogates become U+FFFD wherever they come in, and what was stored so is found again."""
    scores = (Score("m", ScoreStatus.SCORED, 1.0, reason="a\0b", detail={"\0": ["\ud800", "\\u0000"]}),)
    bad = row(0, case_id="c\0", category="\0", message="\ud800", tags=("t\0",), scores=scores)
    response = AgentResponse(text="x", metadata={"k\0": "v\0"})

    def put(connection: sa.Connection) -> None:
        datasets.add_cases(connection, "v\0", 0, [("c\0", datasets.case_text(Case("c\0", (Turn("q\0"),))))])
        datasets.finish_upload(connection, LOCAL, "v\0", DatasetRef("d\0", "n\0", 1))
        runs.create_run(connection, record("run\0", "request\0", spec={"name": "n\0"}, dataset_id="d\0"))
        results.put_rows(connection, "run\0", [AnswerRecord(0, 1, 0, response)], [bad], {})
        runs.change_state(connection, "run\0", RunState.PAUSED, message="because\0", summary={"s": "\0"})

    await store.write(put)
    run = await store.read(lambda c: runs.get_by_request(c, LOCAL, "request\0"))
    assert run is not None
    assert (run.run_id, run.spec, run.state_message) == ("run�", {"name": "n�"}, "because�")
    cases = [
        datasets.stored_case(*found).case for found in await store.read(lambda c: datasets.read_cases(c, "run\0", 0, 9))
    ]
    assert [(case.case_id, case.turns[0].input) for case in cases] == [("c�", "q�")]
    (found,) = await store.read(lambda c: results.read_sequence(c, "run\0", 0, 9))
    assert (found.case_id, found.category, found.message, found.tags) == ("c�", "�", "�", ("t�",))
    assert found.scores[0].detail == {"�": ["�", "\\u0000"]}
    stored = await store.read(lambda c: results.read_answers(c, "run\0", [0]))
    assert stored[0, 1][0].metadata == {"k�": "v�"}
    shown = "SELECT reason FROM score_rows"
    assert await store.read(lambda c: c.exec_driver_sql(shown).scalars().all()) == ["a�b"]


async def test_pages_follow_the_dataset(store: Database) -> None:
    """Rows are paged by case and repeat, however they came in, beyond 32 bits too."""
    keys = [(case, repeat) for case in (0, 1, 2, 2**40) for repeat in (1, 2)]
    new = [row(case, repeat, passed=repeat == 1) for case, repeat in reversed(keys)]
    await store.write(lambda c: results.put_rows(c, "r", [], new, {}))
    paged, after = [], (-1, -1)
    while page := await store.read(lambda c, after=after: results.read_in_order(c, "r", after, 3)):  # type: ignore[misc]
        after = (page[-1].case_index, page[-1].repeat)
        paged += [(one.case_index, one.repeat) for one in page]
    assert paged == keys
    assert await store.read(lambda c: results.finished_keys(c, "r", 1, 2)) == {(1, 1), (1, 2), (2, 1), (2, 2)}


async def test_runs_are_listed_newest_first(store: Database) -> None:
    """Pages of runs neither repeat nor leave out one, those of the same moment included."""
    for number in range(5):
        new = record(f"r{number}", f"q{number}", created_at=f"2026-06-0{1 + number // 2}T00:00:00.000Z")
        await store.write(lambda c, new=new: runs.create_run(c, new))  # type: ignore[misc]
    listed: list[str] = []
    before = None
    while page := await store.read(lambda c, before=before: runs.list_newest(c, LOCAL, 2, before)):  # type: ignore[misc]
        before = page[-1]
        listed += [run_id for _, run_id in page]
    assert listed == ["r4", "r3", "r2", "r1", "r0", "r"]
    assert (await store.read(runs.list_unfinished))[0].run_id == "r"


async def test_what_a_cancelled_caller_writes_next_comes_after(store: Database) -> None:
    """A cancelled write is finished all the same, before anything that its caller writes to clean up."""
    loop, entered, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def slow(connection: sa.Connection) -> None:
        loop.call_soon_threadsafe(entered.set)
        assert go_on.wait(30)
        runs.change_state(connection, "r", RunState.RUNNING)

    async def work() -> None:
        try:
            await store.write(slow)
        finally:
            await store.write(lambda c: runs.change_state(c, "r", RunState.CANCELLED))

    working = asyncio.ensure_future(work())
    await entered.wait()
    working.cancel()
    loop.call_soon(go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await working
    changes = await store.read(lambda c: runs.read_state_changes(c, "r", 0, 9))
    assert [change.state for change in changes] == [RunState.RUNNING, RunState.CANCELLED]


async def test_large_texts_come_back_whole(store: Database) -> None:
    """Answers, reasons and details of a mebibyte are kept to the last character."""
    large = "س\n'\"\\\t" * (1024 * 1024 // 7)
    score = Score("m", ScoreStatus.SCORED, 1.0, reason=large, detail={"text": large})
    await store.write(
        lambda c: results.put_rows(c, "r", [answer(0, large)], [row(0, message=large, scores=(score,))], {})
    )
    (found,) = await store.read(lambda c: results.read_sequence(c, "r", 0, 9))
    stored = await store.read(lambda c: results.read_answers(c, "r", [0]))
    assert found.message == large
    assert found.scores == (score,)
    assert stored[0, 1][0].text == large


@pytest.mark.parametrize("number", [math.nan, math.inf])
async def test_numbers_that_json_has_not_are_never_stored(store: Database, number: float) -> None:
    """A number that is none is refused with everything that came with it: the JSON of a row is for every reader."""
    score = Score("m", ScoreStatus.SCORED, 1.0, detail={"ratio": number})
    with pytest.raises(ValueError, match="not JSON compliant"):
        await store.write(lambda c: results.put_rows(c, "r", [answer(0)], [row(0, scores=(score,))], {}))
    assert await store.read(lambda c: results.count_finished(c, "r")) == 0


async def test_everything_is_there_after_a_restart(store: Database, open_store: Callable[[], Database]) -> None:
    """Another process finds runs, rows and answers, and numbers what it adds where the first one ended."""
    await store.write(lambda c: runs.change_state(c, "r", RunState.RUNNING))
    await store.write(lambda c: results.put_rows(c, "r", [answer(0)], [row(0)], {}))
    store.close()
    database = open_store()
    try:
        assert [run.run_id for run in await database.read(runs.list_unfinished)] == ["r"]
        assert await database.read(lambda c: results.finished_keys(c, "r", 0, 3)) == {(0, 1)}
        stored = await database.write(lambda c: results.put_rows(c, "r", [answer(1)], [row(1)], {}))
        assert stored.first_sequence == 3
        await database.write(lambda c: runs.change_state(c, "r", RunState.COMPLETED, summary={"pass_rate": 1.0}))
        run = await database.read(lambda c: runs.load_run(c, "r"))
    finally:
        database.close()
    assert run is not None
    assert (run.state, run.finished_count, run.last_sequence) == (RunState.COMPLETED, 2, 4)
    assert run.summary == {"pass_rate": 1.0}
    assert run.started_at is not None
    assert run.ended_at is not None
    assert run.started_at <= run.ended_at


async def test_errors_of_a_shard_that_a_worker_still_has_are_tried_again(store: Database) -> None:
    """A run that ended while a worker had a shard is retried: the worker stores its rows and gives the shard back."""

    def end_while_taken(connection: sa.Connection) -> Shard:
        shards.create_shards(connection, "r", 3, 1)
        fairness.top_up(connection, "r", FairShares({}, {}))
        shard = shards.start_shard(connection, "r", 0, 1)
        assert shard is not None
        results.put_rows(
            connection, "r", [answer(0)], [row(0, status=AgentStatus.ERROR, passed=False)], {0: shard.epoch}
        )
        runs.apply_command(connection, "r", lifecycle.Command.FAIL)
        return shard

    old = await store.write(end_while_taken)
    assert await store.write(lambda c: control.resume(c, LOCAL, "r", Resumption(retry_errors=True)))
    await store.write(lambda c: results.put_rows(c, "r", [answer(1), answer(2)], [row(1), row(2)], {0: old.epoch}))
    assert not await store.write(lambda c: shards.complete_shard(c, old))

    def start_again(connection: sa.Connection) -> Shard:
        shards.release_shard(connection, "r", 0, old.epoch)
        (job,) = fairness.top_up(connection, "r", FairShares({}, {}))
        shard = shards.start_shard(connection, "r", 0, job.ticket)
        assert shard is not None
        attempts.archive_failed_rows(connection, shard, 3)
        return shard

    new = await store.write(start_again)
    assert new.retry_errors
    assert await store.read(lambda c: results.finished_keys(c, "r", 0, 3)) == {(1, 1), (2, 1)}
    assert await store.read(lambda c: attempts.count_attempts(c, "r", 0, 3)) == {(0, 1): RowAttempts(retried=1)}
    await store.write(lambda c: results.put_rows(c, "r", [answer(0)], [row(0)], {0: new.epoch}))
    assert await store.write(lambda c: shards.complete_shard(c, new))
    run = await store.read(lambda c: runs.load_run(c, "r"))
    assert run is not None
    assert (run.finished_count, run.passed_count, run.failed_count, run.agent_error_count) == (3, 3, 0, 0)
