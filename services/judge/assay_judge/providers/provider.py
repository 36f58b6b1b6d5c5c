"""The providers of judges: the client that agents have too, with verdict requests and the batch APIs added."""

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
        """The batch API of the service, whether it has one or not."""

    async def ask(self, model: str, prompt: Prompt, schema: Mapping[str, Any], parameters: JudgeParameters) -> Reply:
        """Return what a model says.

        Raises:
            ProviderStatusError: The service answered with an HTTP error.
            UnreachableError: It did not answer.
            MalformedReplyError: What it answered is no answer.
        """

    async def aclose(self) -> None:
        """Close the connections."""


class ConnectedProvider:
    """One service as it is; making one imports the provider's package, so do it off the event loop.

    Args:
        provider: Whose protocol the service speaks, "openai" or "anthropic".
        url: The service.
        key: The key; empty where the service wants none.
        concurrency: Most calls at once, batches aside.
        egress: Which addresses the service may have, and the proxy that connections are made through.
    """

    def __init__(self, provider: str, url: str, key: str, concurrency: int, egress: Egress) -> None:
        self._service = Service(url, key, egress=egress)
        self._client = connect(provider, self._service, concurrency)
        self._request = _REQUESTS[provider]
        self._batch_module = f"assay_judge.providers.{provider}_batches"
        self._batches: BatchApi | None = None

    @property
    def batches(self) -> BatchApi:
        """The batch API of the service, connected when it is first used."""
        if self._batches is None:
            batches: BatchApi = importlib.import_module(self._batch_module).connect(self._service)
            self._batches = batches
        return self._batches

    async def ask(self, model: str, prompt: Prompt, schema: Mapping[str, Any], parameters: JudgeParameters) -> Reply:
        """Return what a model says."""
        return await self._client.ask(self._request(model, prompt, schema, parameters))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()
        if self._batches is not None:
            await self._batches.aclose()
