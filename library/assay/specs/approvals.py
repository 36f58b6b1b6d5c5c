"""Rules for `approvals` in a spec and in cases, shared by the client and the orchestrator."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from assay.errors import Problem
from assay.model.answers.approvals import approvals_to_json, read_approvals

if TYPE_CHECKING:
    from assay.model.answers.approvals import Approval
    from assay.model.run_spec import AgentSpec, RunSpec


def read_spec_approvals(value: object) -> tuple[tuple[Approval, ...], list[Problem]]:
    """Return a spec's approvals, by default without a limit on their use, and all problems."""
    approvals, problems = read_approvals(value, times=None)
    return approvals, [Problem(problem, f"approvals{part}") for part, problem in problems]


def check_approvals(settings: RunSpec) -> list[Problem]:
    """Return the problems of a run's approvals."""
    if not settings.approvals:
        return []
    if unusable := why_unusable(settings.agent):
        return [Problem(unusable, "approvals")]
    return read_spec_approvals(approvals_to_json(settings.approvals))[1]


def why_unusable(agent: AgentSpec) -> str:
    """Return why an agent cannot use approvals, and a remedy; empty if it can.

    Recorded answers need none and contain the decisions, so a spec may switch between its agent and a recording of it.
    """
    match agent.adapter:
        case "openai" | "anthropic":
            return f"the {agent.adapter} adapter asks a model once, which never waits for a person: remove them"
        case "http" if not _names_approvals(agent):
            return "the request does not have them: write {{approvals}} into agent.body, or remove them"
    return ""


def _names_approvals(agent: AgentSpec) -> bool:
    from assay.specs.prompt_template import PLACEHOLDER  # imported here: few specs have approvals

    template = json.dumps([agent.options.get(name) for name in ("body", "query")], default=str)
    return any(match[1].strip() == "approvals" for match in PLACEHOLDER.finditer(template))
