"""Rules for the `agent` part of a spec, the same for the client and the orchestrator."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from assay.errors import Problem
from assay.model.command_options import CommandOptions, target_problem
from assay.parsing.names import unknown_name
from assay.spec.urls import has_user

if TYPE_CHECKING:
    from assay.model.run import AgentSettings

ADAPTERS = ("python", "command", "http", "grpc", "openai", "anthropic", "replay")
"""Adapters of this version."""

LATER_ADAPTERS = ("adk", "a2a")
"""Names that are reserved for adapters of later versions."""

PYTHON_TARGET = re.compile(r"(?:[^\W\d]\w*(?:\.[^\W\d]\w*)*|[^:\0]+\.py):[^\W\d]\w*(?:\.[^\W\d]\w*)*")
"""MODULE:FUNCTION or FILE.py:FUNCTION."""


def check_agent(agent: AgentSettings) -> list[Problem]:
    """Return everything that is wrong with how an agent is to be reached."""
    problems = [
        Problem(message, f"agent.{field}")
        for field, message in (
            ("timeout", "" if 0.001 <= agent.timeout_s <= 3600 else "must be from 1ms to 1h"),
            ("concurrency", "" if 1 <= agent.concurrency <= 1000 else "must be from 1 to 1000"),
            ("retries", "" if 0 <= agent.retries <= 10 else "must be from 0 to 10"),
        )
        if message
    ]
    match agent.adapter:
        case "python":
            problems += _check_python(agent)
        case "command":
            problems += _check_command(agent)
        case "http":
            problems += _check_http(agent)
        case "grpc":
            problems += _check_grpc(agent)
        case "openai" | "anthropic":
            problems += _check_prompt(agent)
        case "replay":
            problems += _refuse(agent, target="replay takes its answers from the dataset: leave the target out")
        case _:
            problems.append(Problem(_unknown_adapter(agent.adapter), "agent.adapter"))
    return problems


def _check_python(agent: AgentSettings) -> list[Problem]:
    problems = _refuse(agent)
    if not PYTHON_TARGET.fullmatch(agent.target):
        problems.append(
            Problem(
                f"must be MODULE:FUNCTION or FILE.py:FUNCTION, e.g. 'agent:answer', not {agent.target!r}",
                "agent.target",
            )
        )
    return problems


def _check_command(agent: AgentSettings) -> list[Problem]:
    problems: list[Problem] = []
    if problem := target_problem(agent.target):
        problems.append(Problem(problem, "agent.target"))
    CommandOptions.from_options(agent.options, problems)
    return problems


def _check_http(agent: AgentSettings) -> list[Problem]:
    from assay.spec.http_options import HttpOptions  # imported here: it brings jmespath

    problems: list[Problem] = []
    try:
        parts = urlsplit(agent.target)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        valid = False
    if has_user(agent.target):
        # Before any message that repeats the URL.
        said = "holds a name or password: send it as the header authorization, with ${NAME} of an environment variable"
        problems.append(Problem(said, "agent.target"))
    elif not valid:
        problems.append(Problem(f"must be an http or https URL, not {agent.target!r}", "agent.target"))
    HttpOptions.from_options(agent.options, problems)
    return problems


def _check_grpc(agent: AgentSettings) -> list[Problem]:
    from assay.spec.grpc_options import GrpcOptions, target_problem  # imported here: most runs call no such service

    problem = target_problem(agent.target)
    problems = [Problem(problem, "agent.target")] if problem else []
    GrpcOptions.from_options(agent.options, problems)
    return problems


def _check_prompt(agent: AgentSettings) -> list[Problem]:
    from assay.spec.prompt_options import PromptOptions  # imported here: most runs fill no prompt

    problems: list[Problem] = []
    if not agent.target.strip() or not agent.target.isprintable():
        problems.append(Problem(f"must be the id of a model, not {agent.target!r}", "agent.target"))
    PromptOptions.from_options(agent.adapter, agent.options, problems)
    return problems


def _refuse(agent: AgentSettings, target: str = "") -> list[Problem]:
    problems = [
        Problem(f"the {agent.adapter} adapter has no option {name!r}: remove it", f"agent.{name}")
        for name in agent.options
    ]
    if target and agent.target:
        problems.append(Problem(target, "agent.target"))
    return problems


def _unknown_adapter(name: str) -> str:
    if name in LATER_ADAPTERS:
        return f"adapter {name!r} is not part of this version; this version has {', '.join(ADAPTERS)}"
    if name == "callable":
        return "unknown adapter 'callable'; did you mean 'python'?"
    return unknown_name("adapter", name, ADAPTERS)
