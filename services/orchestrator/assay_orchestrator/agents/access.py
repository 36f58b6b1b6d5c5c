"""What the agents of a team's runs may reach and be sent, by the rules of the operator and of the team."""

from __future__ import annotations

import fnmatch
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.http.egress import EVERYWHERE, Egress
from assay.model.scope import LOCAL
from assay.process.secret_stores import value_problem
from assay_orchestrator.agents.destinations import covering

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.http.addresses import Address
    from assay.parsing.secret_references import SecretReference
    from assay.process.secret_stores import SecretStore
    from assay_orchestrator.agents.destinations import Destination
    from assay_orchestrator.settings import Settings

_WHERE = "of the process that calls the agent, or a variable with --secret-variables"


@dataclass(frozen=True, slots=True)
class AgentAccess:
    """What an adapter may use to reach an agent.

    Args:
        hosts: Patterns of hosts that may be called.
        env: Patterns of environment variables that a spec may name, each with `@` and a pattern of the hosts that may
            receive them, or without for all.
        environ: The environment variables; None for those of this process.
        egress: Which addresses hosts may have, and the proxy for connections.
        team: The team whose secrets may be named.
        secrets: The store of secrets; None without one.
        destinations: The destinations that the team has registered; None without teams, so that every allowed host may
            receive every secret.
    """

    hosts: Sequence[str]
    env: Sequence[str]
    environ: Mapping[str, str] | None = None
    egress: Egress = EVERYWHERE
    team: str = LOCAL.team
    secrets: SecretStore | None = None
    destinations: Sequence[Destination] | None = None

    @classmethod
    def of_all(cls, settings: Settings, secrets: SecretStore | None = None) -> AgentAccess:
        """Return the access that the settings allow without teams."""
        return cls(settings.http_hosts, settings.agent_env, egress=settings.egress, secrets=secrets)

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables; a spec may name those that `env` allows."""
        return os.environ if self.environ is None else self.environ

    def allows_host(self, called: Address) -> bool:
        """Return whether an address may be called."""
        if any(fnmatch.fnmatchcase(called.host, pattern.lower()) for pattern in self.hosts):
            return True
        return bool(covering(self.destinations or (), called))

    def host_refusal(self, host: str) -> str:
        """Return the error text for a host that may not be called."""
        refusal = f"this orchestrator may not call {host!r}: "
        if self.destinations is None:
            return f"{refusal}its operator allows hosts with --http-hosts"
        return (
            f"{refusal}a team admin registers it for the team {self.team!r} with `assay admin destinations create`, or "
            "its operator allows it for all with --http-hosts"
        )

    def variable_problem(self, name: str, called: Address) -> str:
        """Return why a variable may not be sent to an address; empty if it may."""
        for_others = False
        for entry in self.env:
            pattern, _, hosts = entry.partition("@")
            if fnmatch.fnmatchcase(name, pattern):
                if not hosts or fnmatch.fnmatchcase(called.host, hosts.lower()):
                    return ""
                for_others = True
        if for_others:
            return f"${{{name}}} may not be sent to {called.host}: the operator binds names to hosts with --agent-env"
        return f"${{{name}}} may not be used here: the operator allows names with --agent-env"

    def secret_problem(self, reference: SecretReference, called: Address, where: str = _WHERE) -> str:
        """Return why a secret may not be sent to an address, whatever its value; empty if it may.

        Args:
            reference: The secret.
            called: The address.
            where: Which process reads it, for messages.
        """
        if reference.team not in ("", self.team):
            return value_problem(None, str(reference), where)
        if self.destinations is None:
            return ""
        covered = covering(self.destinations, called)
        if any(reference.name in destination.secrets for destination in covered):
            return ""
        refusal = f"{reference} may not be sent to {called.host}: "
        if not covered:
            remedy = "create one with `assay admin destinations create`"
            return f"{refusal}the team {self.team!r} has no destination there; {remedy}"
        names = ", ".join(destination.name for destination in covered)
        return f"{refusal}no destination of the team there ({names}) lists the secret {reference.name!r}"

    def read_secret(self, reference: SecretReference) -> tuple[str, str]:
        """Return the current value of a secret, and why it cannot be used; one of the two is empty."""
        value = self.secrets.read(reference.of(self.team)) if self.secrets is not None else None
        problem = value_problem(value, str(reference), _WHERE)
        return ("" if problem or value is None else value), problem
