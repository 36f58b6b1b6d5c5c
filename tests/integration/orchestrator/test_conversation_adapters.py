"""Conversations of every adapter that can hold one: the same questions, sessions and histories, turn by turn."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import sys
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest

from assay.agent_host.agent_server import agent_server
from assay.agent_host.caller import AgentCaller
from assay.agent_host.user_code import open_caller
from assay.model.case import Case, Turn
from assay.testing.providers import ProviderRequest, Reply, ScriptedProvider

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from assay.agent_host.protocol import Caller
    from assay.client.client import Client
    from assay.model.answers.agent_response import AgentRequest
    from assay.model.run import CaseResult, RunSettings

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSettings]

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
) -> list[CaseResult]:
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
    async for _ in client.watch_run(run.run_id):
        pass
    if hosting is not None:
        await hosting
    return [row async for row in client.list_results(run.run_id)]


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
    assert [(row.case_id, row.repeat_index) for row in rows] == [(case.case_id, n) for case in CASES for n in (0, 1)]
    sessions = set()
    for row in rows:
        history: list[str] = []
        of_row = set()
        for turn in row.turns:
            assert turn.response is not None, row.reason
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
