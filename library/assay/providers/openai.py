"""OpenAI's protocol and that of most local servers, through the official package."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2
import openai

from assay.providers import chat_completions, responses
from assay.providers.http_client import NO_KEY, TIMEOUT, connection_to, provider_error, read_reply
from assay.providers.streams import STREAM_HEADERS, StreamReader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from assay.providers.client import Service
    from assay.providers.messages import Reply, Request
    from assay.providers.streams import Assembly


@dataclass(frozen=True, slots=True)
class _Api:
    """One API of the protocol.

    Args:
        path: Its path below the service's URL.
        request_body: Makes a request's body.
        reply_from: Reads a reply's body and headers.
        assembly: Makes an empty assembly of a reply in pieces.
    """

    path: str
    request_body: Callable[[Request], dict[str, Any]]
    reply_from: Callable[[Mapping[str, Any], Mapping[str, str]], Reply]
    assembly: Callable[[], Assembly]


_APIS = {
    "chat": _Api(
        "/chat/completions",
        chat_completions.request_body,
        chat_completions.reply_from,
        chat_completions.Chunks,
    ),
    "responses": _Api(
        "/responses",
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

    async def ask(self, request: Request) -> Reply:
        """Return a model's reply."""
        api = self._api
        reader = StreamReader(api.assembly(), api.reply_from)
        try:
            # Not `create`, which walks the whole request to convert it, although it has its final form.
            reply = await self._client.post(
                api.path,
                cast_to=httpx2.Response,
                body=api.request_body(request),
                options={"headers": STREAM_HEADERS} if request.stream else {},
                stream=request.stream,
                stream_cls=openai.AsyncStream[object],
            )
            assert isinstance(reply, httpx2.Response)
            if request.stream:
                async with aclosing(reply):
                    return await reader.read(reply)
        except (openai.APIStatusError, openai.APIConnectionError) as problem:
            raise provider_error(problem) from None
        return read_reply(reply, api.reply_from)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()
