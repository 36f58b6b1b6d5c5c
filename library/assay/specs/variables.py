"""Variables and secrets in a spec, as ${NAME} and secret://TEAM/NAME; the agent's caller resolves them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from assay.errors import Problem
from assay.parsing.secret_references import REFERENCE, form_problem
from assay.providers.own_services import KEY_VARIABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.model.run import AgentSpec

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""The form of a variable in a spec."""

NAMED = re.compile(f"{VARIABLE.pattern}|{REFERENCE.pattern}", re.ASCII)
"""A variable, in the first group, or a secret, in one of the others, which hold the part after `secret://`."""

_FILLED = ("headers", "query", "body")


def missing_variables(agent: AgentSpec, environ: Mapping[str, str]) -> list[Problem]:
    """Return a problem for each unset or empty variable that calling the agent needs.

    Args:
        agent: Settings that passed their own checks.
        environ: The environment of the process that calls the agent.
    """
    named: dict[str, str] = {}
    for text, field in named_texts(agent):
        for name in VARIABLE.findall(text):
            named.setdefault(name, field)
    return [
        Problem(f"the environment variable {name} is not set: set it to what belongs there, then start again", field)
        for name, field in named.items()
        if not environ.get(name)
    ]


def reference_problems(agent: AgentSpec) -> list[Problem]:
    """Return a problem for each malformed reference to a secret."""
    return [
        Problem(problem, field)
        for text, field in named_texts(agent)
        for match in REFERENCE.finditer(text)
        if (problem := form_problem(match[1] or match[2] or ""))
    ]


def named_texts(agent: AgentSpec) -> Iterator[tuple[str, str]]:
    """Yield the texts of an agent's settings that may contain variables and secrets, with their fields."""
    if agent.is_called_by_url:
        yield agent.target, "agent.target"
        for name in _FILLED:
            yield from _leaves(agent.options.get(name), f"agent.{name}")
    elif agent.adapter == "grpc":
        yield from _leaves(agent.options.get("metadata"), "agent.metadata")
    elif agent.adapter in KEY_VARIABLES:
        key = agent.options.get("api_key")
        if key is None and not agent.options.get("base_url"):
            # The provider's own service takes the provider's own key; another service may need none.
            key = f"${{{KEY_VARIABLES[agent.adapter]}}}"
        yield from _leaves(key, "agent.api_key")
        for name in ("headers", "query"):
            yield from _leaves(agent.options.get(name), f"agent.{name}")


def _leaves(tree: Any, where: str) -> Iterator[tuple[str, str]]:
    if isinstance(tree, str):
        yield tree, where
    elif isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _leaves(value, f"{where}.{key}")
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from _leaves(value, f"{where}[{index}]")
