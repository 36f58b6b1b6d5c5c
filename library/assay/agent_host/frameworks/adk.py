"""Agents of Google's ADK, in process: each row has a session of its own, which the turns of a conversation share."""

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
"""Sessions that are kept between the turns of conversations: more than a run with its default settings has open."""
_MAX_RUNNERS = 128
"""Agents whose runners are closed at the end: more than an application has that does not make them anew each time."""
_RUNNERS_OWN = ("session_service", "memory_service", "app_name")
_REMEDIES = {
    "google-cloud-agentplatform": "pip install google-cloud-agentplatform (the extra google-adk[gcp] brings other "
    "packages, which need an older protobuf than Assay)"
}
_LOGGERS = ("google_adk", "google_genai", "opentelemetry")

# ADK loads most of itself when it first runs, which would count as the latency of the first answer.
_LOADED_EARLY = (Workflow,)


def prepare() -> None:
    """Keep ADK's log and its notices off the console, unless the process logs anyway.

    ADK logs the traceback of each failure, which is in the row, and warns of features that may still change.
    """
    warnings.filterwarnings("ignore", message=r"\[(EXPERIMENTAL|WIP)\]", category=UserWarning)
    if not logging.getLogger().handlers:
        for name in _LOGGERS:
            logger = logging.getLogger(name)
            logger.addHandler(logging.NullHandler())
            logger.propagate = False


def connect(found: object, options: Mapping[str, Any]) -> AdkAgent:
    """Return what asks an agent of ADK.

    Args:
        found: An agent or another node, an app, a runner, or a function without parameters that returns one of them.
        options: Checked options of the adapter; services are objects, or functions that return them.

    Raises:
        AgentImportError: A function raised.
        InvalidInputError: Something is of another type.
    """
    found = made_by_factory(found, (BaseNode, App, Runner), "agent.target", _REMEDIES)
    if not isinstance(found, BaseNode | App | Runner):
        raise wrong_object(found, "adk")
    problems = _agent_problems(found.root_agent if isinstance(found, App) else getattr(found, "agent", found))
    services = {
        "session_service": _service(options, "session_service", BaseSessionService, problems),
        "memory_service": _service(options, "memory_service", BaseMemoryService, problems),
    }
    if isinstance(found, Runner):
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
    return AdkAgent(found, options, services)


class AdkAgent:
    """Asks an agent of ADK.

    For an agent or an app each session has a runner with services of its own, in memory, where the options name none. A
    runner is used as it is, but that each session has a service of its own where they are in memory: no row sees what
    another one left in the state of a user or an app.

    Args:
        found: The agent or another node, the app, or the runner.
        options: Options of the adapter.
        services: The services of `options`, None for those of each session's own.
        max_idle: Sessions that are kept between turns.
    """

    def __init__(
        self,
        found: BaseNode | App | Runner,
        options: Mapping[str, Any],
        services: Mapping[str, object | None],
        *,
        max_idle: int = MAX_IDLE,
    ) -> None:
        self._found = found
        self._app_name = options.get("app_name")
        self._user_id = options.get("user_id")
        self._limits = {name: options[name] for name in ("max_llm_calls",) if name in options}
        self._services = services
        self._max_idle = max_idle
        self._idle: OrderedDict[str, _Session] = OrderedDict()
        self._runners: OrderedDict[int, Runner] = OrderedDict()

    async def __call__(self, request: AgentRequest, opened: object = None) -> AgentResponse:
        """Return the answer to one question.

        Args:
            request: The question.
            opened: What the agent's lifespan opened, for the state of new sessions.
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
        """Ask the question, and resume the invocation as long as the request decides all that it stops at."""
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
        """Close the sessions that are kept, the agents' toolsets, and plugins; a further call opens them again."""
        while self._idle:
            await self._idle.popitem()[1].delete()
        self._note(self._runner())
        while self._runners:
            with suppress(RuntimeError):  # of plugins that cannot be closed, which ADK has logged
                await self._runners.popitem(last=False)[1].close()

    def _note(self, runner: Runner) -> None:
        """Note a runner that is closed at the end: that of an agent as a tool stays open where a question timed out."""
        self._runners[id(runner.agent)] = runner
        self._runners.move_to_end(id(runner.agent))
        while len(self._runners) > _MAX_RUNNERS:
            self._runners.popitem(last=False)

    async def _session(self, request: AgentRequest, opened: Mapping[str, Any]) -> _Session:
        """Return the session of the earlier turns, without what a failed attempt at this one left; or a new one."""
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
            # Messages of the case before its first turn; or of turns before this process hosted the agent.
            await session.recall([(message.role == "assistant", message.content) for message in request.history])
        return session

    async def _keep(self, session_id: str, session: _Session) -> None:
        """Keep the session for the next turn, if there is one, which the request does not say."""
        self._idle[session_id] = session
        while len(self._idle) > self._max_idle:
            await self._idle.popitem(last=False)[1].delete()

    def _runner(self) -> Runner:
        found = self._found
        if isinstance(found, Runner):
            return _with_fresh_sessions(found)
        named = {"app": found} if isinstance(found, App) else {"node": found}
        return Runner(
            **named,
            app_name=self._app_name,
            artifact_service=InMemoryArtifactService(),
            session_service=self._services["session_service"] or InMemorySessionService(),
            memory_service=self._services["memory_service"] or InMemoryMemoryService(),
        )


