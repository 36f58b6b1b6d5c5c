"""Agents of Google ADK, in process; each row has its own session, which the turns of a conversation share."""

from __future__ import annotations

import copy
import copyreg
import dataclasses
import logging
import uuid
import warnings
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig
from google.adk.apps.app import App
from google.adk.artifacts import InMemoryArtifactService
from google.adk.events.event import Event
from google.adk.memory import BaseMemoryService, InMemoryMemoryService
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, InMemorySessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.workflow import BaseNode, Workflow
from google.genai import types

from assay.agent_host.failures import UnusableDecisionError
from assay.agent_host.frameworks.adk_events import EventReader
from assay.agent_host.frameworks.adk_trace import Trace
from assay.agent_host.frameworks.answers import interrupted, traced
from assay.agent_host.frameworks.approvals import run_to_end
from assay.agent_host.frameworks.targets import made_by_factory, wrong_object
from assay.errors import InvalidInputError, Problem
from assay.model.answers.adk_events import next_message
from assay.model.answers.approvals import ScriptedApprovals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.answers.adk_events import Stop
    from assay.model.answers.agent_request import AgentRequest
    from assay.model.answers.agent_response import AgentResponse
    from assay.model.answers.approvals import Decision
    from assay.model.answers.interrupts import Interrupt

MAX_IDLE = 1_024
"""Maximum number of sessions kept between turns: more than a run with default settings has open."""
_MAX_RUNNERS = 128
"""Maximum number of agents whose runners are closed at the end: more than an application that reuses its agents has."""
_RUNNERS_OWN = ("session_service", "memory_service", "app_name")
_REMEDIES = {
    "google-cloud-agentplatform": "pip install google-cloud-agentplatform (the extra google-adk[gcp] brings other "
    "packages, which need an older protobuf than Assay)"
}
_LOGGERS = ("google_adk", "google_genai", "opentelemetry")

# ADK loads most of itself on its first run, which would count toward the first answer's latency.
_LOADED_EARLY = (Workflow,)


def prepare() -> None:
    """Keep ADK's log and notices off the console, unless the process already logs.

    ADK logs every failure's traceback, which the row also has, and warns about experimental features.
    """
    warnings.filterwarnings("ignore", message=r"\[(EXPERIMENTAL|WIP)\]", category=UserWarning)
    if not logging.getLogger().handlers:
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            logger.addHandler(logging.NullHandler())
            logger.propagate = False


def connect(target: object, options: Mapping[str, Any]) -> AdkAgent:
    """Return a function that asks an ADK agent.

    Args:
        target: An agent or another node, an app, a runner, or a function without parameters that returns one.
        options: The adapter's checked options; services are objects, or functions that return them.

    Raises:
        AgentImportError: A function raised an exception.
        InvalidInputError: An object has another type.
    """
    target = made_by_factory(target, (BaseNode, App, Runner), "agent.target", _REMEDIES)
    if not isinstance(target, BaseNode | App | Runner):
        raise wrong_object(target, "adk")
    problems = _agent_problems(target.root_agent if isinstance(target, App) else getattr(target, "agent", target))
    services = {
        "session_service": _service(options, "session_service", BaseSessionService, problems),
        "memory_service": _service(options, "memory_service", BaseMemoryService, problems),
    }
    if isinstance(target, Runner):
        problems += [
            Problem("belongs to the runner that agent.target names: set it there", f"agent.{name}")
            for name in _RUNNERS_OWN
            if name in options
        ]
    try:
        RunConfig(max_llm_calls=options.get("max_llm_calls", 1))
    except ValueError:
        problems.append(Problem("is larger than ADK allows", "agent.max_llm_calls"))
    if problems:
        raise InvalidInputError(problems)
    return AdkAgent(target, options, services)


