"""Watching runs: bookmarks, resuming, slow and silent watchers; and deleting runs while they are watched or work."""

from __future__ import annotations

import asyncio
import dataclasses
import gc
from contextlib import AsyncExitStack, contextmanager
from types import AsyncGeneratorType
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from tests.support.processes.waiting import until
from tests.support.services.ended_runs import await_end, run_cases

from assay.agent_host.caller import AgentCaller
from assay.client.client import Client
from assay.errors import NotFoundError, ResumeExpiredError, WatchBehindError, WrongStateError
from assay.model.answers.agent_response import AgentErrorKind, AgentResponse, Usage
from assay.model.case import Case, Turn
from assay.model.run import RowResult, Run, RunState
from assay.model.scope import LOCAL
from assay.model.views import RowView
from assay.rpc.channel import open_channel
from assay.rpc.options import ChannelOptions
from assay.rpc.status import translated
from assay.v1 import row_pb2, run_pb2_grpc
from assay.v1 import run_pb2 as pb
from assay_orchestrator.runs.deletion import Deleter
from assay_orchestrator.store import history, schema
from assay_orchestrator.store.removal import deletions
from assay_orchestrator.store.rows.found_rows import RowQuery
from assay_orchestrator.store.runs import datasets
from assay_orchestrator.watch.watches import Watches

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    import grpc.aio

    from assay.model.answers.agent_response import AgentRequest
    from assay.model.run import RunSpec, StateChanged
    from assay.model.stored_dataset import StoredDataset

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSpec]
    Event = Run | StateChanged | RowResult
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from assay.model.run import RunSpec
    from assay.storage.database import Database
    from assay_orchestrator.store.removal.deletions import PendingDeletion


def recorded(count: int, size: int = 1) -> list[Case]:
    """Return cases with recorded answers of some size."""
    return [Case(f"c{i}", (Turn(f"q{i}"),), recordings=((AgentResponse(text="x" * size),),)) for i in range(count)]


async def paused_run(client: Client, settings: RunSpec) -> Run:
    """Return a run on which nothing happens."""
    dataset = await client.upload_dataset(recorded(3), name="d")
    return await client.pause_run((await client.create_run(settings, dataset.dataset_id)).run_id)


def open_watches() -> int:
    """Return how many watches this process serves."""
    code = Watches.follow.__code__
    return sum(
        1 for each in gc.get_objects() if type(each) is AsyncGeneratorType and each.ag_code is code and each.ag_frame
    )


@contextmanager
def noted_queries() -> Iterator[list[str]]:
    """Yield a list of what this process asks its databases meanwhile."""
    queries: list[str] = []

    def note(_c: object, _cursor: object, statement: str, *_more: object) -> None:
        queries.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    try:
        yield queries
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", note)


def watch(channel: grpc.aio.Channel, run_id: str, **request: Any) -> AsyncIterator[pb.WatchRunResponse]:
    """Watch a run as a client without an opinion of its own."""
    call = run_pb2_grpc.RunServiceStub(channel).WatchRun(pb.WatchRunRequest(run_id=run_id, **request))
    return aiter(call)


async def read_on(messages: AsyncIterator[pb.WatchRunResponse], seen: list[int]) -> None:
    """Read a watch to its end and note the sequence numbers of its events."""
    with translated():
        async for message in messages:
            seen += [event.sequence for event in message.events]


async def test_an_idle_watcher_gets_bookmarks(serve: Serve, settings_of: SettingsOf) -> None:
    """First the snapshot, then, while nothing happens, again and again the event after which to resume."""
    async with serve(watch_bookmark_s=0.02) as client:
        run = await paused_run(client, settings_of("python", "m:f"))
        messages = watch(client._channel, run.run_id, after_sequence=run.last_sequence)
        first = await anext(messages)
        assert first.snapshot.run_id == run.run_id
        assert first.snapshot.last_sequence == run.last_sequence
        for _ in range(3):
            message = await anext(messages)
            assert not message.events
            assert not message.HasField("snapshot")
            assert message.bookmark_sequence == run.last_sequence
        await client.cancel_run(run.run_id)
        while not (message := await anext(messages)).events:
            pass
        assert [event.sequence for event in message.events] == [run.last_sequence + 1]
        assert await anext(messages, None) is None


