"""Conversations through every adapter and the store: questions, sessions, histories and scores by turn."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.processes import waiting
from tests.support.services.ended_runs import await_end

from assay.agent_host.agent_server import agent_server
from assay.agent_host.caller import AgentCaller
from assay.agent_host.user_code import open_caller
from assay.client.client import Client
from assay.errors import InvalidInputError
from assay.model.answers.agent_response import AgentResponse, AgentStatus, Message, Usage
from assay.model.case import Case, Turn
from assay.model.run import MetricSpec, Run, RunState
from assay.testing.providers import ProviderRequest, Reply, ScriptedProvider

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from assay.model.answers.agent_response import AgentRequest
    from assay.model.run import RunSpec

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSpec]
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import AbstractAsyncContextManager

    from assay.agent_host.protocol import Caller
    from assay.model.run import RowResult, RunSpec


FINISHED = (RunState.COMPLETED, RunState.PAUSED)
TALK = Case("talk", (Turn("one", references=("one!",)), Turn("two"), Turn("three", references=("3",))))


async def host(client: Client, run: Run, agent: Any) -> Run:
    """Answer a run's questions until it ends or pauses, and return it."""
    task = asyncio.ensure_future(client.host_agent(run.run_id, AgentCaller(agent), concurrency=2))
    try:
        seen = await waiting.until(lambda: client.get_run(run.run_id), lambda seen: seen.state in FINISHED)
        assert isinstance(seen, Run)
        return seen
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_every_turn_is_kept_and_scored(serve: Serve, settings_of: SettingsOf) -> None:
    """Questions, references, answers and scores of all turns come back with the row; a retry changes none of it."""

    async def agent(request: AgentRequest) -> str:
        return f"{request.input}!"

    async with serve() as client:
        dataset = await client.upload_dataset([TALK, Case("single", (Turn("q", references=("q!",)),))], name="d")
        run = await host(client, await client.create_run(settings_of("python", "m:f"), dataset.dataset_id), agent)
        talk, single = [row async for row in client.list_rows(run.run_id)]
    assert [turn.response.text for turn in talk.turns if turn.response] == ["one!", "two!", "three!"]
    assert [(turn.input, turn.references) for turn in talk.turns] == [
        ("one", ("one!",)), ("two", ()), ("three", ("3",))
    ]  # fmt: skip
    assert (talk.scores[0].value, talk.passed, single.turns) == (0.5, False, ())
    assert [turn["value"] for turn in talk.scores[0].detail["turns"]] == [1.0, 0.0]
    assert run.summary is not None
    assert run.summary.metrics[0].value == 0.75


async def test_a_paused_conversation_is_scored_whole(serve: Serve, settings_of: SettingsOf) -> None:
    """Turns that were stored before a pause count as those after it, and are not asked again."""
    seen: list[str] = []
    asked, go = asyncio.Event(), asyncio.Event()

    async def agent(request: AgentRequest) -> str:
        seen.append(request.input)
        if request.input == "two":
            asked.set()
            await go.wait()
        return f"{request.input}!"

    async with serve() as client:
        dataset = await client.upload_dataset([TALK], name="d")
        run = await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)
        hosting = asyncio.ensure_future(host(client, run, agent))
        await asked.wait()
        pausing = asyncio.ensure_future(client.pause_run(run.run_id))
        await waiting.until(lambda: client.get_run(run.run_id), lambda seen: seen.pause_cause is not None)
        go.set()
        assert (await pausing).state is RunState.PAUSED
        await hosting
        await host(client, await client.resume_run(run.run_id), agent)
        (row,) = [row async for row in client.list_rows(run.run_id)]
    assert seen == ["one", "two", "three"]
    assert row.scores[0].value == 0.5


