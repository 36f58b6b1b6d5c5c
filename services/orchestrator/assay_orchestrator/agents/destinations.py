"""Destinations: the addresses of a team's agents, and which of its secrets may be sent there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.http.addresses import Address, covers, url_address
from assay.providers.own_services import OWN_URLS
from assay.specs.grpc_options import target_host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.run import AgentSpec, JudgeModel


@dataclass(frozen=True, slots=True)
class Destination:
    """A destination that a team has registered.

    Args:
        name: Its name within the team.
        address: A pattern of addresses, such as `https://*.example.org`.
        secrets: The names of the team's secrets that may be sent there.
    """

    name: str
    address: str
    secrets: tuple[str, ...] = ()


def covering(destinations: Sequence[Destination], called: Address) -> list[Destination]:
    """Return the destinations that cover an address."""
    return [destination for destination in destinations if covers(destination.address, called)]


def agent_address(settings: AgentSpec) -> Address:
    """Return the address of an agent; variables in its settings are not filled in."""
    if settings.adapter == "grpc":
        port = settings.target.rpartition(":")[2]
        scheme = "https" if settings.options.get("tls") else "http"
        return Address(scheme, target_host(settings.target), int(port) if port.isdecimal() else None)
    if settings.fills_prompt:
        base_url = settings.options.get("base_url")
        return url_address(base_url if isinstance(base_url, str) else OWN_URLS[settings.adapter])
    return url_address(settings.target)


def judge_address(judge: JudgeModel) -> Address:
    """Return the address of a judge's model; empty if recorded verdicts replace it."""
    return url_address(judge.base_url or OWN_URLS.get(judge.provider, ""))
