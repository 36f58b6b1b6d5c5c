"""Agents behind the server of a2a-sdk, for tests; imported where the package is."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

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
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Struct, Value
from starlette.applications import Starlette
from tests.frameworks.serving import serving_app

from assay.model.answers import agent_request as messages
from assay.model.answers.agent_response import AgentRequest, AgentStatus, response_to_json
from assay.model.answers.approvals import approvals_from_json
from assay.model.answers.interrupts import waiting_text
from assay.model.run import AgentSpec
from assay_orchestrator.agents.a2a import A2aAgent
from assay_orchestrator.agents.access import AgentAccess

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from assay.agent_host.protocol import Caller


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


class Hosted(AgentExecutor):  # type: ignore[misc]
    """Answers with an agent that Assay hosts; what A2A has no place for is in the metadata, as Assay reads it.

    A task that waits is asked again from its question with the decisions that its messages have brought until then.

    Args:
        caller: The agent.
        timeout_s: How long an answer may take.
    """

    def __init__(self, caller: Caller, timeout_s: float) -> None:
        self._caller = caller
        self._timeout_s = timeout_s
        self._said: dict[str, tuple[messages.Message, ...]] = {}
        self._waiting: dict[str, tuple[str, list[dict[str, Any]]]] = {}

    async def execute(self, context: Any, event_queue: Any) -> None:
        name = context.context_id
        said = self._said.get(name, ())
        question, decisions = self._waiting.pop(name, (context.get_user_input(), []))
        for decision in MessageToDict(context.message.metadata).get("decisions", ()):
            del decision["id"]
            decisions.append(decision | {"times": 1})
        turn: dict[str, Any] = {"turn_index": len(said) // 2, "history": said, "timeout_s": self._timeout_s}
        approvals = approvals_from_json(decisions)
        answer = await self._caller.call(
            AgentRequest(context.task_id, "run", "case", question, session_id=name, approvals=approvals, **turn)
        )
        task = TaskUpdater(event_queue, context.task_id, name)
        if context.current_task is None:
            submitted = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
            await event_queue.enqueue_event(Task(id=context.task_id, context_id=name, status=submitted))
        read = response_to_json(answer)
        agreed = ("usage", "tool_calls", "model", "interrupts")
        metadata = Struct()
        metadata.update({field: read[field] for field in agreed if read.get(field) is not None})
        if answer.is_failed:
            end = task.failed
            if answer.status is AgentStatus.INTERRUPTED:
                self._waiting[name] = (question, decisions)
                end = task.requires_input
            why = answer.error.message if answer.error else waiting_text(answer.interrupts)
            await end(task.new_agent_message([Part(text=why)], metadata=metadata))
            return
        self._said[name] = (*said, messages.Message("user", question), messages.Message("assistant", answer.text))
        parts = [Part(text=answer.text)]
        if answer.output is not None:
            output = Value()
            ParseDict(answer.output, output)
            parts.append(Part(data=output))
        await task.add_artifact(parts, metadata=metadata)
        await task.complete()

    async def cancel(self, context: Any, event_queue: Any) -> None:
        raise NotImplementedError


class Streaming(AgentExecutor):  # type: ignore[misc]
    """Appends pieces to one artifact as its model writes them, or answers with data alone."""

    async def execute(self, context: Any, event_queue: Any) -> None:
        if context.get_user_input() == "data":
            output = Value()
            ParseDict({"answer": "42"}, output)
            parts = [Part(data=output)]
            said = Message(message_id="m", context_id=context.context_id, role=Role.ROLE_AGENT, parts=parts)
            await event_queue.enqueue_event(said)
            return
        task = TaskUpdater(event_queue, context.task_id, context.context_id)
        submitted = TaskStatus(state=TaskState.TASK_STATE_SUBMITTED)
        await event_queue.enqueue_event(Task(id=context.task_id, context_id=context.context_id, status=submitted))
        for index, piece in enumerate(("The", " capital", " is", " Lima.")):
            await task.add_artifact([Part(text=piece)], artifact_id="a", append=index > 0, last_chunk=index == 3)
        await task.complete()

    async def cancel(self, context: Any, event_queue: Any) -> None:
        raise NotImplementedError


def app_of(executor: AgentExecutor, url: str, protocol_version: str = "1.0") -> Starlette:
    """Return the application that serves an agent at a URL."""
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
    handler = DefaultRequestHandler(agent_executor=executor, task_store=InMemoryTaskStore(), agent_card=card)
    return Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, rpc_url="/rpc")])


@asynccontextmanager
async def serving(executor: AgentExecutor, protocol_version: str = "1.0") -> AsyncIterator[A2aAgent]:
    """Serve an agent on a free port; yields what calls it."""
    async with serving_app(lambda url: app_of(executor, url, protocol_version)) as url:
        agent = A2aAgent(AgentSpec("a2a", url), AgentAccess(("127.0.0.1",), ()))
        try:
            yield agent
        finally:
            await agent.aclose()