async def test_a_sequence_that_the_run_has_not_reached_is_refused(serve: Serve, settings_of: SettingsOf) -> None:
    """A watch from the future would wait for ever and miss events: it is refused, and told where the run is."""
    async with serve() as client:
        run = await run_cases(client, settings_of(), recorded(3))
        with pytest.raises(ResumeExpiredError, match=f"has reached event {run.last_sequence}.*after 99") as caught:
            async for _ in client.watch_run(run.run_id, after_sequence=99):
                pass
        assert caught.value.reason == "SEQUENCE_UNKNOWN"
        events = [event async for event in client.watch_run(run.run_id, after_sequence=run.last_sequence)]
        assert [type(event) for event in events] == [Run]


async def test_a_watcher_that_does_not_read_is_ended_and_may_resume(serve: Serve, settings_of: SettingsOf) -> None:
    """Its handler ends; its status says after which event to go on, and nothing is lost."""
    async with serve(watch_stall_s=0.1) as client:
        run = await run_cases(client, settings_of(), recorded(12, size=900_000))
        messages = watch(client._channel, run.run_id, view=row_pb2.ROW_VIEW_FULL)
        await anext(messages)
        await until(open_watches, lambda count: count == 0)
        seen: list[int] = []
        with pytest.raises(WatchBehindError, match="read nothing for") as caught:
            await read_on(messages, seen)
        assert caught.value.reason == "WATCH_TOO_SLOW"
        assert seen == list(range(1, len(seen) + 1))
        assert caught.value.resume_sequence <= len(seen) < run.last_sequence
        rest = [
            event.sequence
            async for event in client.watch_run(run.run_id, after_sequence=len(seen), view=RowView.FULL)
            if not isinstance(event, Run)
        ]
        assert seen + rest == list(range(1, run.last_sequence + 1))


async def test_a_watcher_that_takes_not_even_the_first_message_is_ended(serve: Serve, settings_of: SettingsOf) -> None:
    """With a patience that no message meets, the watch ends with its status: the client does not wait for ever."""
    async with serve(watch_stall_s=1e-9) as client:
        run = await paused_run(client, settings_of("python", "m:f"))
        for _ in range(10):
            with pytest.raises(WatchBehindError, match="read nothing for 1e-09 s: watch again after event 0"):
                async with asyncio.timeout(30):
                    await read_on(watch(client._channel, run.run_id), [])
        await until(open_watches, lambda count: count == 0)


@pytest.mark.parametrize("database_url", [""])
async def test_the_client_resumes_by_itself(serve: Serve, settings_of: SettingsOf) -> None:
    """Whoever loops over watch_run slowly gets every event once, in order, however often the watch was ended."""
    async with serve(watch_stall_s=0.05) as client:
        run = await run_cases(client, settings_of(), recorded(12, size=900_000))
        seen, snapshots = [], 0
        async for event in client.watch_run(run.run_id, view=RowView.FULL):
            if isinstance(event, Run):
                snapshots += 1
                await until(open_watches, lambda count: count == 0)
            else:
                seen.append(event.sequence)
    assert seen == list(range(1, run.last_sequence + 1))
    assert snapshots > 1