async def test_a_conversation_larger_than_a_message_can_be_read(serve: Serve, settings_of: SettingsOf) -> None:
    """Texts that do not fit beside the row are marked as left out; scores of all turns are there."""
    text = "x" * 1_000_000
    own = (Message("system", "Be long."),)  # so that no question carries the answers before it
    talk = Case("long", tuple(Turn(f"q{n}", own, references=("y",)) for n in range(8)))

    async def agent(request: AgentRequest) -> str:
        return text

    async with serve() as client:
        dataset = await client.upload_dataset([talk, TALK], name="d")
        run = await host(client, await client.create_run(settings_of("python", "m:f"), dataset.dataset_id), agent)
        rows = [row async for row in client.list_rows(run.run_id)]
    left_out = [turn.left_out for turn in rows[0].turns]
    assert left_out == [False] * 2 + [True] * 6
    assert [turn.input for turn in rows[0].turns] == [f"q{n}" for n in range(8)]
    assert rows[0].response is not None
    assert len(rows[0].response.text) == 1_000_000
    assert len(rows[0].scores[0].detail["turns"]) == 8
    assert rows[1].turns[0].left_out is False


async def test_a_history_larger_than_a_message_ends_the_conversation(serve: Serve, settings_of: SettingsOf) -> None:
    """A question that cannot be sent is an error of its row; the run ends, and other rows are answered."""
    talk = Case("long", tuple(Turn(f"q{n}") for n in range(8)))

    async def agent(request: AgentRequest) -> str:
        return "x" * 1_000_000 if request.case_id == "long" else "3"

    async with serve() as client:
        dataset = await client.upload_dataset([talk, TALK], name="d")
        run = await host(client, await client.create_run(settings_of("python", "m:f"), dataset.dataset_id), agent)
        rows = [row async for row in client.list_rows(run.run_id)]
    assert [row.status for row in rows] == [AgentStatus.ERROR, AgentStatus.SUCCESS]
    assert "question and history are larger than 3.5 MiB" in rows[0].message
    assert [turn.left_out for turn in rows[0].turns] == [False, False, False, True, False, False, False, False]
    assert [turn.response is not None for turn in rows[0].turns] == [True, True, True, False, True, False, False, False]


async def test_repeats_of_a_conversation_are_rows_of_their_own(serve: Serve, settings_of: SettingsOf) -> None:
    """Each repeat has its turns, its tokens and its value."""

    async def agent(request: AgentRequest) -> AgentResponse:
        right = request.repeat == 1 or request.turn_index == 2
        reference = {"one": "one!", "three": "3"}.get(request.input, "")
        return AgentResponse(text=reference if right else "no", usage=Usage(total_tokens=10))

    async with serve() as client:
        dataset = await client.upload_dataset([TALK], name="d")
        settings = dataclasses.replace(settings_of("python", "m:f"), repeats=2, turns="worst")
        settings = dataclasses.replace(settings, metrics=(*settings.metrics, MetricSpec("tokens")))
        run = await host(client, await client.create_run(settings, dataset.dataset_id), agent)
        rows = [row async for row in client.list_rows(run.run_id)]
    assert [(row.scores[0].value, row.passed) for row in rows] == [(1.0, True), (0.0, False)]
    assert [score.value for row in rows for score in row.scores if score.metric == "tokens"] == [30.0, 30.0]
    assert run.summary is not None
    assert run.summary.repeats


async def test_replay_scores_the_recorded_answer_alone(serve: Serve, settings_of: SettingsOf) -> None:
    """What stands for earlier answers is their reference: it earns nothing."""
    talk = dataclasses.replace(TALK, recordings=((AgentResponse(text="wrong"),),))
    async with serve() as client:
        dataset = await client.upload_dataset([talk], name="d")
        created = await client.create_run(settings_of(), dataset.dataset_id)
        run = await waiting.until(lambda: client.get_run(created.run_id), lambda seen: seen.state in FINISHED)
        (row,) = [row async for row in client.list_rows(run.run_id)]
    assert (row.status, row.scores[0].value, row.passed) == (AgentStatus.SUCCESS, 0.0, False)


