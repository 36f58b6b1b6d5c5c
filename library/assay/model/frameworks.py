"""Agent frameworks that run on the user's side: the requirements and options of their adapters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from assay.errors import Problem
from assay.parsing.fields import Fields

OBJECT_TARGET = re.compile(r"(?:[^\W\d]\w*(?:\.[^\W\d]\w*)*|[^:\0]+\.py):[^\W\d]\w*(?:\.[^\W\d]\w*)*")
"""MODULE:OBJECT or FILE.py:OBJECT."""


class OptionKind(Enum):
    """The type of an adapter's option; the value is the requirement that a message states."""

    OBJECT = "MODULE:OBJECT or FILE.py:OBJECT"
    TEXT = "a text"
    COUNT = "a whole number from 1"
    FLAG = "true or false"

    def allows(self, value: object) -> bool:
        """Return whether a value is allowed for an option of this type."""
        match self:
            case OptionKind.OBJECT:
                return isinstance(value, str) and OBJECT_TARGET.fullmatch(value) is not None
            case OptionKind.TEXT:
                return isinstance(value, str) and bool(value.strip()) and value.isprintable()
            case OptionKind.COUNT:
                return isinstance(value, int) and not isinstance(value, bool) and value >= 1
            case OptionKind.FLAG:
                return isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Framework:
    """An agent framework.

    Args:
        label: Its display name.
        module: The module whose import proves that it is installed.
        packages: Its pip packages, each with the least tested version and the first untested one; the first package is
            required, others are checked if installed.
        extra: The Assay extra that installs it.
        accepts: A description of valid targets, for messages.
        options: The adapter's options, by name.
    """

    label: str
    module: str
    packages: Mapping[str, tuple[str, str]]
    extra: str
    accepts: str
    options: Mapping[str, OptionKind] = field(default_factory=dict)

    def option_problems(self, options: Mapping[str, Any]) -> list[Problem]:
        """Return the problems of a spec's options."""
        problems: list[Problem] = []
        Fields.of_agent(options, problems).unknown(tuple(self.options), f"option of the {self.label} adapter")
        return problems + [
            Problem(f"must be {kind.value}, not {options[name]!r}", f"agent.{name}")
            for name, kind in self.options.items()
            if name in options and not kind.allows(options[name])
        ]


FRAMEWORKS: Mapping[str, Framework] = {
    "adk": Framework(
        "Google ADK",
        "google.adk",
        {"google-adk": ("2.13", "3")},
        "adk",
        "an agent, an app, or a runner",
        {
            "session_service": OptionKind.OBJECT,
            "memory_service": OptionKind.OBJECT,
            "app_name": OptionKind.TEXT,
            "user_id": OptionKind.TEXT,
            "max_llm_calls": OptionKind.COUNT,
        },
    ),
    "langgraph": Framework(
        "LangGraph",
        "langgraph",
        {"langgraph": ("1.1.6", "2"), "langchain-core": ("1.1", "2")},
        "langgraph",
        "a compiled graph (graph.compile()) or a runnable",
        {
            "input": OptionKind.TEXT,
            "output": OptionKind.TEXT,
            "store": OptionKind.OBJECT,
            "recursion_limit": OptionKind.COUNT,
        },
    ),
    "pydantic_ai": Framework(
        "pydantic-ai",
        "pydantic_ai",
        {"pydantic-ai-slim": ("2.61", "3")},
        "pydantic-ai",
        "an agent",
        {"deps": OptionKind.OBJECT, "request_limit": OptionKind.COUNT, "tool_calls_limit": OptionKind.COUNT},
    ),
    "openai_agents": Framework(
        "OpenAI Agents SDK",
        "agents",
        {"openai-agents": ("0.24", "1")},
        "openai-agents",
        "an agent",
        {
            "context": OptionKind.OBJECT,
            "session": OptionKind.OBJECT,
            "max_turns": OptionKind.COUNT,
            "tracing": OptionKind.FLAG,
        },
    ),
}
"""The frameworks, by adapter name."""
