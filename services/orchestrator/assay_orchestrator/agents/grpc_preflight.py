"""The preflight check of an AgentService: whether it can be reached and has the method, before any case is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

from assay.errors import Problem
from assay.http.egress import ForbiddenAddressError
from assay.rpc.options import VERSION_KEY
from assay_orchestrator.agents.grpc import SERVICE
from assay_orchestrator.agents.grpc_errors import described

if TYPE_CHECKING:
    from assay_orchestrator.agents.grpc import GrpcAgent

_Code = grpc.StatusCode
_TIMEOUT_S = 3.0
_NO_MESSAGE = b"\xff"
"""An existing method cannot decode it, so no agent runs; a missing method is UNIMPLEMENTED."""


async def service_problems(agent: GrpcAgent) -> list[Problem]:
    """Return why a service will not answer: it cannot be reached, is not ready, or lacks the method."""
    try:
        channel = await agent.channel.connected()
    except ForbiddenAddressError as problem:
        return [Problem(str(problem), "agent.target")]
    except OSError as problem:
        return [Problem(f"{agent.target} cannot be reached: correct host and port ({problem})", "agent.target")]
    try:
        status, is_of_assay = await _health(agent, channel)
    except grpc.aio.AioRpcError as error:
        # Without a health check, or with the health of the whole process only, just the method itself shows that it
        # exists.
        if error.code() not in (_Code.UNIMPLEMENTED, _Code.NOT_FOUND):
            return [_problem(agent, error)]
    else:
        if status != health_pb2.HealthCheckResponse.SERVING:
            name = health_pb2.HealthCheckResponse.ServingStatus.Name(status)
            problem_text = f"the health of {SERVICE} at {agent.target} is {name}: start again when it is SERVING"
            return [Problem(problem_text, "agent.target")]
        if is_of_assay or not agent.options.stream:
            return []
    return await _method_problems(agent, channel, "AnswerStream" if agent.options.stream else "Answer")


async def _health(agent: GrpcAgent, channel: grpc.aio.Channel) -> tuple[Any, bool]:
    """Return the service's status, and whether its server is one of Assay's, which implement both methods."""
    check = channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=health_pb2.HealthCheckResponse.FromString,
    )
    request = health_pb2.HealthCheckRequest(service=SERVICE)
    call = check(request, timeout=_TIMEOUT_S, metadata=agent.metadata)
    status = (await call).status
    return status, VERSION_KEY in dict(await call.initial_metadata())


async def _method_problems(agent: GrpcAgent, channel: grpc.aio.Channel, method: str) -> list[Problem]:
    # As a call with one reply: for a service that only reads the request, a stream is the same.
    call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(f"/{SERVICE}/{method}")
    try:
        await call(_NO_MESSAGE, timeout=_TIMEOUT_S, metadata=agent.metadata)
    except grpc.aio.AioRpcError as error:
        if error.code() is _Code.UNIMPLEMENTED:
            remedy = "implement it, or remove stream" if agent.options.stream else "check host and port"
            problem_text = (
                f"the server at {agent.target} has no method {method} of {SERVICE}: {remedy} (docs/agent-service.md)"
            )
            return [Problem(problem_text, "agent.stream" if agent.options.stream else "agent.target")]
        if error.code() in (_Code.UNAVAILABLE, *_CREDENTIALS):
            return [_problem(agent, error)]
    return []


_CREDENTIALS = (_Code.UNAUTHENTICATED, _Code.PERMISSION_DENIED)


def _problem(agent: GrpcAgent, error: grpc.aio.AioRpcError) -> Problem:
    description = agent.redact(described(error))
    if error.code() in _CREDENTIALS:
        return Problem(f"the service at {agent.target} refused the call: correct the credentials ({description})",
                       "agent.metadata")  # fmt: skip
    remedy = "start the service, or correct host and port"
    if agent.options.tls:
        remedy += "; its certificate must be for this host, and issued by an authority in tls.ca or of the system"
        remedy += "; if it does not use TLS, remove tls"
    else:
        remedy += "; if it expects TLS, add tls: true"
    return Problem(f"{agent.target} cannot be reached: {remedy} ({description})", "agent.target")
