"""Runs of http agents, whose rows hold the answers to their own questions, and the times that rows store."""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING

import pytest
from tests.support.services.ended_runs import await_end, run_cases

from assay.agent_host.caller import AgentCaller
from assay.errors import InvalidInputError
from assay.model.case import Case, Turn
from assay.model.run import RunState

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.run import Run, RunSpec

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSpec]
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.run import RunSpec


ROWS = 300


@asynccontextmanager
async def answering(reply_to: Callable[[str], object]) -> AsyncIterator[tuple[str, list[str]]]:
    """Serve JSON replies to inputs; yields the URL and the inputs that came."""
    asked: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                asked.append(json.loads(await reader.readexactly(length))["input"])
                reply = reply_to(asked[-1])
                status = b"200 OK" if not isinstance(reply, int) else b"%d Word" % reply
                body = json.dumps(reply).encode()
                writer.write(b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n" % (status, len(body)) + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the agent's caller has hung up, as it may
        finally:
            writer.close()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/", asked
    finally:
        listener.close()


CASES = [Case(f"c{i}", (Turn(f"q{i}", references=("yes",)),)) for i in range(40)]


async def test_a_wrong_mapping_costs_one_question(serve: Serve, settings_of: SettingsOf) -> None:
    """The first reply in which the mapping finds nothing ends the run, naming expression and keys."""
    async with answering(lambda _: {"reply": {"says": "yes"}, "\x1b[31mid": 1}) as (url, asked), serve() as client:
        wanted = settings_of("http", url, concurrency=16, options={"response": {"text": "reply.said"}})
        run = await run_cases(client, wanted, CASES)
    assert run.state is RunState.FAILED
    assert len(asked) == 1
    for said in ("agent.response.text (reply.said) finds nothing", "'reply'", "\\x1b[31mid", "Correct agent.response"):
        assert said in run.state_message


async def test_a_reply_that_differs_later_is_an_error_of_its_row(serve: Serve, settings_of: SettingsOf) -> None:
    """Once a reply could be mapped, the mapping is right; before, other failures show nothing about it."""
    async with (
        answering(lambda text: {"q0": 404, "q20": {"reply": None}}.get(text, {"reply": "yes"})) as (url, asked),
        serve() as client,
    ):
        wanted = settings_of("http", url, concurrency=4, retries=0, options={"response": {"text": "reply"}})
        run = await run_cases(client, wanted, CASES)
    assert (run.state, len(asked)) == (RunState.COMPLETED, len(CASES))
    assert (run.counts.passed_count, run.counts.agent_error_count) == (len(CASES) - 2, 2)


async def test_a_run_with_answers_has_no_dry_run(serve: Serve, settings_of: SettingsOf) -> None:
    """Retried rows whose replies cannot be mapped are errors: the stored answers show that the mapping is right."""
    async with (
        answering(lambda text: {"reply": None if text == "q20" else "yes"}) as (url, asked),
        serve() as client,
    ):
        wanted = settings_of("http", url, retries=0, options={"response": {"text": "reply"}})
        run = await run_cases(client, wanted, CASES)
        await client.retry_run(run.run_id)
        run = await await_end(client, run.run_id)
    assert (run.state, len(asked)) == (RunState.COMPLETED, len(CASES) + 1)
    assert (run.counts.passed_count, run.counts.agent_error_count) == (len(CASES) - 1, 1)


@pytest.mark.parametrize(("adapter", "options"), [("a2a", {}), ("adk", {"app_name": "a"})])
async def test_a_service_that_is_not_there_has_no_run(
    serve: Serve, settings_of: SettingsOf, adapter: str, options: dict[str, str]
) -> None:
    """It is refused like a wrong spec, and so is a host that the operator does not allow."""
    async with serve() as client:
        dataset = await client.upload_dataset(CASES, name="d")
        for target, said in (
            ("http://127.0.0.1:9", "cannot be reached"),
            ("http://10.0.0.1", "may not call '10.0.0.1'"),
        ):
            with pytest.raises(InvalidInputError, match=said) as refusal:
                await client.create_run(settings_of(adapter, target, options=options), dataset.dataset_id)
            assert {problem.field for problem in refusal.value.problems} == {"agent.target"}


async def test_an_agent_that_answers_twice_shifts_no_row(serve: Serve, settings_of: SettingsOf) -> None:
    """Half of its replies are sent twice: every row is stored with its own answer, and none is an error."""
    rng = random.Random(4)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                asked = json.loads(await reader.readexactly(length))["input"]
                body = json.dumps({"text": f"answer to {asked}"}).encode()
                reply = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body
                writer.write(reply * (2 if rng.random() < 0.5 else 1))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the agent's caller has hung up, as it may
        finally:
            writer.close()

    cases = [Case(f"c{i}", (Turn(f"q{i}", references=(f"answer to q{i}",)),)) for i in range(ROWS)]
    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/"
    try:
        async with serve() as client:
            run = await run_cases(client, settings_of("http", url, concurrency=8, retries=2), cases)
            rows = [row async for row in client.list_rows(run.run_id)]
    finally:
        listener.close()
    assert run.state is RunState.COMPLETED
    assert [row.response.text for row in rows if row.response is not None] == [f"answer to q{i}" for i in range(ROWS)]
    assert (run.counts.passed_count, run.counts.agent_error_count) == (ROWS, 0)


THREE_CASES = [Case(f"c{number}", (Turn(f"q{number}", references=("a",)),)) for number in range(3)]


async def hosted(client: Client, settings: RunSpec, agent: Callable[[str], str]) -> Run:
    """Run with an agent on this side, to the end."""
    dataset = await client.upload_dataset(THREE_CASES, name="d")
    run = await client.create_run(settings, dataset.dataset_id)
    caller = AgentCaller(agent)
    await asyncio.gather(client.host_agent(run.run_id, caller, concurrency=2), _watched(client, run.run_id))
    return await client.get_run(run.run_id)


async def _watched(client: Client, run_id: str) -> None:
    await await_end(client, run_id)


async def test_a_row_says_when_it_began_and_how_long_all_of_it_took(serve: Serve, settings_of: SettingsOf) -> None:
    """Its start lies within the run's; the whole takes no less than all attempts at the answer together."""
    failed: set[str] = set()

    def agent(question: str) -> str:
        if question not in failed:
            failed.add(question)
            raise OSError("the first time")
        return "a"

    async with serve() as client:
        run = await hosted(client, settings_of("python", "agent:answer", retries=1, concurrency=2), agent)
        rows = [row async for row in client.list_rows(run.run_id)]
        attempts = await client.list_attempts(run.run_id, "c1")
    assert run.state is RunState.COMPLETED
    for row in rows:
        began = datetime.fromisoformat(row.started_at)
        assert datetime.fromisoformat(run.created_at) <= began <= datetime.fromisoformat(run.ended_at)
        assert row.response is not None
        assert row.duration_ms is not None
        assert row.latency_ms is not None
        assert row.duration_ms >= row.latency_ms + sum(attempt.latency_ms for attempt in row.response.attempts) > 0
        assert "the first time" in row.response.attempts[0].error.traceback
    assert attempts[0].result is not None
    assert attempts[0].result.duration_ms == rows[1].duration_ms


async def test_a_result_that_is_set_aside_keeps_its_times(serve: Serve, settings_of: SettingsOf) -> None:
    """A retry has times of its own, and the attempt before it keeps those it had."""

    def broken(question: str) -> str:
        raise KeyError("no")

    async with serve() as client:
        settings = settings_of("python", "agent:answer", retries=0, concurrency=2)
        run = await hosted(client, settings, broken)
        before = [row async for row in client.list_rows(run.run_id, where="case:c2")]
        await client.retry_run(run.run_id)
        caller = AgentCaller(lambda question: "a")
        await asyncio.gather(client.host_agent(run.run_id, caller, concurrency=2), _watched(client, run.run_id))
        attempts = [attempt.result for attempt in await client.list_attempts(run.run_id, "c2")]
    assert [one.started_at for one in attempts[:1] if one is not None] == [before[0].started_at]
    assert attempts[0] is not None
    assert attempts[1] is not None
    assert attempts[0].duration_ms == before[0].duration_ms
    assert attempts[1].started_at >= attempts[0].started_at


async def test_the_rows_of_one_case_are_read_alone(serve: Serve, settings_of: SettingsOf) -> None:
    """Every repeat with question, answer and references; with a filter of failed rows none of a case that passed."""
    async with serve() as client:
        run = await hosted(
            client, settings_of("python", "agent:answer"), lambda question: "a" if question == "q1" else "b"
        )
        for where, expected in (
            ("case:c1", ["c1"]), ("case:c1 failed", []), ("case:c2 failed", ["c2"]), ("", ["c0", "c1", "c2"]),
            ("case:c9", []),
        ):  # fmt: skip
            assert [row.case_id async for row in client.list_rows(run.run_id, where=where)] == expected
        (row,) = [row async for row in client.list_rows(run.run_id, where="case:c1")]
        assert (row.case_id, row.input, row.references) == ("c1", "q1", ("a",))
