"""The Messages protocol, through Anthropic's official package."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import anthropic
import httpx2

from assay.providers.errors import MalformedReplyError
from assay.providers.hosted_tools import message_calls, pages_found
from assay.providers.http_client import NO_KEY, TIMEOUT, connection_to, provider_error, read_reply
from assay.providers.messages import (
    NO_HEADERS,
    STOPS,
    Reply,
    Stop,
    explanation_of,
    name_in,
    text_in,
    text_of_parts,
    tokens_in,
)
from assay.providers.own_services import OWN_URLS
from assay.providers.streams import STREAM_HEADERS, PartCount, Pieces, StreamReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from assay.providers.client import Service
    from assay.providers.messages import Request


def connect(service: Service, concurrency: int) -> AnthropicClient:
    """Return a client of a service of Anthropic's protocol, see `assay.providers.client.connect`."""
    return AnthropicClient(package_client(service, connection_to(service, concurrency)))


def package_client(service: Service, connection: httpx2.AsyncClient) -> anthropic.AsyncAnthropic:
    """Return the package's client, configured independently of the environment.

    Args:
        service: The service.
        connection: The HTTP client below it; closed with it.
    """
    client = anthropic.AsyncAnthropic(
        api_key=service.key or NO_KEY,
        auth_token=None,
        base_url=service.url,
        max_retries=0,  # attempts are ours, so that each is recorded and paid for, and none makes a latency longer
        timeout=TIMEOUT,
        http_client=connection,
        default_query=service.query,
    )
    # The package reads these from the environment; no spec or setting names them, so they are not sent. It sends the
    # key as a bearer token, and gateways know it by the protocol's first header.
    client.auth_token = None
    own = {} if service.url == OWN_URLS["anthropic"] else {"x-api-key": service.key or NO_KEY}
    client._custom_headers = {**own, **service.headers}  # noqa: SLF001 - no public way
    return client


class AnthropicClient:
    """A client of one service of Anthropic's protocol."""

    def __init__(self, client: anthropic.AsyncAnthropic) -> None:
        self._client = client

    async def ask(self, request: Request) -> Reply:
        """Return a model's reply."""
        reader = StreamReader(Events(), reply_from)
        try:
            # Not `create`, which walks the whole request to convert it, although it has its final form.
            reply = await self._client.post(
                "/v1/messages",
                cast_to=httpx2.Response,
                body=request_body(request),
                options={"headers": STREAM_HEADERS} if request.stream else {},
                stream=request.stream,
                stream_cls=anthropic.AsyncStream[object],
            )
            assert isinstance(reply, httpx2.Response)
            if request.stream:
                async with aclosing(reply):
                    return await reader.read(reply)
        except (anthropic.APIStatusError, anthropic.APIConnectionError) as problem:
            raise provider_error(problem) from None
        return read_reply(reply, reply_from)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


def request_body(request: Request) -> dict[str, Any]:
    """Return a request in the form of the protocol."""
    parameters = request.parameters
    body: dict[str, Any] = {
        **request.extra,
        "model": request.model,
        "max_tokens": parameters.max_tokens,
        "messages": [
            {"role": message.role, "content": message.content}
            for message in request.messages
            if message.role != "system"
        ],
    }
    if system := _system(request):
        body["system"] = system
    if parameters.temperature is not None:
        # The package has no argument for it any more; the protocol still has the field.
        body["temperature"] = parameters.temperature
    if request.stream:
        body["stream"] = True
    return body


def _system(request: Request) -> str | list[dict[str, Any]]:
    # The protocol has no messages of the system: what a history holds of them joins the system text.
    texts = [request.system, *(message.content for message in request.messages if message.role == "system")]
    system = "\n\n".join(filter(None, texts))
    if not request.shared_system:
        return system
    shared = {"type": "text", "text": request.shared_system, "cache_control": {"type": "ephemeral"}}
    return [shared, {"type": "text", "text": system}] if system else [shared]


