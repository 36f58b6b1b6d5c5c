"""`assay.agent_server`: an AgentService server for a Python agent."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.agent.v1 import agent_pb2, agent_pb2_grpc
from assay.agent_host.answers.answer_message import answer_to_wire
from assay.agent_host.caller import AgentCaller
from assay.agent_host.concurrency.executor import AgentExecutor
from assay.agent_host.entry_point import callable_problem
from assay.agent_host.loader import AgentImportError, load_agent
from assay.errors import InvalidInputError, Problem
from assay.model.answers.agent_response import clean_text
from assay.rpc.options import ServerOptions
from assay.rpc.server import RpcServer, serve_until_signal
from assay.wire.agent import request_from_wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from types import TracebackType

    import grpc
    import grpc.aio

    from assay.model.answers.agent_response import AgentRequest, AgentResponse

    Context = grpc.aio.ServicerContext[Any, Any]

SERVICE = "assay.agent.v1.AgentService"
"""The service's name for health checks and reflection."""

_MAX_CONCURRENCY = 1000
_LONGEST_CALL_S = 3700.0
"""Slightly more than the longest `timeout` of a spec."""
_UNLIMITED_S = 3600.0
"""The timeout of a call with neither a deadline nor `timeout_ms`."""
_SHARE_OF_LIMIT, _SHARE_OF_REST = 0.98, 0.97
"""The agent's share of its time limit, and of the time until the deadline, which gRPC rounds up by as much as 1%; the
rest is for sending the reason for a missing answer."""


class AgentService(agent_pb2_grpc.AgentServiceServicer):
    """Answers requests with a Python agent.

    Args:
        caller: The agent.
        concurrency: Maximum number of concurrent calls; further ones wait, within their deadlines.
    """

    def __init__(self, caller: AgentCaller, concurrency: int) -> None:
        self._caller = caller
        self._free = asyncio.Semaphore(concurrency)

    async def Answer(self, request: agent_pb2.AnswerRequest, context: Context) -> agent_pb2.AnswerResponse:
        """Return the agent's answer; a failed agent is an answer with status ERROR."""
        asked = _question(request)
        return agent_pb2.AnswerResponse(response=_message(asked, await self._call(asked, context)))

    async def AnswerStream(
        self, request: agent_pb2.AnswerStreamRequest, context: Context
    ) -> AsyncIterator[agent_pb2.AnswerStreamResponse]:
        """Yield the agent's texts as it yields them, then the answer."""
        asked = _question(request)
        pieces: list[str] = []
        moved = asyncio.Event()

        def add(piece: str) -> None:
            pieces.append(clean_text(piece))
            moved.set()

        answering = asyncio.create_task(self._call(asked, context, add))
        answering.add_done_callback(lambda _: moved.set())
        sent: list[str] = []
        try:
            while pieces or not answering.done():
                await moved.wait()
                moved.clear()
                text = "".join(pieces)
                pieces.clear()
                if text:
                    sent.append(text)
                    yield agent_pb2.AnswerStreamResponse(piece=text)
            response = answering.result()
            if response.text == "".join(sent):
                response = dataclasses.replace(response, text="")  # all of it has been sent
            yield agent_pb2.AnswerStreamResponse(response=_message(asked, response))
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    async def _call(
        self, request: AgentRequest, context: Context, on_piece: Callable[[str], None] | None = None
    ) -> AgentResponse:
        async with self._free:
            # Started here: the wait for a free slot counts as the client's waiting time.
            left_s = context.time_remaining()
            limits = [] if left_s is None else [left_s * _SHARE_OF_REST]
            if request.timeout_s:
                limits.append(request.timeout_s * _SHARE_OF_LIMIT)
            timeout_s = min(limits, default=_UNLIMITED_S)
            response = await self._caller.call(dataclasses.replace(request, timeout_s=timeout_s), on_piece)
        # The client's own measurement includes the network.
        reported_ms = response.latency_ms if response.reported_latency_ms is None else response.reported_latency_ms
        return dataclasses.replace(response, latency_ms=None, reported_latency_ms=reported_ms)


def _question(request: agent_pb2.AnswerRequest | agent_pb2.AnswerStreamRequest) -> AgentRequest:
    if not request.HasField("request"):
        raise InvalidInputError([Problem("is missing: send the question", "request")])
    try:
        return request_from_wire(request.request)
    except ValueError as problem:
        raise InvalidInputError([Problem(str(problem), "request")]) from None


def _message(request: AgentRequest, response: AgentResponse) -> agent_pb2.AgentResponse:
    message = answer_to_wire(response)
    message.request_id = request.request_id
    return message