async def test_recorded_conversations_replay_to_the_same_scores(serve: Serve, settings_of: SettingsOf) -> None:
    """Rows whose answers are recorded turn by turn come back from replay with equal values, errors among them."""

    async def agent(request: AgentRequest) -> AgentResponse:
        if request.repeat == 2 and request.input == "two":
            raise KeyError("down")
        usage = Usage(total_tokens=10 + request.turn_index)
        return AgentResponse(text="one!" if request.turn_index == 0 else f"{len(request.history)}", usage=usage)

    async with serve() as client:
        for turns in ("mean", "worst", "last"):
            dataset = await client.upload_dataset([TALK], name="d")
            settings = dataclasses.replace(settings_of("python", "m:f", retries=0), repeats=2, turns=turns)
            metrics = (*settings.metrics, MetricSpec("tokens"))
            settings = dataclasses.replace(settings, metrics=metrics)
            run = await host(client, await client.create_run(settings, dataset.dataset_id), agent)
            rows = [row async for row in client.list_rows(run.run_id)]
            given = [[turn.response for turn in row.turns if turn.response is not None] for row in rows]
            recorded = dataclasses.replace(TALK, recordings=tuple(map(tuple, given)))
            dataset = await client.upload_dataset([recorded], name="r")
            replay = dataclasses.replace(settings, agent=settings_of().agent)
            created = await client.create_run(replay, dataset.dataset_id)
            again = await waiting.until(lambda: client.get_run(created.run_id), lambda seen: seen.state in FINISHED)  # noqa: B023
            replayed = [row async for row in client.list_rows(again.run_id)]
            assert [len(answers) for answers in given] == [3, 2]
            assert [row.scores for row in replayed] == [row.scores for row in rows]
            assert [row.turns for row in replayed] == [row.turns for row in rows]
            assert [(row.status, row.latency_ms, row.passed) for row in replayed] == [
                (row.status, row.latency_ms, row.passed) for row in rows
            ]
            assert rows[0].turns[0].response is not None
            assert rows[0].turns[0].response.cold or (rows[1].turns[0].response or AgentResponse()).cold


async def test_an_unknown_word_for_turns_is_refused(serve: Serve, settings_of: SettingsOf) -> None:
    """The orchestrator checks what a client sends."""
    async with serve() as client:
        dataset = await client.upload_dataset([TALK], name="d")
        settings = dataclasses.replace(settings_of("python", "m:f"), turns="all")
        with pytest.raises(InvalidInputError, match="must be one of mean, worst, last"):
            await client.create_run(settings, dataset.dataset_id)


async def test_a_conversation_outlasts_an_orchestrator_that_is_restarted(
    serve: Serve, settings_of: SettingsOf, tmp_path: Path
) -> None:
    """Its object is kept, the turn in flight is not asked again, and the next turn is asked of the same object."""
    asked: list[str] = []
    is_asked, go = asyncio.Event(), asyncio.Event()

    class Agent:
        def __init__(self) -> None:
            self.turns = 0

        async def answer(self, request: AgentRequest) -> str:
            asked.append(request.input)
            self.turns += 1
            if request.input == "two":
                is_asked.set()
                await go.wait()
            return f"{request.input} {self.turns}"

    async with Client(f"unix:{tmp_path}/o.sock", patience_s=60.0) as hosting_client:
        async with serve(grace_s=0.1) as client:
            dataset = await client.upload_dataset([TALK], name="d")
            run = await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)
            hosting = asyncio.ensure_future(host(hosting_client, run, Agent))
            await is_asked.wait()
        async with serve() as client:
            go.set()
            await hosting
            (row,) = [row async for row in client.list_rows(run.run_id)]
    assert [turn.response.text for turn in row.turns if turn.response] == ["one 1", "two 2", "three 3"]
    assert asked == ["one", "two", "three"]


CASES = [Case(f"c{number}", tuple(Turn(f"q{number}.{turn}") for turn in range(3))) for number in range(3)]
REPEATS = 2
COMMAND = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    said = [asked["session_id"], *(message["content"] for message in asked["history"]), asked["input"]]
    print(json.dumps({"request_id": asked["request_id"], "text": json.dumps(said)}), flush=True)