def reply_from(data: Mapping[str, Any], headers: Mapping[str, str] = NO_HEADERS) -> Reply:
    """Return the reply in a model's message.

    Raises:
        MalformedReplyError: It is none.
    """
    content = data.get("content")
    if not isinstance(content, list):
        raise MalformedReplyError("the reply does not hold a message of a model")
    text, finish = text_of_parts(content), name_in(data.get("stop_reason"))
    stop = STOPS.get(finish, Stop.COMPLETE)
    return Reply(
        text=text,
        stop=stop,
        explanation=explanation_of(text) if stop is Stop.REFUSED else "",
        tokens=tokens_in(data.get("usage")),
        model=name_in(data.get("model")),
        finish_reason=finish,
        tool_calls=tuple(message_calls(content)),
        headers=headers,
        citations=tuple(_citations(content))
        or tuple(pages_found([part.get("content") for part in _parts(content, "web_search_tool_result")])),
        has_thoughts=any(True for _ in _parts(content, "thinking")),
    )


class Events:
    """A message assembled from events: `assay.providers.streams.Assembly`."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._blocks: dict[int, _Block] = {}
        self._parts = PartCount()
        self.has_ended = False

    def add(self, event: Mapping[str, Any]) -> bool:
        """Add an event; return whether it holds text."""
        kind, index = event.get("type"), event.get("index")
        delta, message = event.get("delta"), event.get("message")
        if kind == "message_start" and isinstance(message, dict):
            self._message = dict(message)
        elif kind == "message_stop":
            self.has_ended = True
        elif kind == "message_delta":
            usage = self._message.get("usage")
            self._message["usage"] = usage = usage if isinstance(usage, dict) else {}
            _update(usage, event.get("usage"))
            _update(self._message, delta)
        elif kind in ("content_block_start", "content_block_delta"):
            if not isinstance(index, int):
                raise MalformedReplyError(f"the index of an event {kind} is no whole number")
            if kind == "content_block_start":
                self._parts.add()
                self._blocks[index] = _Block(event.get("content_block"), self._parts)
                return self._blocks[index].has_text
            if isinstance(delta, dict) and index in self._blocks:
                return self._blocks[index].add(delta)
        return False

    def whole(self, *, ended: bool) -> Mapping[str, Any] | None:
        """Return the message; None if it is incomplete."""
        if not (ended or self.has_ended or self._message.get("stop_reason")):
            return None
        return {**self._message, "content": [block.whole() for block in self._blocks.values()]}


class _Block:
    """A block of a message's content, assembled from pieces."""

    def __init__(self, start: object, parts: PartCount) -> None:
        self._parts = parts
        self._start: dict[str, Any] = dict(start) if isinstance(start, dict) else {}
        citations = self._start.get("citations")
        self._citations: list[object] = list(citations) if isinstance(citations, list) else []
        self._text, self._input = Pieces(), Pieces()
        self.has_text = self._text.add(self._start.get("text"))

    def add(self, delta: Mapping[str, Any]) -> bool:
        match delta.get("type"):
            case "text_delta":
                return self._text.add(delta.get("text"))
            case "input_json_delta":
                self._input.add(delta.get("partial_json"))
            case "citations_delta":
                self._parts.add()
                self._citations.append(delta.get("citation"))
        return False

    def whole(self) -> dict[str, Any]:
        text, arguments = str(self._text), str(self._input)
        return {
            **self._start,
            **({"text": text, "citations": self._citations} if self._start.get("type") == "text" else {}),
            **({"input": arguments} if arguments else {}),
        }


def _update(whole: dict[str, Any], part: object) -> None:
    """Update a mapping with another; nulls in the second change nothing."""
    if isinstance(part, dict):
        whole.update((name, value) for name, value in part.items() if value is not None)


def _parts(content: Iterable[object], kind: str) -> Iterator[dict[str, Any]]:
    return (part for part in content if isinstance(part, dict) and part.get("type") == kind)


def _citations(content: Iterable[object]) -> Iterator[dict[str, Any]]:
    """Yield the web pages and documents that a text cites, each once and in order, with the cited passages."""
    passages: dict[tuple[str, str, int | None], dict[str, None]] = {}
    for part in _parts(content, "text"):
        listed = part.get("citations")
        for citation in listed if isinstance(listed, list) else ():
            if isinstance(citation, dict):
                url, title = text_in(citation.get("url")), text_in(citation.get("title"))
                index = citation.get("document_index")
                source = (
                    url,
                    title or text_in(citation.get("document_title")),
                    index if isinstance(index, int) else None,
                )
                passages.setdefault(source, {})[text_in(citation.get("cited_text"))] = None
    for (url, title, _), texts in passages.items():
        yield {"uri": url, "title": title, "content": "\n".join(filter(None, texts))}
