"""An agent behind the server of a2a-sdk, for tests; imported where the package is."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Message,
    Part,
    Role,
    Task,
    TaskState,
    TaskStatus,
)
from google.protobuf.struct_pb2 import Struct
from starlette.applications import Starlette

from assay.model.run import AgentSettings
from assay_orchestrator.agents.a2a import A2aAgent
from assay_orchestrator.agents.access import AgentAccess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Echo(AgentExecutor):  # type: ignore[misc]  # a2a-sdk is not installed where types are checked
    """Does what the question says, and repeats what was said in its context."""

    def __init__(self) -> None:
        self.said: dict[str, list[str]] = {}

    async def execute(self, context: Any, event_queue: Any) -> None:
        text = context.get_user_input()
        said = self.said.setdefault(context.context_id, [])
        said.append(text)
        metadata = Struct()
        metadata.update({"usage": {"input_tokens": 3, "output_tokens": 4}})
        if text.startswith("message"):
            parts = [Part(text=" | ".join(said))]
            answer = Message(message_id="m", context_id=context.context_id, role=Role.ROLE_AGENT, parts=parts)
            answer.metadata.CopyFrom(metadata)
            await event_queue.enqueue_event(answer)
            return
        if text.startswith("raise"):
            raise RuntimeError("boom")
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        if context.current_task is None:
            submitted = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            await event_queue.enqueue_event(Task(id=context.task_id, context_id=context.context_id, status=submitted))
        await task.start_work()
        ends = {"fail": task.failed, "reject": task.reject, "input": task.requires_input, "auth": task.requires_auth}
        for word, end in ends.items():
            if text.startswith(word):
                await end(task.new_agent_message([Part(text=f"because of {text}")]))
                return
        await task.add_artifact([Part(text="part one"), Part(text=" | ".join(said))], metadata=metadata)
        await task.complete()

    async def cancel(self, context: Any, event_queue: Any) -> None:
        raise NotImplementedError


@asynccontextmanager
async def serving(protocol_version: str = "1.0") -> AsyncIterator[A2aAgent]:
    """Serve the agent on a free port; yields what calls it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        interface = AgentInterface(url=f"{url}/rpc", protocol_binding="JSONRPC", protocol_version=protocol_version)
        card = AgentCard(
            name="echo",
            description="repeats",
            version="1",
            capabilities=AgentCapabilities(),
            default_input_modes=["text/plain"],
            default_output_modes=["text/plain"],
            skills=[AgentSkill(id="echo", name="echo", description="repeats", tags=["echo"])],
            supported_interfaces=[interface],
        )
        handler = DefaultRequestHandler(agent_executor=Echo(), task_store=InMemoryTaskStore(), agent_card=card)
        app = Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, rpc_url="/rpc")])
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", lifespan="off"))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        agent = A2aAgent(AgentSettings("a2a", url), AgentAccess(("127.0.0.1",), ()))
        try:
            yield agent
        finally:
            await agent.aclose()
            server.should_exit = True
            await task