"""


def said_of(session: str, history: list[str], question: str) -> str:
    """Return an answer that says what was asked."""
    return json.dumps([session, *history, question])


def function(request: AgentRequest) -> str:
    return said_of(request.session_id, [message.content for message in request.history], request.input)


async def stream(request: AgentRequest) -> AsyncIterator[str]:
    text = function(request)
    yield text[:3]
    yield text[3:]


def generator(request: AgentRequest) -> Iterator[str]:
    yield function(request)


class State:
    """An agent that is sent texts alone, and remembers."""

    def __init__(self) -> None:
        self.history: list[str] = []

    def answer(self, question: str) -> str:
        text = said_of("", self.history, question)
        self.history += [question, text]
        return text


async def answer_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer requests of one connection."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            asked = json.loads(await reader.readexactly(length))
            history = [message["content"] for message in asked["history"]]
            body = json.dumps({"text": said_of(asked["session"], history, asked["question"])}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass  # the caller has hung up
    finally:
        writer.close()


def answer_prompt(request: ProviderRequest) -> Reply:
    """Answer with the messages that a provider is sent; its protocol has no session."""
    *history, question = [message["content"] for message in request.body["messages"]]
    return Reply(said_of("", history, question))


HOSTED: dict[str, Callable[..., Any]] = {
    "function": function, "stream": stream, "generator": generator, "class": State,
}  # fmt: skip


async def rows_of(
    name: str, serve: Serve, settings_of: SettingsOf, folder: Path, stack: AsyncExitStack
) -> list[RowResult]:
    """Return the rows of a run with an adapter, or a kind of Python agent."""
    caller: Caller | None = None
    if name in HOSTED:
        settings, caller = settings_of("python", "m:f"), AgentCaller(HOSTED[name])
    elif name == "command":
        (folder / "talk.py").write_text(COMMAND)
        settings = settings_of("command", f"{sys.executable} talk.py", options={"processes": 2})
        caller = open_caller(settings.agent, folder)
    elif name == "http":
        listener = await asyncio.start_server(answer_http, "127.0.0.1", 0)
        stack.callback(listener.close)
        body = {"question": "{{input}}", "history": "{{history}}", "session": "{{session_id}}"}
        port = listener.sockets[0].getsockname()[1]
        settings = settings_of("http", f"http://127.0.0.1:{port}/", options={"body": body})
    elif name.startswith("grpc"):
        server = stack.enter_context(agent_server(State if name == "grpc class" else function))
        settings = settings_of("grpc", server.address, options={"stream": name == "grpc stream"})
    else:
        provider = stack.enter_context(ScriptedProvider(answer_prompt))
        url = provider.openai_url if name == "openai" else provider.url
        settings = settings_of(name, "model", options={"base_url": url, "api_key": "${BOT_KEY}"})
    client = await stack.enter_async_context(serve(agent_env=("BOT_*",)))
    dataset = await client.upload_dataset(CASES, name="d")
    run = await client.create_run(dataclasses.replace(settings, repeats=REPEATS), dataset.dataset_id)
    hosting = asyncio.ensure_future(client.host_agent(run.run_id, caller, concurrency=4)) if caller else None
    await await_end(client, run.run_id)
    if hosting is not None:
        await hosting
    return [row async for row in client.list_rows(run.run_id)]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    "name", [*HOSTED, "command", "http", "grpc", "grpc stream", "grpc class", "openai", "anthropic"]
)
async def test_every_adapter_holds_a_conversation(
    name: str, serve: Serve, settings_of: SettingsOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each turn brings what was said before it, in one session for a case and repeat, and another for every other."""
    monkeypatch.setenv("BOT_KEY", "k-1")
    async with AsyncExitStack() as stack:
        rows = await rows_of(name, serve, settings_of, tmp_path, stack)
    assert [(row.case_id, row.repeat) for row in rows] == [(case.case_id, n) for case in CASES for n in (1, 2)]
    sessions = set()
    for row in rows:
        history: list[str] = []
        of_row = set()
        for turn in row.turns:
            assert turn.response is not None, row.message
            assert turn.response.error is None
            session, *said = json.loads(turn.response.text)
            assert said == [*history, turn.input]
            history += [turn.input, turn.response.text]
            of_row.add(session)
        if "class" not in name:  # its session is the object
            assert len(of_row) == 1
            sessions |= of_row
    if "class" not in name and name not in ("openai", "anthropic"):
        assert len(sessions) == len(CASES) * REPEATS
    cold = [turn.response.cold for row in rows for turn in row.turns if turn.response is not None]
    assert 1 <= sum(cold) <= 2, "the first call, of each process"
