"""Holding a ServeAgent stream: the orchestrator asks, the user's code answers here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from assay.answers import AgentErrorKind, MalformedAnswerError, error_response
from assay.hosting.calling import AgentCaller
from assay.rpc.status import translated
from assay.v1 import agent_pb2, orchestrator_pb2_grpc
from assay.v1 import orchestrator_pb2 as pb
from assay.wire import request_from_wire, response_to_wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    import grpc

__all__ = ["host_agent"]

_MAX_MESSAGE_BYTES = 2 * 1024 * 1024


async def host_agent(channel: grpc.aio.Channel, run_id: str, caller: AgentCaller, *, concurrency: int) -> None:
    """Answer a run's questions until the run asks no more.

    Args:
        channel: To the orchestrator.
        run_id: The run.
        caller: The agent.
        concurrency: Most questions at once.

    Raises:
        UnavailableError: The connection was lost; attach again.
        AssayError: The orchestrator refused.
    """
    host = _Host(caller)
    stub = orchestrator_pb2_grpc.RunServiceStub(channel)
    call = stub.ServeAgent(host.outgoing(run_id, concurrency))
    try:
        with translated():
            async for message in call:
                if not host.take(message):
                    return
    finally:
        call.cancel()
        await host.aclose()


class _Host:
    def __init__(self, caller: AgentCaller) -> None:
        self._caller = caller
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._answers: list[agent_pb2.AgentResponse] = []
        self._moved = asyncio.Event()
        self._closed = False

    def take(self, message: pb.ServeAgentResponse) -> bool:
        """Take a message of the orchestrator; False once it asks no more."""
        match message.WhichOneof("message"):
            case "requests":
                for request in message.requests.requests:
                    self._start(request)
            case "cancelled":
                for request_id in message.cancelled.request_ids:
                    if (task := self._tasks.get(request_id)) is not None:
                        task.cancel()
            case "detached":
                return False
        return True

    async def outgoing(self, run_id: str, concurrency: int) -> AsyncIterator[pb.ServeAgentRequest]:
        """Yield what the orchestrator is to be told."""
        yield pb.ServeAgentRequest(attach=pb.AttachAgent(run_id=run_id, concurrency=concurrency))
        while not self._closed:
            await self._moved.wait()
            self._moved.clear()
            ready, self._answers = self._answers, []
            for batch in _batches(ready):
                yield pb.ServeAgentRequest(responses=pb.AgentResponses(responses=batch))

    async def aclose(self) -> None:
        """Stop calling."""
        self._closed = True
        self._moved.set()
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, request: agent_pb2.AgentRequest) -> None:
        task = asyncio.create_task(self._answer(request))
        self._tasks[request.request_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(request.request_id, None))

    async def _answer(self, request: agent_pb2.AgentRequest) -> None:
        response = await self._caller.call(request_from_wire(request))
        try:
            message = response_to_wire(response)
        except (MalformedAnswerError, ValueError) as problem:
            message = response_to_wire(
                error_response(AgentErrorKind.MALFORMED, f"the agent returned no answer: {problem}")
            )
        if message.ByteSize() > _MAX_MESSAGE_BYTES:
            message = response_to_wire(error_response(AgentErrorKind.TOO_LARGE, "the answer is larger than 2 MiB"))
        message.request_id = request.request_id
        self._answers.append(message)
        self._moved.set()


def _batches(messages: Iterable[agent_pb2.AgentResponse]) -> Iterable[list[agent_pb2.AgentResponse]]:
    batch: list[agent_pb2.AgentResponse] = []
    size = 0
    for message in messages:
        if batch and size + message.ByteSize() > _MAX_MESSAGE_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += message.ByteSize()
    if batch:
        yield batch
