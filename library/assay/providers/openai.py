"""OpenAI's protocol and that of most local servers, through the official package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import openai

from assay.providers import chat_completions, responses
from assay.providers.http_client import NO_KEY, TIMEOUT, connection_to, provider_error, read_reply
from assay.providers.streams import STREAM_HEADERS, StreamReader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import httpx2

    from assay.providers.client import Service
    from assay.providers.messages import Reply, Request
    from assay.providers.streams import Assembly


@dataclass(frozen=True, slots=True)
class _Api:
    """One API of the protocol.

    Args:
        resource: What the package has for it.
        named: Fields of a request that the package wants by name.
        request_body: Makes a request's body.
        reply_from: Reads a reply's body and headers.
        assembly: Makes an empty assembly of a reply in pieces.
    """

    resource: Callable[[openai.AsyncOpenAI], Any]
    named: tuple[str, ...]
    request_body: Callable[[Request], dict[str, Any]]
    reply_from: Callable[[Mapping[str, Any], Mapping[str, str]], Reply]
    assembly: Callable[[], Assembly]


_APIS = {
    "chat": _Api(
        lambda client: client.chat.completions,
        ("model", "messages"),
        chat_completions.request_body,
        chat_completions.reply_from,
        chat_completions.Chunks,
    ),
    "responses": _Api(
        lambda client: client.responses,
        ("model", "input"),
        responses.request_body,
        responses.reply_from,
        responses.Events,
    ),
}


def connect(service: Service, concurrency: int) -> OpenAIClient:
    """Return a client of a service of OpenAI's protocol, see `assay.providers.client.connect`."""
    return OpenAIClient(package_client(service, connection_to(service, concurrency)), service.api or "chat")


def package_client(service: Service, connection: httpx2.AsyncClient) -> openai.AsyncOpenAI:
    """Return the package's client, configured independently of the environment.

    Args:
        service: The service.
        connection: The HTTP client below it; closed with it.
    """
    client = openai.AsyncOpenAI(
        api_key=service.key or NO_KEY,
        base_url=service.url,
        max_retries=0,  # attempts are ours, so that each is recorded and paid for, and none makes a latency longer
        timeout=TIMEOUT,
        http_client=connection,
        default_query=service.query,
    )
    # The package reads these from the environment; no spec or setting names them, so they are not sent.
    client.organization = client.project = client.admin_api_key = None
    client._custom_headers = dict(service.headers)  # noqa: SLF001 - no public way to leave out the environment's
    return client


class OpenAIClient:
    """A client of one API of one service of OpenAI's protocol.

    Args:
        client: The package's client.
        api: "chat" or "responses".
    """

    def __init__(self, client: openai.AsyncOpenAI, api: str) -> None:
        self._client = client
        self._api = _APIS[api]
        self._resource = self._api.resource(client)

    async def ask(self, request: Request) -> Reply:
        """Return a model's reply."""
        api, body = self._api, self._api.request_body(request)
        named = {name: body.pop(name) for name in api.named}
        try:
            if request.stream:
                reader = StreamReader(api.assembly(), api.reply_from)
                async with self._resource.with_streaming_response.create(
                    **named, extra_body=body, extra_headers=STREAM_HEADERS
                ) as stream:
                    return await reader.read(stream.http_response)
            reply = await self._resource.with_raw_response.create(**named, extra_body=body)
        except (openai.APIStatusError, openai.APIConnectionError) as problem:
            raise provider_error(problem) from None
        return read_reply(reply.http_response, api.reply_from)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()