@pytest.mark.parametrize("database_url", [""])
async def test_hundreds_of_idle_watchers_cost_little(serve: Serve, settings_of: SettingsOf) -> None:
    """Each costs a task and a handful of objects, no thread and, while nothing happens, no query."""
    count = 800
    async with serve(watch_bookmark_s=0.5) as client, AsyncExitStack() as stack:
        run = await paused_run(client, settings_of("python", "m:f"))
        # A connection takes 128 streams, and channels that are alike share one.
        channels = [
            await stack.enter_async_context(open_channel(client.address, ChannelOptions(reconnect_min_ms=100 + number)))
            for number in range(8)
        ]
        gc.collect()
        before = len(gc.get_objects())
        watchers = []
        for number in range(count):  # one after the other: gRPC ends calls of many that are not accepted soon
            watchers.append(watch(channels[number % 8], run.run_id, after_sequence=run.last_sequence))
            assert (await anext(watchers[-1])).HasField("snapshot")
        assert open_watches() == count
        gc.collect()
        objects = (len(gc.get_objects()) - before) / count
        assert objects < 150, f"{objects} objects a watcher, those of its client among them"
        for _ in range(3):  # what an orchestrator asks every half minute may fall into one of them
            with noted_queries() as queries:
                assert all([(await anext(each)).HasField("bookmark_sequence") for each in watchers])
            if not queries:
                break
        assert queries == []
        await client.cancel_run(run.run_id)
        for messages in watchers:
            while not (message := await anext(messages)).events:
                pass
            assert message.events[-1].state_changed.state == pb.RUN_STATE_CANCELLED
        await until(open_watches, lambda count: count == 0)


@pytest.mark.parametrize("database_url", [""])
async def test_who_comes_back_to_where_a_run_stands_costs_no_query(serve: Serve, settings_of: SettingsOf) -> None:
    """While a run goes on and nothing happens in it, what one watcher has read serves all that come after."""
    async with serve(watch_bookmark_s=0.02) as client:
        dataset = await client.upload_dataset(recorded(3), name="d")
        run = await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)  # waits for its agent's host
        run_id = run.run_id
        run = await until(lambda: client.get_run(run_id), lambda seen: seen.state is not RunState.PENDING)

        async def come() -> AsyncIterator[pb.WatchRunResponse]:
            messages = watch(client._channel, run.run_id, after_sequence=run.last_sequence)
            assert (await anext(messages)).snapshot.last_sequence == run.last_sequence
            assert (await anext(messages)).bookmark_sequence == run.last_sequence
            return messages

        watchers = [await come()]

        async def queries_of_three() -> list[str]:
            with noted_queries() as queries:
                watchers.extend([await come() for _ in range(3)])
            return queries

        await until(queries_of_three, lambda queries: not queries)  # the worker that begins the run makes its own
        await client.cancel_run(run.run_id)
        for messages in watchers:
            while not (message := await anext(messages)).events:
                pass
            assert [event.sequence for event in message.events] == [run.last_sequence + 1]


async def test_a_watch_that_breaks_off_leaves_nothing(serve: Serve, settings_of: SettingsOf) -> None:
    """A client that goes away in the middle takes its watch with it."""
    async with serve() as client:
        run = await paused_run(client, settings_of("python", "m:f"))
        async with Client(client.address) as other:
            await anext(watch(other._channel, run.run_id))
            assert open_watches() == 1
        await until(open_watches, lambda count: count == 0)


async def test_watchers_of_different_pace_see_the_same(serve: Serve, settings_of: SettingsOf) -> None:
    """Whoever keeps up, comes late or resumes in the middle sees the same events in the same order."""
    async with serve() as client:
        dataset = await client.upload_dataset(recorded(300), name="d")
        run = await client.create_run(settings_of(), dataset.dataset_id)

        async def all_events(after: int) -> list[tuple[int, str]]:
            return [
                (event.sequence, event.case_id if isinstance(event, RowResult) else event.state.value)
                async for event in client.watch_run(run.run_id, after_sequence=after)
                if not isinstance(event, Run)
            ]

        live = await asyncio.gather(*(all_events(0) for _ in range(5)))
        late = await all_events(0)
        assert (await client.get_run(run.run_id)).state is RunState.COMPLETED
        assert all(events == late for events in live)
        assert await all_events(150) == late[150:]


