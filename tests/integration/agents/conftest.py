"""A server on a real port that sends the bytes a test gives it."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import uvloop

from assay.model.run import AgentSpec
from assay_orchestrator.agents.access import AgentAccess
from assay_orchestrator.agents.http import HttpAgent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Writer = asyncio.StreamWriter


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run the tests of this folder with both event loops; the orchestrator uses the second."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@dataclass
class Received:
    """A request as received."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))


@dataclass
class LocalServer:
    """Answers every request by calling `reply` with the request and the connection."""

    reply: Callable[[Received, Writer], Awaitable[None]]
    url: str = ""
    received: list[Received] = field(default_factory=list)

    async def handle(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode("latin-1").split("\r\n")
                method, path, _ = lines[0].split(" ")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:-2])}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                request = Received(method, path, headers, body)
                self.received.append(request)
                await self.reply(request, writer)
                await writer.drain()
                if writer.is_closing():
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the agent has hung up, as it may
        finally:
            writer.close()


def http_bytes(body: bytes, *, status: int = 200, **headers: str) -> bytes:
    """Return a whole HTTP reply; underscores in header names stand for dashes."""
    headers = {"content_type": "application/json", **headers}
    lines = [f"HTTP/1.1 {status} Word"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if "content_length" not in headers:
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def sends(*replies: bytes) -> Callable[[Received, Writer], Awaitable[None]]:
    """Return a `reply` that sends these replies in turn and repeats the last one."""
    waiting = list(replies)

    async def reply(_request: Received, writer: Writer) -> None:
        writer.write(waiting.pop(0) if len(waiting) > 1 else waiting[0])

    return reply


@asynccontextmanager
async def _listening(server: LocalServer) -> AsyncIterator[LocalServer]:
    listener = await asyncio.start_server(server.handle, "127.0.0.1", 0, limit=2**20)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/ask"
    try:
        yield server
    finally:
        listener.close()


@pytest.fixture
async def listen() -> AsyncIterator[Callable[..., Any]]:
    """Start a server that sends the given replies, or runs the given `reply`."""
    async with AsyncExitStack() as stack:

        async def start(*replies: Any) -> LocalServer:
            reply = replies[0] if callable(replies[0]) else sends(*replies)
            return await stack.enter_async_context(_listening(LocalServer(reply)))

        yield start


@pytest.fixture
async def agent_of() -> AsyncIterator[Callable[..., HttpAgent]]:
    """Return a factory of agents for a server or URL; keyword arguments become options."""
    async with AsyncExitStack() as stack:

        def make(target: Any, environ: dict[str, str] | None = None, **options: Any) -> HttpAgent:
            url = target.url if isinstance(target, LocalServer) else str(target)
            agent = HttpAgent(
                AgentSpec("http", url, options=options),
                AgentAccess(("127.0.0.1",), ("BOT_*",), environ or {}),
            )
            stack.push_async_callback(agent.aclose)
            return agent

        yield make


@pytest.fixture
def reply_of() -> Callable[..., bytes]:
    """Return the function that builds a complete HTTP reply."""
    return http_bytes
