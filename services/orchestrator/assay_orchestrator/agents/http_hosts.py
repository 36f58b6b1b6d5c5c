"""Which hosts agents may have: a shared orchestrator must not become a way into its own network."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from assay.errors import Problem
from assay.http.egress import EVERYWHERE, Egress, forbidden
from assay.providers.own_services import OWN_URLS
from assay.spec.grpc_options import target_host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.run import AgentSettings


def check_http_target(
    target: str, allowed_hosts: Sequence[str], egress: Egress = EVERYWHERE, field: str = "agent.target"
) -> list[Problem]:
    """Return a problem if agents at this URL, which stands in `field`, may not be called from here."""
    try:
        host = (urlsplit(target).hostname or "").lower()
    except ValueError:
        return [Problem("is not a valid URL", field)]
    return _check_host(host, target, allowed_hosts, egress, field)


def check_grpc_target(target: str, allowed_hosts: Sequence[str], egress: Egress = EVERYWHERE) -> list[Problem]:
    """Return a problem if the service at this HOST:PORT may not be called from here."""
    return _check_host(target_host(target), target, allowed_hosts, egress, "agent.target")


def check_prompt_host(
    settings: AgentSettings, allowed_hosts: Sequence[str], egress: Egress = EVERYWHERE
) -> list[Problem]:
    """Return a problem if the service that a prompt goes to may not be called from here."""
    base_url = settings.options.get("base_url")
    url = base_url if isinstance(base_url, str) else OWN_URLS[settings.adapter]
    return check_http_target(url, allowed_hosts, egress, "agent.base_url")


def _check_host(host: str, target: str, allowed_hosts: Sequence[str], egress: Egress, field: str) -> list[Problem]:
    if any(fnmatch.fnmatchcase(host, pattern.lower()) for pattern in allowed_hosts):
        return [Problem(forbidden(host), field)] if egress.forbids_literal(host) else []
    return [
        Problem(
            f"this orchestrator may not call {host or target!r}: its operator allows hosts with --http-hosts",
            field,
        )
    ]