async def test_rows_of_a_watch_are_those_that_are_stored(serve: Serve, settings_of: SettingsOf) -> None:
    """Short rows reach a watch with answers from memory, long ones and conversations from the store: all are equal."""
    cases = [
        Case("short", (Turn("q", references=("r",)),), tags=("t",), weight=2.0),
        Case("variables", (Turn(""),), variables={"city": "Jena \U0001f600", "n": 1}, place=7),
        Case("long", (Turn("q"),), category="long"),
        Case("talk", (Turn("one"), Turn("two", references=("b",)))),
    ]

    def agent(request: AgentRequest) -> dict[str, Any]:
        size = 10_000 if request.case_id == "long" else 1
        return {"text": "a\0b" * size, "output": {"n": [1, 2.5]}, "tool_calls": [{"name": "f"}], "model": "m"}

    async with serve() as client:
        dataset = await client.upload_dataset(cases, name="d")
        run = await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)
        watching = asyncio.ensure_future(collect(client.watch_run(run.run_id, view=RowView.FULL)))
        await until(open_watches, lambda count: count == 1)
        hosting = asyncio.ensure_future(client.host_agent(run.run_id, AgentCaller(agent), concurrency=2))
        watched = {row.case_id: row for row in await watching if isinstance(row, RowResult)}
        await hosting
        again = {row.case_id: row for row in await collect(client.watch_run(run.run_id)) if isinstance(row, RowResult)}
        stored = [row async for row in client.list_rows(run.run_id)]
    assert [dataclasses.replace(watched[row.case_id], sequence=0) for row in stored] == stored
    assert [row.case_id for row in stored] == [case.case_id for case in cases]
    assert all(row.response is None and not row.input for row in again.values())


@pytest.mark.parametrize("text", ["\u6570" * 8_000, "\x01" * 8_000], ids=["chinese", "escaped"])
async def test_pages_fit_in_messages_whatever_characters_take(serve: Serve, settings_of: SettingsOf, text: str) -> None:
    """A character takes three bytes in Chinese, and six where JSON escapes it: 600 rows of 24 and 48 kB are read."""
    answer = AgentResponse(text="a", output={"said": text})
    cases = [Case(f"c{i}", (Turn("q"),), recordings=((answer,),)) for i in range(600)]
    async with serve() as client:
        run = await run_cases(client, settings_of(), cases)
        listed = [row async for row in client.list_rows(run.run_id)]
        watched = [row async for row in client.watch_run(run.run_id, view=RowView.FULL)]
    found = [row.response for row in (*listed, *watched) if isinstance(row, RowResult)]
    assert [response.output for response in found if response] == [{"said": text}] * 1_200


async def test_an_answer_that_fits_in_no_message_fails_its_row_alone(serve: Serve, settings_of: SettingsOf) -> None:
    """What adapters measure is texts: 500 kB of control characters are 3 MB once JSON has escaped them."""
    large = AgentResponse(output="\x01" * 500_000, usage=Usage(cost_usd=0.5), latency_ms=2.0)
    cases = [Case("large", (Turn("q", references=("r" * 900_000,)),), recordings=((large,),)), *recorded(2)]
    async with serve() as client:
        run = await run_cases(client, settings_of(), cases)
        rows = {row.case_id: row.response async for row in client.list_rows(run.run_id)}
    assert run.state is RunState.COMPLETED
    found = rows["large"]
    assert found is not None
    assert found.error is not None
    assert found.error.kind is AgentErrorKind.TOO_LARGE
    assert "as a message" in found.error.message
    assert (found.usage, found.latency_ms) == (Usage(cost_usd=0.5), 2.0)
    assert [found.text for each in ("c0", "c1") if (found := rows[each])] == ["x", "x"]


async def collect(events: AsyncIterator[Event]) -> list[Event]:
    """Return all events."""
    return [event async for event in events]


OWNED = (schema.runs, schema.score_values, schema.results, schema.answers, schema.run_events, schema.deletions)


def answered(count: int) -> list[Case]:
    """Return cases with recorded answers."""
    return [
        Case(f"c{i}", (Turn(f"q{i}", references=(f"a{i}",)),), recordings=((AgentResponse(text=f"a{i}"),),))
        for i in range(count)
    ]


async def finished(client: Client, settings: RunSpec, dataset: StoredDataset) -> Run:
    """Run over a dataset and return the run, ended."""
    run = await client.create_run(settings, dataset.dataset_id)
    return await await_end(client, run.run_id)


def count_rows(engine: sa.Engine, *tables: sa.Table) -> list[int]:
    """Count the rows of some tables."""
    with engine.connect() as connection:
        return [connection.execute(sa.select(sa.func.count()).select_from(table)).scalar_one() for table in tables]