def agent_server(
    agent: Callable[..., Any] | str,
    *,
    port: int = 0,
    host: str = "127.0.0.1",
    concurrency: int = 16,
    credentials: grpc.ServerCredentials | None = None,
    grace_s: float = 10.0,
) -> AgentServer:
    """Return a server that answers over gRPC with a Python agent, for `agent: {adapter: grpc, target: HOST:PORT}`.

    `.serve()` serves until SIGINT or SIGTERM. As a context manager, the server runs in a thread until the block ends.

    Args:
        agent: A function of one question, as for the python adapter, or its target: module:function or
            file.py:function.
        port: The port to listen on; 0 takes a free port.
        host: The address to listen on; 0.0.0.0 for all interfaces.
        concurrency: Maximum number of concurrent calls, 1 to 1,000; further ones wait, within their deadlines.
        credentials: The certificate and key from `grpc.ssl_server_credentials`; None without TLS.
        grace_s: How long running calls may continue when the server stops, in seconds.

    Raises:
        AgentImportError: The agent's module raised.
        InvalidInputError: An argument is invalid; holds every problem.
    """
    problems = []
    if isinstance(agent, str):
        try:
            agent = load_agent(agent, Path.cwd())
        except AgentImportError:
            raise  # it has the agent's own traceback
        except InvalidInputError as refusal:
            problems += [Problem(cause.message, "agent") for cause in refusal.problems]
    elif problem := callable_problem(agent):
        problems.append(Problem(problem, "agent"))
    if not 0 <= port <= 65_535:
        problems.append(Problem(f"must be from 0 to 65535, not {port}", "port"))
    if not 1 <= concurrency <= _MAX_CONCURRENCY:
        problems.append(Problem(f"must be from 1 to {_MAX_CONCURRENCY}, not {concurrency}", "concurrency"))
    if problems or isinstance(agent, str):
        raise InvalidInputError(problems)
    address = f"[{host}]:{port}" if ":" in host.strip("[]") and not host.startswith("[") else f"{host}:{port}"
    return AgentServer(agent, address, concurrency=concurrency, credentials=credentials, grace_s=grace_s)


class AgentServer:
    """A server for one agent; create it with `assay.agent_server`.

    Attributes:
        address: The server's address, "host:port"; it has the actual port once the server runs.
    """

    def __init__(
        self,
        agent: Callable[..., Any],
        address: str,
        *,
        concurrency: int,
        credentials: grpc.ServerCredentials | None,
        grace_s: float,
    ) -> None:
        self.address = address
        self._listen = address
        self._agent = agent
        self._concurrency = concurrency
        self._grace_s = grace_s
        self._options = ServerOptions(
            credentials=credentials,
            deadline_cap_s=_LONGEST_CALL_S,
            # The server has few clients: a single one may use all slots.
            streams_per_connection=_MAX_CONCURRENCY,
            peer_ratio=float(_MAX_CONCURRENCY),
        )
        self._stack = ExitStack()
        self._running: RpcServer | None = None

    def serve(self) -> None:
        """Serve until SIGINT or SIGTERM; a second one does not wait for running calls.

        Raises:
            SetupError: The address is in use or does not belong to this machine.
        """
        asyncio.run(self._serve())

    def __enter__(self) -> AgentServer:
        """Serve in a separate thread.

        Raises:
            SetupError: The address is in use or does not belong to this machine.
        """
        with ExitStack() as stack:
            loop = asyncio.new_event_loop()
            loop.set_default_executor(AgentExecutor())
            stack.callback(loop.close)
            thread = threading.Thread(target=loop.run_forever, name="agent server", daemon=True)
            thread.start()
            stack.callback(thread.join)
            stack.callback(loop.call_soon_threadsafe, loop.stop)

            def run(work: Coroutine[Any, Any, None]) -> None:
                asyncio.run_coroutine_threadsafe(work, loop).result()

            caller = AgentCaller(self._agent)
            # gRPC closes a socket that event loops read along with its last server, so the server must outlive its
            # loop.
            self._running = server = self._new_server(caller)
            run(self._start(server))
            stack.callback(lambda: run(caller.aclose()))
            stack.callback(lambda: run(server.stop(self._grace_s)))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop the server; running calls may continue for `grace_s`."""
        self._stack.close()
        self._running = None

    async def _serve(self) -> None:
        asyncio.get_running_loop().set_default_executor(AgentExecutor())
        caller = AgentCaller(self._agent)

        async def say_where(address: str) -> None:
            self.address = address
            sys.stderr.write(f"agent served at {address} ({SERVICE}); SIGINT or SIGTERM stops it\n")

        try:
            await serve_until_signal(self._new_server(caller), self._listen, on_ready=say_where, grace_s=self._grace_s)
        finally:
            await caller.aclose()

    async def _start(self, server: RpcServer) -> None:
        self.address = await server.start(self._listen)
        server.set_serving(True)

    def _new_server(self, caller: AgentCaller) -> RpcServer:
        server = RpcServer(self._options)
        service = AgentService(caller, self._concurrency)
        server.add(SERVICE, lambda grpc: agent_pb2_grpc.add_AgentServiceServicer_to_server(service, grpc))
        return server
