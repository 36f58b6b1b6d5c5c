"""Agents of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import inspect
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from agents import Agent, Runner
from agents.exceptions import ModelRefusalError

from assay.agent_host.failures import UnusableDecisionError
from assay.agent_host.frameworks.answers import answer_with, check_provided, interrupted, refused, traced
from assay.agent_host.frameworks.approvals import run_to_end
from assay.agent_host.frameworks.conversations import Conversations, earlier_messages, question_of
from assay.agent_host.frameworks.openai_agents_runs import CopiedSession, Watch, call_id_of, watch_runs, watch_server
from assay.agent_host.frameworks.targets import wrong_object
from assay.agent_host.lifespan import Resource, provided
from assay.errors import InvalidInputError, Problem
from assay.model.answers.agent_response import MalformedAnswerError
from assay.model.answers.approvals import ScriptedApprovals
from assay.model.answers.interrupts import DecisionKind, Interrupt, InterruptKind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from agents.mcp import MCPServer

    from assay.model.answers.agent_request import AgentRequest
    from assay.model.answers.agent_response import AgentResponse
    from assay.model.answers.approvals import Decision


_PING_S = 5.0
"""An MCP server that does not answer within this time counts as broken."""


def connect(agent: object, options: Mapping[str, Any]) -> _SdkAgent:
    """Return a function that asks an agent of the OpenAI Agents SDK.

    Args:
        agent: The agent.
        options: `context`, an object or a function of the request; `session`, a function of the request; `max_turns`
            per run; `tracing`, false by default.

    Raises:
        InvalidInputError: It is not an agent.
    """
    if not isinstance(agent, Agent):
        raise wrong_object(agent, "openai_agents")
    check_provided(options, "context")
    if "session" in options and not inspect.isroutine(options["session"]):
        message = "must be a function of the request that returns a session: each conversation has one of its own"
        raise InvalidInputError([Problem(message, "agent.session")], reason="AGENT_NOT_FOUND")
    watch_runs()
    return _SdkAgent(agent, options)


@dataclasses.dataclass(frozen=True, slots=True)
class _Memory:
    """The state from which a conversation continues.

    Args:
        agent: The agent that answers: after a handoff, the new agent keeps answering.
        items: The conversation's items; with a session, which stores them itself, the number of earlier turns' items.
        session: The SDK session; None without one.
        tools: The sessions of agents used as tools.
    """

    agent: Agent[Any]
    items: list[Any]
    session: Any = None
    tools: Mapping[int, CopiedSession] = dataclasses.field(default_factory=dict)

    async def question(self, text: str) -> Any:
        """Return the next turn's input, after removing a failed attempt's items from the session."""
        if self.session is None:
            return [*self.items, {"role": "user", "content": text}]
        for _ in range(len(await self.session.get_items()) - len(self.items)):
            await self.session.pop_item()
        return text


class _SdkAgent:
    asks_with_text = True

    def __init__(self, agent: Agent[Any], options: Mapping[str, Any]) -> None:
        self._agent = agent
        self._context = options.get("context")
        self._new_session = options.get("session")
        # The SDK sends traces to OpenAI unless this is switched off.
        self._is_tracing = options.get("tracing", False)
        self._limits = {"max_turns": options["max_turns"]} if "max_turns" in options else {}
        self._servers: dict[MCPServer, Resource] = {}
        self._conversations: Conversations[_Memory] = Conversations()

    async def __call__(self, request: AgentRequest, opened: Any = None) -> AgentResponse:
        """Return the answer to a question; exceptions of the SDK, a model or a tool propagate.

        Args:
            request: The question.
            opened: The resource that the agent's lifespan opened; it is the context if the option `context` is missing.
        """
        async with provided(self._context, request, opened) as context:
            try:
                return await self._answer(request, context)
            except Exception:
                await self._drop_broken()
                raise

    async def open(self) -> None:
        """Connect the MCP servers of the agent, its handoffs and its tools."""
        for agent in _reachable(self._agent):
            await self._prepare(agent)

    async def aclose(self) -> None:
        """Close the connections to MCP servers; a later call opens them again."""
        servers, self._servers = self._servers, {}
        await asyncio.gather(*(connection.aclose() for connection in servers.values()))

    async def _answer(self, request: AgentRequest, context: Any) -> AgentResponse:
        question = question_of(request)
        memory = self._conversations.find(request) or await self._begin(request)
        agent, items = memory.agent, await memory.question(question)
        approvals = ScriptedApprovals(request.approvals)
        watch = Watch(self._prepare, is_tracing=self._is_tracing, sessions=memory.tools)
        run = watch.start(agent, items, None)

        async def start() -> Any:
            return await Runner.run(agent, items, context=context, hooks=run, session=memory.session, **self._limits)

        async def resume(stopped: Any, decisions: Sequence[tuple[Interrupt, Decision]]) -> Any:
            state = stopped.to_state()
            for item, (_, decision) in zip(stopped.interruptions, decisions, strict=True):
                _decide(state, item, decision, watch)
            return await Runner.run(agent, state, hooks=run, session=memory.session)

        def trace() -> AgentResponse:
            return dataclasses.replace(watch.trace(), interrupts=approvals.interrupts)

        with watch.watched():
            try:
                result = await traced(run_to_end(start, resume, _waiting, approvals), trace)
            except ModelRefusalError as problem:
                return refused(trace(), problem.refusal)
        if approvals.is_waiting:
            return interrupted(trace(), approvals.interrupts)
        answer = answer_with(result.final_output, trace())
        if result.final_output == "":
            raise MalformedAnswerError("the agent ended with an empty text")
        history = result.to_input_list() if memory.session is None else await memory.session.get_items()
        kept = _Memory(result.last_agent, history, memory.session, watch.sessions)
        self._conversations.keep(request, answer.text, kept)
        return answer

    async def _begin(self, request: AgentRequest) -> _Memory:
        """Return the beginning of a conversation: the texts of its history."""
        items = [{"role": message.role, "content": message.content} for message in earlier_messages(request)]
        if self._new_session is None:
            return _Memory(self._agent, items)
        session = self._new_session(request)
        if inspect.isawaitable(session):
            session = await session
        if items:
            await session.add_items(items)
        return _Memory(self._agent, await session.get_items(), session)

    async def _prepare(self, agent: Agent[Any]) -> None:
        """Connect an agent's MCP servers that are not connected yet, once for all questions."""
        for server in agent.mcp_servers:
            watch_server(server)
            if server in self._servers or getattr(server, "session", None) is None:
                connection = self._servers.setdefault(server, Resource(functools.partial(_connection, server)))
                await connection.value()

    async def _drop_broken(self) -> None:
        """Close connections that no longer answer: further questions would fail, and the next one reconnects."""
        for server, connection in list(self._servers.items()):
            try:
                async with asyncio.timeout(_PING_S):
                    await server.session.send_ping()  # custom server classes may lack these
            except Exception:  # noqa: BLE001 - the boundary of a case, which has failed with its own error
                if self._servers.get(server) is connection:
                    del self._servers[server]
                    await connection.aclose()


