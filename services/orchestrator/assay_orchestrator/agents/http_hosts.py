"""The hosts that agents may have: a shared orchestrator must not give access to its own network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.errors import Problem
from assay.http.addresses import NOWHERE, url_address
from assay.http.egress import forbidden
from assay_orchestrator.agents.destinations import agent_address

if TYPE_CHECKING:
    from assay.http.addresses import Address
    from assay.model.run import AgentSpec
    from assay_orchestrator.agents.access import AgentAccess


def check_host(settings: AgentSpec, access: AgentAccess) -> list[Problem]:
    """Return a problem if an agent that Assay calls may not be called from here."""
    if settings.fills_prompt:
        return _check(agent_address(settings), "", access, "agent.base_url")
    if settings.adapter == "grpc":
        return _check(agent_address(settings), settings.target, access, "agent.target")
    return check_http_target(settings.target, access) if settings.is_called_by_url else []


def check_http_target(target: str, access: AgentAccess) -> list[Problem]:
    """Return a problem if an agent at this URL may not be called from here."""
    called = url_address(target)
    if called == NOWHERE:
        return [Problem("is not a valid URL", "agent.target")]
    return _check(called, target, access, "agent.target")


def _check(called: Address, target: str, access: AgentAccess, field: str) -> list[Problem]:
    if access.allows_host(called):
        return [Problem(forbidden(called.host), field)] if access.egress.forbids_literal(called.host) else []
    return [Problem(access.host_refusal(called.host or target), field)]