class AdkAgent:
    """Asks an ADK agent.

    For an agent or app, each session has a runner with its own in-memory services, unless the options name them. A
    runner is used unchanged, except that each session gets its own copy of services that are in memory: no row sees
    what another one left in the state of a user or an app.

    Args:
        target: The agent or another node, the app, or the runner.
        options: The adapter's options.
        services: The services of `options`; None for services of each session.
        max_idle: Maximum number of sessions kept between turns.
    """

    def __init__(
        self,
        target: BaseNode | App | Runner,
        options: Mapping[str, Any],
        services: Mapping[str, object | None],
        *,
        max_idle: int = MAX_IDLE,
    ) -> None:
        self._found = target
        self._app_name = options.get("app_name")
        self._user_id = options.get("user_id")
        self._limits = {name: options[name] for name in ("max_llm_calls",) if name in options}
        self._services = services
        self._max_idle = max_idle
        self._idle: OrderedDict[str, _Session] = OrderedDict()
        self._runners: OrderedDict[int, Runner] = OrderedDict()

    async def __call__(self, request: AgentRequest, opened: object = None) -> AgentResponse:
        """Return the answer to a question.

        Args:
            request: The question.
            opened: The resource that the agent's lifespan opened, for the state of new sessions.
        """
        trace, approvals = Trace(self._note), ScriptedApprovals(request.approvals)
        with trace.recorded():
            reader = await traced(
                self._run(request, _state_of(opened), trace, approvals),
                lambda: dataclasses.replace(trace.response(), interrupts=approvals.interrupts),
            )
        if approvals.is_waiting:
            return interrupted(trace.response(), approvals.interrupts)
        return dataclasses.replace(reader.answer(), interrupts=approvals.interrupts)

    async def _run(
        self, request: AgentRequest, opened: Mapping[str, Any], trace: Trace, approvals: ScriptedApprovals
    ) -> EventReader:
        """Ask the question, and resume the invocation while the request decides all of its stops."""
        session, config, reader = await self._session(request, opened), RunConfig(**self._limits), EventReader(trace)

        async def ask() -> tuple[Stop, ...]:
            await session.send([types.Part(text=request.input)], config, reader, trace)
            return reader.stops

        async def resume(stops: tuple[Stop, ...], decisions: Sequence[tuple[Interrupt, Decision]]) -> tuple[Stop, ...]:
            reader.settle(stops)
            left = [(stop, decision) for stop, (_, decision) in zip(stops, decisions, strict=True)]
            while left:
                answered, left = next_message(left, reader.stops)
                reader.settle(stop for stop, _ in answered)
                parts = [session.response(stop, decision, trace) for stop, decision in answered]
                await session.send(parts, config, reader, trace)
            return reader.stops

        try:
            if not await run_to_end(ask, resume, lambda stops: [stop.interrupt for stop in stops], approvals):
                session.end_turn(reader.invocation_id)
        finally:
            await self._keep(request.session_id, session)
        return reader

    async def aclose(self) -> None:
        """Close the kept sessions, the agents' toolsets, and plugins; a later call opens them again."""
        while self._idle:
            await self._idle.popitem()[1].delete()
        self._note(self._runner())
        while self._runners:
            with suppress(RuntimeError):  # from plugins that cannot be closed, which ADK has logged
                await self._runners.popitem(last=False)[1].close()

    def _note(self, runner: Runner) -> None:
        """Register a runner to close at the end: the runner of an agent used as a tool stays open after a timeout."""
        self._runners[id(runner.agent)] = runner
        self._runners.move_to_end(id(runner.agent))
        while len(self._runners) > _MAX_RUNNERS:
            self._runners.popitem(last=False)

    async def _session(self, request: AgentRequest, opened: Mapping[str, Any]) -> _Session:
        """Return the session of the earlier turns, without traces of a failed attempt at this turn; or a new one."""
        session = self._idle.pop(request.session_id, None)
        if session is not None:
            if 0 < request.turn_index == session.turn_count:
                await session.rewind()
                return session
            await session.delete()
        runner = self._runner()
        state = request.parameters.get("state")
        created = await runner.session_service.create_session(
            app_name=runner.app_name,
            user_id=self._user_id or f"assay-{uuid.uuid4().hex[:12]}",
            state={**opened, **request.variables, **(state if isinstance(state, dict) else {})},
        )
        session = _Session(runner, created.user_id, created.id, request.turn_index)
        if request.history:
            # Messages before the case's first turn, or turns from before this process hosted the agent.
            await session.recall([(message.role == "assistant", message.content) for message in request.history])
        return session

    async def _keep(self, session_id: str, session: _Session) -> None:
        """Keep the session for a next turn, which the request does not announce."""
        self._idle[session_id] = session
        while len(self._idle) > self._max_idle:
            await self._idle.popitem(last=False)[1].delete()

    def _runner(self) -> Runner:
        target = self._found
        if isinstance(target, Runner):
            return _with_fresh_sessions(target)
        named = {"app": target} if isinstance(target, App) else {"node": target}
        return Runner(
            **named,
            app_name=self._app_name,
            artifact_service=InMemoryArtifactService(),
            session_service=self._services["session_service"] or InMemorySessionService(),
            memory_service=self._services["memory_service"] or InMemoryMemoryService(),
        )


