"""The ways to an agent of a framework: in process, and the same agent behind a gRPC server and behind an A2A server."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from assay.agent.v1 import agent_pb2_grpc
from assay.agent_host.agent_server import AgentService
from assay.agent_host.answers.answer_message import answer_to_wire
from assay.model.case import Case, Turn
from assay.model.run import AgentSpec
from assay.rpc.options import ServerOptions
from assay.rpc.server import RpcServer
from assay.wire.agent import response_from_wire
from assay_orchestrator.agents.access import AgentAccess
from assay_orchestrator.agents.grpc import SERVICE, GrpcAgent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from assay.agent_host.caller import AgentCaller
    from assay.model.answers.agent_response import AgentRequest, AgentResponse

    Ask = Callable[[AgentRequest], Awaitable[AgentResponse]]


@asynccontextmanager
async def ways_to(caller: AgentCaller, timeout_s: float) -> AsyncIterator[dict[str, Ask]]:
    """Serve an agent; yields what asks it, by the way to it.

    Args:
        caller: The agent.
        timeout_s: How long its answers may take; questions over A2A bring no deadline, so its server has its own.
    """

    async def in_process(request: AgentRequest) -> AgentResponse:
        return response_from_wire(answer_to_wire(await caller.call(request)))

    async with AsyncExitStack() as stack:
        over_grpc = await stack.enter_async_context(_grpc_agent(caller))
        over_a2a = await stack.enter_async_context(_a2a_agent(caller, 0.8 * timeout_s))
        yield {"in process": in_process, "grpc": over_grpc, "a2a": over_a2a}


@asynccontextmanager
async def _grpc_agent(caller: AgentCaller) -> AsyncIterator[Ask]:
    server = RpcServer(ServerOptions())
    service = AgentService(caller, concurrency=16)
    server.add(SERVICE, lambda grpc: agent_pb2_grpc.add_AgentServiceServicer_to_server(service, grpc))
    agent = GrpcAgent(AgentSpec("grpc", await server.start("127.0.0.1:0")), AgentAccess(("127.0.0.1",), ()))
    server.set_serving(True)
    try:
        yield lambda request: agent.answer(request, _case(request))
    finally:
        await agent.aclose()
        await server.stop(0)


@asynccontextmanager
async def _a2a_agent(caller: AgentCaller, timeout_s: float) -> AsyncIterator[Ask]:
    # Imported here: the package is not in every environment.
    from tests.frameworks.a2a_agents import Hosted, serving

    async with serving(Hosted(caller, timeout_s)) as agent:
        yield lambda request: agent.answer(request, _case(request))


def _case(request: AgentRequest) -> Case:
    return Case("case", (Turn(""),) * request.turn_count)
