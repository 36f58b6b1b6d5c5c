"""AgentService for a Python agent: each call runs the agent once, within the call's deadline."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

from assay.agent_host.answers.answer_message import answer_to_wire
from assay.errors import InvalidInputError, Problem
from assay.model.answers.agent_response import clean_text
from assay.v1 import agent_pb2, agent_pb2_grpc
from assay.wire.agent import request_from_wire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from typing import Any

    import grpc.aio

    from assay.agent_host.caller import AgentCaller
    from assay.model.answers.agent_response import AgentRequest, AgentResponse

    Context = grpc.aio.ServicerContext[Any, Any]

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

    async def Answer(self, request: agent_pb2.AnswerRequest, context: Context) -> agent_pb2.AnswerResponse:  # noqa: N802
        """Return the agent's answer; a failed agent is an answer with status ERROR."""
        asked = _question(request)
        return agent_pb2.AnswerResponse(response=_message(asked, await self._call(asked, context)))

    async def AnswerStream(  # noqa: N802
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
