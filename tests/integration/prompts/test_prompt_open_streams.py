"""Streams of services that leave the connection open after the end of the reply."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from assay.testing.providers import Reply, ScriptedProvider

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from assay.model.answers.agent_response import AgentResponse
    from assay_orchestrator.agents.prompt import PromptAgent

    AgentAt = Callable[..., PromptAgent]
    Ask = Callable[..., Awaitable[AgentResponse]]

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
RESPONSES = {"api": "responses"}
CHAT = [{"choices": [{"index": 0, "delta": {"content": "Paris"}, "finish_reason": "stop"}]}, "[DONE]"]
BLOCK = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Paris"}}
MESSAGES = [{"type": "message_start", "message": {"content": []}}, BLOCK, {"type": "message_stop"}]
OUTPUT = [{"type": "message", "content": [{"type": "output_text", "text": "Paris"}]}]


def ending(status: str) -> list[Any]:
    """Return the events of a response that ends so."""
    return [{"type": f"response.{status}", "response": {"status": status, "output": OUTPUT}}]


def data(event: Any) -> bytes:
    """Return an event as it is sent."""
    return b"data: " + (event if isinstance(event, str) else json.dumps(event)).encode() + b"\n\n"


@pytest.mark.parametrize(
    ("adapter", "options", "events", "text", "error"),
    [
        ("openai", {}, CHAT, "Paris", None),
        ("anthropic", {}, MESSAGES, "Paris", None),
        ("openai", RESPONSES, ending("completed"), "Paris", None),
        ("openai", RESPONSES, ending("incomplete"), "Paris", "raised"),
        ("openai", RESPONSES, ending("cancelled"), "Paris", "raised"),
        ("openai", RESPONSES, ending("failed"), "", "http_status"),
        ("openai", RESPONSES, [{"type": "response.completed"}], "", "unreachable"),
    ],
)
async def test_a_stream_ends_with_the_mark_of_its_end(
    adapter: str, options: dict[str, Any], events: list[Any], text: str, error: str | None, agent_at: AgentAt, ask: Ask
) -> None:
    """The answer counts while the service still holds the connection open, which then is closed."""
    answered, closed = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD + b"".join(map(data, events)))
        await answered.wait()
        await reader.read()  # to its end
        writer.close()
        closed.set()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    agent = agent_at(
        adapter, f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}", stream=True, concurrency=1, **options
    )
    async with listener, asyncio.timeout(60):
        response = await ask(agent, timeout_s=20)
        answered.set()
        await closed.wait()
    assert (response.error and response.error.kind.value, response.text) == (error, text)


@pytest.mark.parametrize("adapter", ["openai", "anthropic"])
async def test_a_provider_that_sends_streams_twice_shifts_no_answer(adapter: str, agent_at: AgentAt, ask: Ask) -> None:
    """What follows a stream is not the answer to the next question of the connection."""
    with ScriptedProvider(lambda request: Reply(request.question, twice=True)) as provider:
        agent = agent_at(adapter, provider, stream=True)
        questions = [f"question {index}" for index in range(20)]
        assert [(await ask(agent, question)).text for question in questions] == questions
        assert len(provider.requests) == len(questions)