def _with_fresh_sessions(runner: Runner) -> Runner:
    """Return a runner as it is; where it has sessions in memory, one with sessions of its own and the state of those.

    The state of an app is of all its sessions: what one row left there, the next one would read.
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
    """One session of ADK.

    Args:
        runner: The runner that has it.
        user_id: Its user.
        session_id: Its id at the session service.
        turn_count: Turns that were answered, or are recalled.
        last_invocation_id: The invocation of the last of them.
        is_clean: Whether nothing came after it.
        summaries: The ids of events that summarize others and are counted.
    """

    runner: Runner
    user_id: str
    session_id: str
    turn_count: int
    last_invocation_id: str = ""
    is_clean: bool = True
    summaries: set[str] = field(default_factory=set)

    async def send(self, parts: list[types.Part], config: RunConfig, reader: EventReader, trace: Trace) -> None:
        """Send the next message, a question or the responses to what an invocation stopped at, and read the events."""
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
        """Note that the turn was answered."""
        self.is_clean, self.last_invocation_id = True, invocation_id
        self.turn_count += 1

    async def recall(self, messages: list[tuple[bool, str]]) -> None:
        """Add messages of earlier turns.

        Args:
            messages: Whether each is the agent's, and its text. All others are the user's: a session has no further
                roles.
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
        """Undo the turn that was asked last and failed: its messages, and its changes of the state."""
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
        """Delete the session where it is in memory; others stay for whom they are kept."""
        service = self.runner.session_service
        if isinstance(service, InMemorySessionService):
            await service.delete_session(
                app_name=self.runner.app_name, user_id=self.user_id, session_id=self.session_id
            )

    async def _count_summaries(self, trace: Trace) -> None:
        """Count the model that summarized earlier events, in an event that ADK keeps and does not yield."""
        for event in (await self._stored()).events:
            if event.actions.compaction is not None and event.id not in self.summaries:
                self.summaries.add(event.id)
                trace.saw_event(self.session_id, event)

    async def _stored(self) -> Any:
        return await self.runner.session_service.get_session(
            app_name=self.runner.app_name, user_id=self.user_id, session_id=self.session_id
        )


def _state_of(opened: object) -> Mapping[str, Any]:
    """Return the state of new sessions: a mapping is part of it, and anything else is its `lifespan`."""
    if opened is None:
        return {}
    state = dict(opened) if isinstance(opened, Mapping) else {"lifespan": opened}
    _keep_whole(list(state.values()))
    return state


def _keep_whole(value: object) -> None:
    """Have copies of an object be the object: ADK copies the state of sessions, and an open client has no copy."""
    if isinstance(value, Mapping | list | tuple | set):
        for item in value.values() if isinstance(value, Mapping) else value:
            _keep_whole(item)
        return
    try:
        object.__setattr__(value, "__deepcopy__", lambda _: value)
    except (AttributeError, TypeError):  # it has no attributes of its own: texts and numbers, but also locks and pools
        try:
            copy.deepcopy(value)
        except (AttributeError, TypeError, copy.Error):
            copyreg.pickle(type(value), lambda _: "")  # a text: deepcopy keeps such objects


def _agent_problems(root: object) -> list[Problem]:
    """Return why an agent, or one that it has as a sub-agent or a tool, cannot answer any question."""
    problems: list[Problem] = []
    if isinstance(root, LlmAgent) and root.mode == "single_turn":
        said = f"the agent {root.name!r} has the mode 'single_turn', in which only another agent can call it"
        problems.append(Problem(said, "agent.target"))
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
    found = made_by_factory(options[name], (kind,), f"agent.{name}", _REMEDIES)
    if not isinstance(found, kind):
        said = f"names a {type(found).__module__}.{type(found).__qualname__}, not a {kind.__name__} of Google ADK"
        problems.append(Problem(said, f"agent.{name}"))
    return found