def _with_fresh_sessions(runner: Runner) -> Runner:
    """Return a runner unchanged; if its sessions are in memory, one with its own sessions and a copy of their state.

    All sessions of an app share its state, so a row would read what the previous row left there.
    """
    service = runner.session_service
    if type(service) is not InMemorySessionService:
        return runner
    fresh = InMemorySessionService()
    fresh.app_state, fresh.user_state = copy.deepcopy(service.app_state), copy.deepcopy(service.user_state)
    runner = copy.copy(runner)
    runner.session_service = fresh
    return runner


@dataclass(slots=True)
class _Session:
    """An ADK session.

    Args:
        runner: The session's runner.
        user_id: The session's user.
        session_id: The id at the session service.
        turn_count: Number of answered or recalled turns.
        last_invocation_id: The last turn's invocation.
        is_clean: Whether nothing followed it.
        summaries: The ids of counted events that summarise others.
    """

    runner: Runner
    user_id: str
    session_id: str
    turn_count: int
    last_invocation_id: str = ""
    is_clean: bool = True
    summaries: set[str] = field(default_factory=set)

    async def send(self, parts: list[types.Part], config: RunConfig, reader: EventReader, trace: Trace) -> None:
        """Send the next message, a question or responses to an invocation's stops, and read the events."""
        self.is_clean = False
        message = types.Content(role="user", parts=parts)
        events = self.runner.run_async(
            user_id=self.user_id, session_id=self.session_id, new_message=message, run_config=config
        )
        async with aclosing(events):
            async for event in events:
                reader.add(event)
        if self.runner.app.events_compaction_config is not None:
            await self._count_summaries(trace)

    def response(self, stop: Stop, decision: Decision, trace: Trace) -> types.Part:
        """Return the response to a stop."""
        if (edited := stop.edits(decision)) is not None:
            if stop.is_of_workflow:
                tool = stop.interrupt.tool
                raise UnusableDecisionError(f"ADK runs {tool} in a workflow with its arguments: approve or deny it")
            trace.edit(self.session_id, stop.call_id, edited)
        response = stop.response(decision)
        trace.answer(self.session_id, stop.id, response)
        return types.Part(function_response=types.FunctionResponse(id=stop.id, name=stop.name, response=response))

    def end_turn(self, invocation_id: str) -> None:
        """Record that the turn was answered."""
        self.is_clean, self.last_invocation_id = True, invocation_id
        self.turn_count += 1

    async def recall(self, messages: list[tuple[bool, str]]) -> None:
        """Add messages of earlier turns.

        Args:
            messages: For each message, whether it is the agent's, and its text. All others are the user's: a session
                has no further roles.
        """
        service = self.runner.session_service
        session = await self._stored()
        self.last_invocation_id = f"assay-{uuid.uuid4().hex}"
        for is_agents, text in messages:
            content = types.Content(role="model" if is_agents else "user", parts=[types.Part(text=text)])
            author = self.runner.agent.name if is_agents else "user"
            event = Event(invocation_id=self.last_invocation_id, author=author, content=content)
            await service.append_event(session, event)

    async def rewind(self) -> None:
        """Undo the last turn, which failed: its messages and its changes of the state."""
        if self.is_clean:
            return
        session = await self._stored()
        asked = [event.invocation_id for event in session.events if event.author == "user"]
        if asked and asked[-1] != self.last_invocation_id:
            await self.runner.rewind_async(
                user_id=self.user_id, session_id=self.session_id, rewind_before_invocation_id=asked[-1]
            )
        self.is_clean = True

    async def delete(self) -> None:
        """Delete the session if it is in memory; others remain for their owners."""
        service = self.runner.session_service
        if isinstance(service, InMemorySessionService):
            await service.delete_session(
                app_name=self.runner.app_name, user_id=self.user_id, session_id=self.session_id
            )

    async def _count_summaries(self, trace: Trace) -> None:
        """Count the model calls that summarised earlier events; ADK stores these events without yielding them."""
        for event in (await self._stored()).events:
            if event.actions.compaction is not None and event.id not in self.summaries:
                self.summaries.add(event.id)
                trace.saw_event(self.session_id, event)

    async def _stored(self) -> Any:
        return await self.runner.session_service.get_session(
            app_name=self.runner.app_name, user_id=self.user_id, session_id=self.session_id
        )


