"""Agent cards of A2A: where an agent is, and whether it can be called from here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from assay.model.answers.response_fields import shown
from assay.specs.server_options import check_url
from assay_orchestrator.agents.http_connection import url_problems

CARD_PATH = "/.well-known/agent-card.json"
"""Where a card is, under the agent's URL."""


class CardRefusedError(Exception):
    """The card offers no interface that this adapter speaks; the message says what it offers."""


@dataclass(frozen=True, slots=True)
class Interface:
    """How an agent is called.

    Args:
        url: Where requests are posted.
        tenant: Sent with each request; empty for none.
    """

    url: str
    tenant: str = ""


def card_url(target: str) -> str:
    """Return where the card of a target is, which is the URL of an agent or of its card."""
    return target if urlsplit(target).path.endswith(".json") else f"{target.rstrip('/')}{CARD_PATH}"


def interface_of(card: Any, target: str) -> Interface:
    """Return the JSON-RPC interface of protocol 1.x that a card offers, on the host of the target.

    Raises:
        CardRefusedError: It offers none.
    """
    if not isinstance(card, dict) or "name" not in card:
        raise CardRefusedError(f"what is at {card_url(target)} is no agent card: it has no name")
    offered = card.get("supportedInterfaces")
    if not isinstance(offered, list):
        version = card.get("protocolVersion", "before 1.0")
        raise CardRefusedError(
            f"the agent speaks A2A {shown(version)}, and this adapter 1.0: update the agent (a2a-sdk 1.0 or newer)"
        )
    interfaces = [each for each in offered if isinstance(each, dict)]
    for each in interfaces:
        if each.get("protocolBinding") == "JSONRPC" and str(each.get("protocolVersion", "")).split(".")[0] == "1":
            return Interface(_checked(each.get("url"), target), str(each.get("tenant") or ""))
    found = ", ".join(f"{each.get('protocolBinding')} {each.get('protocolVersion')}"[:60] for each in interfaces[:10])
    raise CardRefusedError(
        f"the agent card offers {found or 'no interface'}, and this adapter speaks JSONRPC 1.0: add that interface"
    )


def _checked(url: Any, target: str) -> str:
    """Return the URL of an interface, which gets the questions and the headers of the spec."""
    if not isinstance(url, str) or not url.isprintable() or check_url(url) or url_problems(url):
        raise CardRefusedError(f"the agent card has no http or https URL for JSONRPC, but {shown(url)}")
    wanted, given = urlsplit(target), urlsplit(url)
    if given.hostname != wanted.hostname:
        raise CardRefusedError(
            f"the agent card sends requests to the host {shown(given.hostname)}, not to {wanted.hostname!r} of the "
            "target: correct the URL in the card, or make that host the target"
        )
    if wanted.scheme == "https" != given.scheme:
        raise CardRefusedError(f"the agent card sends requests to {shown(url)} without encryption: it must be https")
    return url
