"""The providers of judges: the client that agents use, plus verdict requests and batch APIs."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Protocol

from assay.providers.client import Service, connect
from assay_judge.providers.verdict_request import anthropic_request, openai_request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.http.egress import Egress
    from assay.providers.messages import Reply
    from assay_judge.model import Prompt
    from assay_judge.providers.batch_api import BatchApi
    from assay_judge.providers.verdict_request import JudgeParameters

_REQUESTS = {"anthropic": anthropic_request, "openai": openai_request}


class Provider(Protocol):
    """One service of a provider."""

    @property
    def batches(self) -> BatchApi:
        """The batch API of the service; its calls fail if the service has none."""

    async def ask(self, model: str, prompt: Prompt, schema: Mapping[str, Any], parameters: JudgeParameters) -> Reply:
        """Return a model's reply.

        Raises:
            ProviderStatusError: The service answered with an HTTP error.
            UnreachableError: The service did not answer.
            MalformedReplyError: The answer is malformed.
        """

    async def aclose(self) -> None:
        """Close the connections."""


class ConnectedProvider:
    """A connected service. The constructor imports the provider's package: call it off the event loop.

    Args:
        provider: The protocol of the service, "openai" or "anthropic".
        url: The URL of the service.
        key: The key; empty if the service needs none.
        concurrency: Most calls in flight, without batches.
        egress: The addresses that the service may have, and the proxy.
    """

    def __init__(self, provider: str, url: str, key: str, concurrency: int, egress: Egress) -> None:
        self._service = Service(url, key, egress=egress)
        self._client = connect(provider, self._service, concurrency)
        self._request = _REQUESTS[provider]
        self._batch_module = f"assay_judge.providers.{provider}_batches"
        self._batches: BatchApi | None = None

    @property
    def batches(self) -> BatchApi:
        """The batch API of the service, connected on first use."""
        if self._batches is None:
            batches: BatchApi = importlib.import_module(self._batch_module).connect(self._service)
            self._batches = batches
        return self._batches

    async def ask(self, model: str, prompt: Prompt, schema: Mapping[str, Any], parameters: JudgeParameters) -> Reply:
        """Return a model's reply."""
        return await self._client.ask(self._request(model, prompt, schema, parameters))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()
        if self._batches is not None:
            await self._batches.aclose()