def _reachable(agent: Agent[Any]) -> list[Agent[Any]]:
    """Return an agent with its handoffs and tools, recursively, as far as the SDK exposes them."""
    agents = {id(agent): agent}
    queue = [agent]
    for source in queue:
        refs = [getattr(handoff, "_agent_ref", None) for handoff in source.handoffs]
        named = [*source.handoffs, *(ref() for ref in refs if ref is not None)]
        for reached in (*named, *(getattr(tool, "_agent_instance", None) for tool in source.tools)):
            if isinstance(reached, Agent) and id(reached) not in agents:
                agents[id(reached)] = reached
                queue.append(reached)
    return queue


@asynccontextmanager
async def _connection(server: MCPServer) -> AsyncIterator[None]:
    await server.connect()
    try:
        yield
    finally:
        await server.cleanup()


def _waiting(result: Any) -> list[Interrupt]:
    """Return the calls whose approval a run waits for."""
    return [
        Interrupt(
            id=call_id_of(item),
            kind=InterruptKind.APPROVAL,
            tool=item.name or "",
            arguments_json=arguments if isinstance(arguments := item.arguments, str) else "",
        )
        for item in result.interruptions
    ]


def _decide(state: Any, item: Any, decision: Decision, watch: Watch) -> None:
    """Decide on a waiting call, in the state from which its run continues."""
    if decision.kind is DecisionKind.DENY:
        state.reject(item, rejection_message=decision.reason)
        return
    if decision.kind is DecisionKind.EDIT:
        if getattr(item.raw_item, "type", "") != "function_call":
            raise UnusableDecisionError(f"{item.name} is not a function with arguments to edit: approve or deny it")
        watch.edited[call_id_of(item)] = json.dumps(decision.arguments, ensure_ascii=False)
    state.approve(item)
