"""The protocol that every provider of models implements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay_judge.model import Prompt
    from assay_judge.providers.batch_api import BatchApi
    from assay_judge.providers.messages import Parameters, Reply


class Provider(Protocol):
    """One service of a provider."""

    @property
    def batches(self) -> BatchApi:
        """The batch API of the service, whether it has one or not."""

    async def ask(self, model: str, prompt: Prompt, schema: Mapping[str, Any], parameters: Parameters) -> Reply:
        """Return what a model says.

        Raises:
            ProviderStatusError: The service answered with an HTTP error.
            UnreachableError: It did not answer.
            MalformedReplyError: What it answered is no answer.
        """

    async def aclose(self) -> None:
        """Close the connections."""