async def test_a_deleted_run_leaves_nothing_behind(serve: Serve, settings_of: SettingsOf, engine: sa.Engine) -> None:
    """Answers, results, events and the run go; the dataset stays until it is deleted, when no run uses it."""
    async with serve() as client:
        dataset = await client.upload_dataset(answered(25), name="d")
        first, second = [await finished(client, settings_of(), dataset) for _ in range(2)]
        check = await client.delete_run(first.run_id, validate_only=True)
        assert check.row_count == 25
        assert check.size_bytes > 25 * 100
        assert (await client.get_run(first.run_id)).state is RunState.COMPLETED
        assert await client.delete_run(first.run_id) == check
        with pytest.raises(NotFoundError, match="no run"):
            await client.get_run(first.run_id)
        assert [run.run_id for run in await client.list_runs()] == [second.run_id]
        assert len([row async for row in client.list_rows(second.run_id)]) == 25
        assert count_rows(engine, schema.results, schema.answers, schema.dataset_cases) == [25, 25, 25]
        await client.delete_run(second.run_id)
        assert count_rows(engine, *OWNED, schema.datasets, schema.dataset_cases) == [0] * 6 + [1, 25]
        await client.delete_dataset(dataset.dataset_id)
        assert count_rows(engine, *OWNED, schema.datasets, schema.dataset_cases) == [0] * 8
        again = await client.upload_dataset(answered(25), name="d")
        assert (await finished(client, settings_of(), again)).counts.passed_count == 25


async def test_a_run_that_goes_on_is_not_deleted(serve: Serve, settings_of: SettingsOf) -> None:
    """Only ended and paused runs are deleted; the refusal says what to do."""
    async with serve() as client:
        dataset = await client.upload_dataset(answered(3), name="d")
        run = await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)
        for validate_only in (True, False):
            with pytest.raises(WrongStateError, match="pause or cancel it"):
                await client.delete_run(run.run_id, validate_only=validate_only)
        await client.pause_run(run.run_id)
        assert (await client.delete_run(run.run_id)).row_count == 0
        with pytest.raises(NotFoundError):
            await client.resume_run(run.run_id)


async def test_watchers_of_a_deleted_run_are_told(serve: Serve, settings_of: SettingsOf) -> None:
    """Whoever watches a paused run that is deleted gets NOT_FOUND, not silence."""
    async with serve() as client:
        dataset = await client.upload_dataset(answered(3), name="d")
        run = await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)
        run = await client.pause_run(run.run_id)
        watching = asyncio.Event()

        async def watch() -> None:
            async for event in client.watch_run(run.run_id, after_sequence=run.last_sequence):
                assert isinstance(event, Run)
                watching.set()

        watcher = asyncio.ensure_future(watch())
        await watching.wait()
        await client.delete_run(run.run_id)
        with pytest.raises(NotFoundError, match=f"{run.run_id} was deleted"):
            await watcher


async def test_an_unknown_run_is_answered_without_the_name_of_another(serve: Serve, settings_of: SettingsOf) -> None:
    """A prefix or a mistyped id finds out nothing about runs that others have."""
    async with serve() as client:
        dataset = await client.upload_dataset(answered(1), name="d")
        run = await finished(client, settings_of(), dataset)
        for typed in (run.run_id[:-1] + "x", run.run_id[:12], run.run_id.upper()):
            with pytest.raises(NotFoundError, match="assay runs list") as refused:
                await client.delete_run(typed)
            assert run.run_id not in refused.value.message.replace(typed, "")


