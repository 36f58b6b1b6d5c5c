"""A client of one provider service, shared by agents and judges.

The providers' packages take a second or two to import, so that nothing here imports them before `connect`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from assay.http.egress import EVERYWHERE, Egress

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.providers.messages import Reply, Request

_OLDEST_MAJOR = {"anthropic": 2, "openai": 3}  # earlier ones use another HTTP client


@dataclass(frozen=True, slots=True)
class Service:
    """A service of models.

    Args:
        url: Where it is: up to and without /chat/completions or /responses for OpenAI's protocol, without /v1 for
            Anthropic's.
        key: The key; empty where the service wants none, or has it in a header of `headers`.
        headers: Headers beside those of the protocol.
        query: Parameters of each URL, such as Azure's api-version.
        api: Which of a provider's APIs it is asked by: "chat" or "responses" for OpenAI's protocol.
        egress: Which addresses its host may have, and the proxy that connections are made through.
    """

    url: str
    key: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    api: str = ""
    egress: Egress = EVERYWHERE


class ModelClient(Protocol):
    """A client of one service."""

    async def ask(self, request: Request) -> Reply:
        """Return a model's reply.

        Raises:
            ProviderStatusError: The service answered with an HTTP error.
            UnreachableError: It did not answer.
            MalformedReplyError: What it answered is no reply of a model.
        """

    async def aclose(self) -> None:
        """Close the connections."""


def connect(provider: str, service: Service, concurrency: int) -> ModelClient:
    """Return a client of a service; imports the provider's package, so call it off the event loop.

    Args:
        provider: Whose protocol the service speaks: openai or anthropic.
        service: The service.
        concurrency: Most calls at once.

    Raises:
        ValueError: The URL is none, or its host is not what it seems.
    """
    module = importlib.import_module(f"assay.providers.{provider}")
    client: ModelClient = module.connect(service, concurrency)
    return client


def missing_package(provider: str, where: str) -> str:
    """Return what a provider's client is missing, e.g. "the package openai from 3.0 on where … runs"; empty if nothing.

    Args:
        provider: A key of OWN_URLS.
        where: The place for the sentence, e.g. "where the orchestrator runs".
    """
    oldest = _OLDEST_MAJOR[provider]
    version = _version(provider)
    if version and int(version.partition(".")[0]) >= oldest:
        return ""
    return f"the package {provider} from {oldest}.0 on {where}" + (f", not {version}" if version else "")


def _version(package: str) -> str:
    """Return the version of a provider's package; empty where it, or what it is built on, cannot be imported."""
    if any(importlib.util.find_spec(name) is None for name in (package, "httpx2")):
        return ""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