def _state_of(opened: object) -> Mapping[str, Any]:
    """Return the initial state of sessions: a mapping is part of it, anything else is its `lifespan`."""
    if opened is None:
        return {}
    state = dict(opened) if isinstance(opened, Mapping) else {"lifespan": opened}
    _keep_whole(list(state.values()))
    return state


def _keep_whole(value: object) -> None:
    """Make copies of an object return the object itself: ADK copies session state, and an open client has no copy."""
    if isinstance(value, Mapping | list | tuple | set):
        for item in value.values() if isinstance(value, Mapping) else value:
            _keep_whole(item)
        return
    try:
        object.__setattr__(value, "__deepcopy__", lambda _: value)
    except (AttributeError, TypeError):  # no attributes of its own: text, number, lock, pool
        try:
            copy.deepcopy(value)
        except (AttributeError, TypeError, copy.Error):
            copyreg.pickle(type(value), lambda _: "")  # a text: deepcopy keeps such objects


def _agent_problems(root: object) -> list[Problem]:
    """Return why an agent, or one of its sub-agents or tools, cannot answer any question."""
    problems: list[Problem] = []
    if isinstance(root, LlmAgent) and root.mode == "single_turn":
        mode_problem = f"the agent {root.name!r} has the mode 'single_turn', in which only another agent can call it"
        problems.append(Problem(mode_problem, "agent.target"))
    agents, seen = [root], set()
    while agents:
        agent = agents.pop()
        if id(agent) in seen:
            continue
        seen.add(id(agent))
        agents += getattr(agent, "sub_agents", ())
        agents += [tool.agent for tool in getattr(agent, "tools", ()) or () if isinstance(tool, AgentTool)]
        if isinstance(agent, LlmAgent) and isinstance(agent.model, str):
            try:
                _ = agent.canonical_model
            except (ImportError, ValueError) as problem:
                reason = " ".join(str(problem).split())
                problems.append(Problem(f"the agent {agent.name!r} has no model: {reason}", "agent.target"))
    return problems


def _service(options: Mapping[str, Any], name: str, kind: type, problems: list[Problem]) -> object | None:
    if name not in options:
        return None
    target = made_by_factory(options[name], (kind,), f"agent.{name}", _REMEDIES)
    if not isinstance(target, kind):
        problem = f"names a {type(target).__module__}.{type(target).__qualname__}, not a {kind.__name__} of Google ADK"
        problems.append(Problem(problem, f"agent.{name}"))
    return target
