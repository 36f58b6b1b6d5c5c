"""Agent cards of A2A: an agent's address, and whether this adapter can call it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from assay.model.answers.response_fields import shown
from assay.specs.server_options import check_url
from assay_orchestrator.agents.http_connection import url_problems

CARD_PATH = "/.well-known/agent-card.json"
"""The path of a card under the agent's URL."""


class CardRefusedError(Exception):
    """The card offers no interface that this adapter supports; the message says what it offers."""


@dataclass(frozen=True, slots=True)
class Interface:
    """How to call an agent.

    Args:
        url: The URL of requests.
        tenant: Sent with each request; empty for none.
    """

    url: str
    tenant: str = ""


def card_url(target: str) -> str:
    """Return the URL of a target's card; the target is the URL of an agent or of its card."""
    return target if urlsplit(target).path.endswith(".json") else f"{target.rstrip('/')}{CARD_PATH}"


def interface_of(card: Any, target: str) -> Interface:
    """Return the JSON-RPC interface of protocol 1.x that a card offers on the target's host.

    Raises:
        CardRefusedError: It offers none.
    """
    if not isinstance(card, dict) or "name" not in card:
        raise CardRefusedError(f"{card_url(target)} is not an agent card: it has no name")
    offered = card.get("supportedInterfaces")
    if not isinstance(offered, list):
        version = card.get("protocolVersion", "before 1.0")
        raise CardRefusedError(
            f"the agent speaks A2A {shown(version)}, and this adapter 1.0: update the agent (a2a-sdk 1.0 or newer)"
        )
    interfaces = [interface for interface in offered if isinstance(interface, dict)]
    for interface in interfaces:
        if (
            interface.get("protocolBinding") == "JSONRPC"
            and str(interface.get("protocolVersion", "")).split(".")[0] == "1"
        ):
            return Interface(_checked(interface.get("url"), target), str(interface.get("tenant") or ""))
    offers = ", ".join(
        f"{interface.get('protocolBinding')} {interface.get('protocolVersion')}"[:60] for interface in interfaces[:10]
    )
    raise CardRefusedError(
        f"the agent card offers {offers or 'no interface'}, and this adapter speaks JSONRPC 1.0: add that interface"
    )


def _checked(url: Any, target: str) -> str:
    """Return the URL of an interface, which receives the questions and the headers of the spec."""
    if not isinstance(url, str) or not url.isprintable() or check_url(url) or url_problems(url):
        raise CardRefusedError(f"the agent card has no http or https URL for JSONRPC, but {shown(url)}")
    target_url, interface_url = urlsplit(target), urlsplit(url)
    if interface_url.hostname != target_url.hostname:
        raise CardRefusedError(
            f"the agent card sends requests to the host {shown(interface_url.hostname)}, not to "
            f"{target_url.hostname!r} of the target: correct the URL in the card, or make that host the target"
        )
    if target_url.scheme == "https" != interface_url.scheme:
        raise CardRefusedError(f"the agent card sends requests to {shown(url)} without encryption: it must be https")
    return url
