"""Rules for the `agent` part of a spec, shared by the client and the orchestrator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.errors import Problem
from assay.model.command_options import CommandOptions, target_problem
from assay.model.frameworks import FRAMEWORKS, OBJECT_TARGET
from assay.model.lifespan_settings import LIFESPAN_KEYS, without_lifespan
from assay.model.trace_settings import TRACES_KEY, TraceSettings, without_traces
from assay.parsing.names import unknown_name
from assay.specs.headers import read_texts
from assay.specs.server_options import A2aOptions, AdkServerOptions, check_base_url, check_url
from assay.specs.variables import reference_problems

if TYPE_CHECKING:
    from collections.abc import Container

    from assay.model.run import AgentSpec

ADAPTERS = ("python", "command", "http", "grpc", "openai", "anthropic", "adk", "langgraph", "pydantic_ai",
            "openai_agents", "a2a", "replay")  # fmt: skip
"""The supported adapters."""

_NO_TRACES = (
    "traces are read of agents that run on the user's side (python, command and frameworks), and the {} adapter "
    "reaches one elsewhere or none: remove it"
)

_NO_LIFESPAN = (
    "opens what an agent in this process needs (python and frameworks), and the {} adapter reaches one elsewhere or "
    "none: remove it"
)

_PYTHON_KEYS = ("map",)
IN_PROCESS_KEYS: dict[str, tuple[str, ...]] = {"python": (*_PYTHON_KEYS, *LIFESPAN_KEYS)}
IN_PROCESS_KEYS |= {name: (*framework.options, *LIFESPAN_KEYS) for name, framework in FRAMEWORKS.items()}
"""The options of adapters that run in the client's process, by adapter."""

_MAX_GROWTH = 1_000_000
"""The maximum size of an expression's result relative to its input; it is evaluated in the client's process."""


def check_agent(agent: AgentSpec) -> list[Problem]:
    """Return the problems of an agent's settings that the orchestrator reads.

    What a client runs is the client's concern: `check_hosted` checks what this one can run.
    """
    problems = [
        Problem(message, f"agent.{field}")
        for field, message in (
            ("timeout", "" if 0.001 <= agent.timeout_s <= 3600 else "must be from 1ms to 1h"),
            ("concurrency", "" if 1 <= agent.concurrency <= 1000 else "must be from 1 to 1000"),
            ("retries", "" if 0 <= agent.retries <= 10 else "must be from 0 to 10"),
        )
        if message
    ]
    if agent.is_hosted:
        return problems
    agent, traces = without_traces(agent)
    if traces is not None:
        problems.append(Problem(_NO_TRACES.format(agent.adapter), f"agent.{TRACES_KEY}"))
    agent, lifespan = without_lifespan(agent)
    if lifespan is not None:
        problems.append(Problem(_NO_LIFESPAN.format(agent.adapter), "agent.lifespan"))
    match agent.adapter:
        case "http":
            problems += _check_http(agent)
        case "grpc":
            problems += _check_grpc(agent)
        case "openai" | "anthropic":
            problems += _check_prompt(agent)
        case "a2a":
            problems += _check_server(agent, A2aOptions)
        case "adk":
            problems += _check_server(agent, AdkServerOptions)
        case "replay":
            problems += _check_replay(agent)
    return problems + reference_problems(agent)


def check_hosted(agent: AgentSpec) -> list[Problem]:
    """Return the problems of an agent that this client is to run; none of one that the orchestrator calls."""
    if not agent.is_hosted:
        return []
    problems: list[Problem] = []
    agent, traces = without_traces(agent)
    if traces is not None:
        TraceSettings.from_option(traces, problems)
    agent, lifespan = without_lifespan(agent)
    match agent.adapter:
        case "python":
            problems += _check_python(agent)
        case "command":
            problems += _check_command(agent)
        case _ if agent.adapter in FRAMEWORKS:
            problems += _check_framework(agent)
        case _:
            return [Problem(unknown_adapter(agent.adapter), "agent.adapter")]
    if lifespan is not None and agent.adapter == "command":
        problems.append(Problem(_NO_LIFESPAN.format(agent.adapter), "agent.lifespan"))
    elif lifespan is not None:
        problems += lifespan.problems()
    return problems + reference_problems(agent)


