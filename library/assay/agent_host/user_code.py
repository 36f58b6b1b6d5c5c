"""The user's own code in a run: the agent and Python metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.agent_host.caller import AgentCaller
from assay.agent_host.entry_point import callable_problem
from assay.agent_host.lifespan import load_lifespan
from assay.agent_host.loader import load_agent
from assay.agent_host.metric_functions import load_metric_functions
from assay.errors import InvalidInputError, Problem
from assay.model.command_options import CommandOptions
from assay.model.frameworks import FRAMEWORKS
from assay.model.lifespan_settings import without_lifespan
from assay.model.trace_settings import without_traces

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Any

    from assay.agent_host.lifespan import Lifespan
    from assay.agent_host.metric_functions import MetricFunctions
    from assay.agent_host.protocol import Caller
    from assay.model.run import AgentSpec, RunSpec


@dataclass(frozen=True, slots=True)
class UserCode:
    """The user's own code in a run.

    Args:
        agent: The agent; None if the orchestrator asks it.
        metrics: The metrics that are functions; None if there are none.
    """

    agent: Caller | None = None
    metrics: MetricFunctions | None = None

    @property
    def is_empty(self) -> bool:
        """Whether there is none, so that the run needs no client."""
        return self.agent is None and self.metrics is None


def open_user_code(
    settings: RunSpec,
    folder: Path,
    *,
    agent: Callable[..., Any] | None = None,
    metrics: Mapping[str, Callable[..., Any]] | None = None,
) -> UserCode:
    """Return the user's own code in a run.

    Args:
        settings: Checked settings.
        folder: The spec's folder, which code and programs are relative to.
        agent: A function that replaces the agent of the settings.
        metrics: Functions that replace those of the settings, by metric.

    Raises:
        AgentImportError: The user's module raised.
        InvalidInputError: The code or program does not exist.
    """
    caller = (
        function_caller(agent, settings.agent, folder) if agent is not None else open_caller(settings.agent, folder)
    )
    return UserCode(caller, load_metric_functions(settings.metrics, folder, metrics))


def open_caller(agent: AgentSpec, folder: Path) -> Caller | None:
    """Return the caller for an agent; None if the orchestrator asks it. Nothing is started before the first question.

    Args:
        agent: Checked settings.
        folder: The spec's folder, which code and programs are relative to.

    Raises:
        AgentImportError: The user's module raised.
        InvalidInputError: The code or program does not exist, or a package for reading traces is missing.
    """
    agent, traces = without_traces(agent)
    if traces is None or not agent.is_hosted:
        return _open_plain(agent, folder, {})
    # Imported here: it loads an HTTP server.
    from assay.agent_host.traces.span_sources import open_trace_source

    source = open_trace_source(traces, folder)
    in_process = agent.adapter != "command"
    if in_process:
        source.set_environment()
    caller = _open_plain(agent, folder, source.environment)
    return caller and source.traced(caller, in_process=in_process)


def function_caller(function: Callable[..., Any], agent: AgentSpec, folder: Path) -> Caller:
    """Return the caller for a function that replaces the agent of a spec.

    Args:
        function: The agent.
        agent: Checked settings, whose option `traces` applies to the function.
        folder: The spec's folder.

    Raises:
        InvalidInputError: A package for reading traces is not installed.
    """
    agent, traces = without_traces(agent)
    caller = _function_caller(function, *_with_lifespan(agent, folder))
    if traces is None:
        return caller
    from assay.agent_host.traces.span_sources import open_trace_source

    source = open_trace_source(traces, folder)
    source.set_environment()
    return source.traced(caller, in_process=True)


def _open_plain(agent: AgentSpec, folder: Path, environment: Mapping[str, str]) -> Caller | None:
    if not agent.is_hosted:
        return None
    agent, lifespan = _with_lifespan(agent, folder)
    if agent.adapter == "python":
        function = load_agent(agent.target, folder, has_lifespan=lifespan is not None)
        return _function_caller(function, agent, lifespan)
    if agent.adapter in FRAMEWORKS:
        from assay.agent_host.frameworks.targets import open_framework_agent

        asked = open_framework_agent(agent, folder, has_lifespan=lifespan is not None)
        opens, closes = (getattr(asked, name, None) for name in ("open", "aclose"))
        return AgentCaller(asked, lifespan=lifespan, hands_over=True, open=opens, close=closes)
    if agent.adapter != "command":
        raise InvalidInputError([Problem(f"this client runs no agents of {agent.adapter!r}", "agent.adapter")])
    # Imported here: most agents are functions.
    from assay.agent_host.command.launcher import Launcher, find_command
    from assay.agent_host.command.per_question import PerQuestionCaller
    from assay.agent_host.command.stream import StreamCaller

    launcher = Launcher(find_command(agent.target, folder), folder, environment)
    options = CommandOptions.from_options(agent.options, [])
    if options.mode == "per_question":
        return PerQuestionCaller(launcher)
    return StreamCaller(launcher, options.processes)


def _with_lifespan(agent: AgentSpec, folder: Path) -> tuple[AgentSpec, Lifespan | None]:
    agent, settings = without_lifespan(agent)
    return agent, None if settings is None else load_lifespan(settings, folder)


def _function_caller(function: Callable[..., Any], agent: AgentSpec, lifespan: Lifespan | None) -> AgentCaller:
    """Return the caller for a function, which receives the lifespan's resource if it requires a second argument."""
    hands_over = lifespan is not None and bool(callable_problem(function))
    return AgentCaller(function, answer_map=agent.options.get("map"), lifespan=lifespan, hands_over=hands_over)