async def fill(database: Database, rows: int) -> list[PendingDeletion]:
    """Store the rows of a deleted run and the cases of a deleted dataset."""

    def change(connection: sa.Connection) -> list[PendingDeletion]:
        keys = [{"run_id": "r", "case_index": i // 2, "repeat": i % 2 + 1} for i in range(rows)]
        values = {"case_id": "c", "category": "", "status": "success", "message": "", "scores_json": "[]"}
        connection.execute(
            schema.results.insert(),
            [{**key, **values, "sequence": i, "created_at": "t"} for i, key in enumerate(keys)],
        )
        connection.execute(schema.score_values.insert(), [{**key, "metric": "m", "value": 0.5} for key in keys])
        connection.execute(
            schema.answers.insert(),
            [{**key, "turn_index": 0, "response_json": "{}", "created_at": "t"} for key in keys],
        )
        cases = [(f"c{i}", "{}") for i in range(rows)]
        datasets.add_cases(connection, "u", 0, cases)
        connection.execute(schema.deletions.insert().values(run_id="r", created_at="t"))
        connection.execute(schema.deletions.insert().values(upload_id="u", created_at="t"))
        return [deletions.PendingDeletion(run_id="r"), deletions.PendingDeletion(upload_id="u")]

    return await database.write(change)


async def test_a_page_of_a_run_that_is_being_deleted_is_not_found(open_store: Callable[[], Database]) -> None:
    """A deletion that begins between the check of the run and the read of its rows, of which some are there still."""
    store = open_store()
    try:
        pending, _ = await fill(store, 3)
        with pytest.raises(NotFoundError, match="was deleted"):
            await store.read(lambda c: history.read_page(c, LOCAL, pending.run_id, RowQuery(), None, 2))
    finally:
        store.close()


async def test_no_transaction_removes_many_rows(open_store: Callable[[], Database], engine: sa.Engine) -> None:
    """However large a run is, each transaction removes a bounded number of its rows, through an index."""
    database = open_store()
    try:
        removed = []
        for pending in await fill(database, 1001):
            while gone := await database.write(lambda c: deletions.remove_some(c, pending, 100)):  # noqa: B023
                removed.append(gone)
    finally:
        database.close()
    assert removed == ([100] * 10 + [1]) * 4
    assert (
        count_rows(engine, schema.score_values, schema.results, schema.answers, schema.dataset_cases, schema.deletions)
        == [0] * 5
    )


async def test_others_write_between_two_batches(open_store: Callable[[], Database]) -> None:
    """A deletion leaves the store to others after each batch."""
    database = open_store()
    try:
        deleter = Deleter(database, batch_rows=50)
        deleting = asyncio.ensure_future(deleter.finish((await fill(database, 1000))[0]))
        left = sa.select(sa.func.count()).select_from(schema.answers)
        seen = set()
        while not deleting.done():
            seen.add(await database.write(lambda c: c.execute(left).scalar_one()))
        await deleting
    finally:
        database.close()
    assert len(seen) > 2, "each of the writes waited for the whole deletion"


async def test_an_interrupted_deletion_goes_on_with_the_next_start(
    serve: Serve, open_store: Callable[[], Database], engine: sa.Engine
) -> None:
    """What a stop leaves of a deleted run goes when the orchestrator is there again."""
    database = open_store()
    try:
        pending, _ = await fill(database, 300)
        await database.write(lambda c: deletions.remove_some(c, pending, 100))
    finally:
        database.close()
    async with serve():
        await until(lambda: count_rows(engine, schema.deletions), lambda counts: counts == [0])
    assert count_rows(engine, schema.results, schema.answers, schema.dataset_cases) == [0] * 3


async def test_a_dataset_that_a_new_run_uses_stays(serve: Serve, settings_of: SettingsOf) -> None:
    """A run created while its dataset is deleted either runs and keeps the dataset, or is refused: upload it first."""
    async with serve() as client:
        for _ in range(5):
            dataset = await client.upload_dataset(answered(5), name="d")
            made, gone = await asyncio.gather(
                client.create_run(settings_of(), dataset.dataset_id), client.delete_dataset(dataset.dataset_id),
                return_exceptions=True,
            )  # fmt: skip
            if isinstance(made, NotFoundError):
                assert made.reason == "DATASET_NOT_FOUND"
                continue
            assert isinstance(gone, WrongStateError)
            assert not isinstance(made, BaseException)
            async for _event in client.watch_run(made.run_id):
                pass
            assert (await client.get_run(made.run_id)).counts.passed_count == 5
            await client.delete_run(made.run_id)