def _check_python(agent: AgentSpec) -> list[Problem]:
    problems = _refuse_options(agent, _PYTHON_KEYS)
    if "map" in agent.options:
        problems += _map_problems(agent.options["map"])
    if not OBJECT_TARGET.fullmatch(agent.target):
        problems.append(
            Problem(
                f"must be MODULE:FUNCTION or FILE.py:FUNCTION, e.g. 'agent:answer', not {agent.target!r}",
                "agent.target",
            )
        )
    return problems


def _map_problems(value: object) -> list[Problem]:
    from assay.model.answers.response_expressions import (  # imported here: it loads jmespath
        expression_problems,
        growth_of,
    )

    problems: list[Problem] = []
    expressions = read_texts(value, "agent.map", problems)
    problems = problems or expression_problems(expressions, "agent.map")
    return problems or [
        Problem(f"{text[:80]!r} may produce too large a result: nest fewer lists and functions", f"agent.map.{name}")
        for name, text in expressions.items()
        if max(growth_of(text)) > _MAX_GROWTH
    ]


def _check_framework(agent: AgentSpec) -> list[Problem]:
    framework = FRAMEWORKS[agent.adapter]
    problems = framework.option_problems(agent.options)
    if not OBJECT_TARGET.fullmatch(agent.target):
        message = (
            f"must be MODULE:OBJECT or FILE.py:OBJECT of {framework.accepts}, e.g. 'agent:agent', not {agent.target!r}"
        )
        problems.append(Problem(message, "agent.target"))
    return problems


def _check_command(agent: AgentSpec) -> list[Problem]:
    problems: list[Problem] = []
    if problem := target_problem(agent.target):
        problems.append(Problem(problem, "agent.target"))
    CommandOptions.from_options(agent.options, problems)
    return problems


def _check_http(agent: AgentSpec) -> list[Problem]:
    from assay.specs.http_options import HttpOptions  # imported here: it loads jmespath

    problems = check_url(agent.target)
    HttpOptions.from_options(agent.options, problems)
    return problems


def _check_server(agent: AgentSpec, options: type[A2aOptions | AdkServerOptions]) -> list[Problem]:
    problems = check_base_url(agent.target)
    options.from_options(agent.options, problems)
    return problems


def _check_grpc(agent: AgentSpec) -> list[Problem]:
    from assay.specs.grpc_options import GrpcOptions, target_problem  # imported here: most runs call no such service

    problem = target_problem(agent.target)
    problems = [Problem(problem, "agent.target")] if problem else []
    GrpcOptions.from_options(agent.options, problems)
    return problems


def _check_prompt(agent: AgentSpec) -> list[Problem]:
    from assay.specs.prompt_options import PromptOptions  # imported here: most runs fill no prompt

    problems: list[Problem] = []
    if not agent.target.strip() or not agent.target.isprintable():
        problems.append(Problem(f"must be the id of a model, not {agent.target!r}", "agent.target"))
    options = PromptOptions.from_options(agent.adapter, agent.options, problems)
    if not problems:
        options.price_of(agent.adapter, agent.target, problems)
    return problems


def _check_replay(agent: AgentSpec) -> list[Problem]:
    problems = _refuse_options(agent)
    if agent.target:
        problems.append(Problem("replay takes its answers from the dataset: leave the target out", "agent.target"))
    return problems


def _refuse_options(agent: AgentSpec, known: Container[str] = ()) -> list[Problem]:
    return [
        Problem(f"the {agent.adapter} adapter has no option {name!r}: remove it", f"agent.{name}")
        for name in agent.options
        if name not in known
    ]


def unknown_adapter(name: str) -> str:
    """Return the problem of an adapter that does not exist."""
    if name == "callable":
        return "unknown adapter 'callable'; did you mean 'python'?"
    return unknown_name("adapter", name, ADAPTERS)
