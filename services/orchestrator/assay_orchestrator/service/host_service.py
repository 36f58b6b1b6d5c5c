"""HostService on the wire: sends a run's questions to the client that hosts its agent and receives the answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from assay.errors import InvalidInputError, Problem, UnavailableError, WrongStateError
from assay.model.answers.agent_request import AgentRequest
from assay.model.answers.agent_response import AgentErrorKind, error_response, response_from_json, response_to_json
from assay.model.metric_call import MetricRequest
from assay.v1 import host_pb2 as pb
from assay.v1 import host_pb2_grpc
from assay.wire.agent import plain_response, request_to_wire, response_from_wire, split_by_size
from assay.wire.metric_call import metric_request_to_wire, outcomes_from_wire
from assay_orchestrator.agents.hosted import Cancelled, Questions, Reconciled, Stored
from assay_orchestrator.identity.scopes import call_scope

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from assay.agent.v1 import agent_pb2
    from assay.model.answers.agent_response import AgentResponse
    from assay.model.run import Run
    from assay.model.scope import Scope
    from assay.rpc.access import Context
    from assay_orchestrator.agents.hosted import Attachment, Outgoing

_MAX_CONCURRENCY = 1000


class HostedRuns(Protocol):
    """The runs that clients attach to; implemented by `RunManager`."""

    async def get(self, scope: Scope, run_id: str) -> Run:
        """Return a run; raises NotFoundError if the scope cannot reach it."""

    async def attach(self, scope: Scope, run: Run, concurrency: int) -> Attachment:
        """Attach a client that answers up to `concurrency` questions at once."""

    def detach(self, run_id: str, attachment: Attachment) -> None:
        """Detach a client."""


class HostService(host_pb2_grpc.HostServiceServicer):
    """Serves the streams of clients that host agents.

    Args:
        runs: The runs that clients attach to.
        stopping: Set when the process begins to stop. Streams end then, and clients resume them elsewhere.
        scope: The scope of every call; None takes the scope of each caller's identity.
    """

    def __init__(self, runs: HostedRuns, stopping: asyncio.Event, scope: Scope | None) -> None:
        self._runs = runs
        self._stopping = stopping
        self._fixed_scope = scope

    async def Host(
        self, request_iterator: AsyncIterator[pb.HostRequest], context: Context
    ) -> AsyncIterator[pb.HostResponse]:
        """Yield messages for a client until it leaves, its run asks no more questions, or the process stops.

        Raises:
            InvalidInputError: The first message does not attach to a run with a hosted agent or hosted metrics.
            WrongStateError: The run has metrics that the client does not compute.
            NotFoundError: The scope cannot reach the run.
            UnavailableError: The process is stopping.
        """
        scope = call_scope(self._fixed_scope)
        attach, run = await self._attach_request(request_iterator, scope)
        attachment = await self._runs.attach(scope, run, attach.concurrency)
        reading = asyncio.create_task(_deliver(request_iterator, attachment))
        try:
            yield pb.HostResponse(attached=pb.AgentAttached())
            async for message in attachment.outgoing(reading, self._stopping):
                for part in _outgoing_to_wire(message):
                    yield part
            if reading.done():
                reading.result()  # the client may have sent something that is not a message
            if self._stopping.is_set():
                raise UnavailableError("the orchestrator is stopping: attach again", reason="STOPPING")
        finally:
            self._runs.detach(run.run_id, attachment)
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _attach_request(
        self, incoming: AsyncIterator[pb.HostRequest], scope: Scope
    ) -> tuple[pb.AttachAgent, Run]:
        first = await anext(aiter(incoming), None)
        if first is None or not first.HasField("attach"):
            raise InvalidInputError("the first message must be `attach`")
        attach = first.attach
        if not 1 <= attach.concurrency <= _MAX_CONCURRENCY:
            raise InvalidInputError([Problem(f"must be 1 to {_MAX_CONCURRENCY}", "attach.concurrency")])
        run = await self._runs.get(scope, attach.run_id)
        if not run.spec.needs_host:
            raise InvalidInputError(
                [Problem(f"run {run.run_id} uses the {run.spec.agent.adapter} adapter, which no client hosts")]
            )
        if run.spec.functions and not attach.computes_metrics:
            names = ", ".join(metric.name for metric in run.spec.functions)
            raise WrongStateError(
                f"run {run.run_id} has metrics in Python code ({names}), which this client does not compute: use the "
                "client of the server's version, and `assay runs resume RUN --spec SPEC`",
                reason="METRICS_NOT_HOSTED",
            )
        return attach, run


async def _deliver(incoming: AsyncIterator[pb.HostRequest], attachment: Attachment) -> None:
    async for message in incoming:
        if message.HasField("suspended"):
            attachment.suspended(message.suspended.number)
        attachment.deliver((response.request_id, _received(response)) for response in message.responses.responses)
        computed = message.metric_responses.responses
        attachment.deliver((response.request_id, outcomes_from_wire(response)) for response in computed)


def _received(message: agent_pb2.AgentResponse) -> AgentResponse:
    """Return a client's answer; an answer that can be neither stored nor forwarded fails only its own case."""
    plain = plain_response(message)
    if plain is not None:
        return plain
    try:
        return response_from_json(response_to_json(response_from_wire(message)))
    except (ValueError, RecursionError) as problem:
        return error_response(AgentErrorKind.MALFORMED, f"the client sent no answer: {problem}")


def _outgoing_to_wire(message: Outgoing) -> Iterator[pb.HostResponse]:
    if isinstance(message, Questions):
        asked = [request for request in message.requests if isinstance(request, AgentRequest)]
        scored = [request for request in message.requests if isinstance(request, MetricRequest)]
        for questions in split_by_size(map(request_to_wire, asked)):
            yield pb.HostResponse(requests=pb.AgentRequests(requests=questions))
        for requests in split_by_size(map(metric_request_to_wire, scored)):
            yield pb.HostResponse(metric_requests=pb.MetricRequests(requests=requests))
    elif isinstance(message, Cancelled):
        yield pb.HostResponse(cancelled=pb.CancelledRequests(request_ids=message.request_ids))
    elif isinstance(message, Stored):
        yield pb.HostResponse(stored=pb.StoredAnswers(idempotency_keys=message.keys))
    elif isinstance(message, Reconciled):
        yield pb.HostResponse(reconciled=pb.HostReconciled(number=message.number))
    else:
        yield pb.HostResponse(detached=pb.AgentDetached(message=message.message))
