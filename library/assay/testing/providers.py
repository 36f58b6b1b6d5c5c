"""A scripted model provider on a local port.

It speaks OpenAI's Chat Completions (any path that ends with /chat/completions) and Responses (/responses), and
Anthropic's Messages (/messages), in one piece or as a stream, as each request asks, and the batch APIs of both, so that
the real packages of both can be used against it:

    with ScriptedProvider(Reply("Paris"), Reply(status=429, headers={"retry-after": "1"})) as provider:
        spec["agent"] |= {"adapter": "openai", "base_url": provider.openai_url}
        ...
        assert provider.requests[0].body["model"] == "some-model"
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from assay.testing.batches import ScriptedBatches
from assay.testing.messages import ProviderRequest, Reply, Tokens
from assay.testing.reply_bodies import reply_body

if TYPE_CHECKING:
    from collections.abc import Iterator


__all__ = ["ProviderRequest", "Reply", "ScriptedProvider", "Tokens", "echo"]

Script = Reply | Callable[[ProviderRequest], Reply]
_PREFLIGHT = Reply("OK", stop="length", usage=Tokens(8, 1))


_PIECE = re.compile(r"\S*\s*")


def reply_events(path: str, reply: Reply) -> list[bytes]:
    """Return a reply as the events of a stream, its texts word by word.

    Args:
        path: The path of the request.
        reply: The reply, without an HTTP error.
    """
    whole = reply_body(path, reply)
    if "choices" in whole:
        return [*(_event(chunk) for chunk in _chunks(whole)), b"data: [DONE]\n\n"]
    events = _response_events(whole) if "output" in whole else _message_events(whole)
    return [b"event: " + event["type"].encode() + b"\n" + _event(event) for event in events]


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def _pieces(text: str) -> list[str]:
    return [piece for piece in _PIECE.findall(text) if piece]


def _chunks(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    frame = {"id": whole["id"], "object": "chat.completion.chunk", "created": 1, "model": whole["model"]}
    (choice,) = whole["choices"]
    message = choice["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": piece} for piece in _pieces(message.get("reasoning_content") or "")]
    deltas += [{"content": piece} for piece in _pieces(message["content"] or "")]
    deltas += [{"annotations": [annotation]} for annotation in message.get("annotations", ())]
    for index, call in enumerate(message.get("tool_calls", ())):
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        opening = {**call, "index": index, "function": {"name": name, "arguments": ""}}
        rest = [{"index": index, "function": {"arguments": piece}} for piece in _pieces(arguments)]
        deltas += [{"tool_calls": [piece]} for piece in (opening, *rest)]
    for delta in deltas:
        yield {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    if "usage" in whole:
        yield {**frame, "choices": [], "usage": whole["usage"]}


def _response_events(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "response.created", "response": {**whole, "status": "in_progress", "output": [], "usage": None}}
    for index, item in enumerate(whole["output"]):
        kind, place = item["type"], {"output_index": index, "item_id": item["id"]}
        yield {"type": "response.output_item.added", "output_index": index, "item": item | {"content": []}}
        if kind == "reasoning":
            for piece in _pieces(item["summary"][0]["text"]):
                yield {"type": "response.reasoning_summary_text.delta", **place, "delta": piece}
        elif kind == "message":
            for piece in _pieces(item["content"][0]["text"]):
                yield {"type": "response.output_text.delta", **place, "content_index": 0, "delta": piece}
        else:
            for piece in _pieces(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{whole['status']}", "response": whole}


def _message_events(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    usage = whole.get("usage") or {}
    start = {**whole, "content": [], "stop_reason": None}
    if usage:
        start["usage"] = {**usage, "output_tokens": 1}
    yield {"type": "message_start", "message": start}
    yield {"type": "ping"}
    for index, block in enumerate(whole["content"]):
        deltas: list[dict[str, Any]]
        opening: dict[str, Any]
        if block["type"] == "text":
            opening = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(block["text"])]
            deltas += [{"type": "citations_delta", "citation": cited} for cited in block.get("citations", ())]
        elif block["type"] == "thinking":
            opening = {"type": "thinking", "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(block["thinking"])]
            deltas += [{"type": "signature_delta", "signature": block["signature"]}]
        else:
            opening = {**block, "input": {}}
            pieces = _pieces(json.dumps(block["input"]))
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces)]
        yield {"type": "content_block_start", "index": index, "content_block": opening}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stopped = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stopped, **({"usage": usage} if usage else {})}
    yield {"type": "message_stop"}


def echo(request: ProviderRequest) -> Reply:
    """Answer with the last message."""
    return Reply(request.question)


class ScriptedProvider:
    """Answers with its replies in turn and then repeats the last one; runs in its own threads.

    Args:
        replies: What is answered: replies, or functions of the request that return one.
        port: Where; a free port if 0.
        preflight: What is answered to a judge's preflight request, of a single output token.
    """

    def __init__(self, *replies: Script, port: int = 0, preflight: Script = _PREFLIGHT) -> None:
        self.requests: list[ProviderRequest] = []
        self.preflights: list[ProviderRequest] = []
        """A judge's preflight requests, which take none of the replies."""
        self.preflight = preflight
        self._replies = list(replies) or [echo]
        self._lock = threading.Lock()
        self.batches = ScriptedBatches(self._script, reply_body)
        """Its batch APIs, and how batches go there."""
        self._closing = threading.Event()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.provider = self
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        """Where it is: the base URL of Anthropic's protocol."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def openai_url(self) -> str:
        """The base URL of OpenAI's protocol."""
        return f"{self.url}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.hang_up()
        self._server.server_close()
        self._thread.join()

    def is_closing(self, within_s: float) -> bool:
        """Return whether the provider is closed within some seconds."""
        return self._closing.wait(within_s)

    def take(self, request: ProviderRequest) -> Reply:
        """Return the answer to a request."""
        is_preflight = request.max_tokens == 1
        with self._lock:
            (self.preflights if is_preflight else self.requests).append(request)
        reply = _reply_to(request, self.preflight) if is_preflight else self._script(request)
        if reply.delay_s:
            self._closing.wait(reply.delay_s)
        return reply

    def _script(self, request: ProviderRequest) -> Reply:
        with self._lock:
            script = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
        return _reply_to(request, script)


def _reply_to(request: ProviderRequest, script: Script) -> Reply:
    return script if isinstance(script, Reply) else script(request)


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that closing waits for them
    provider: ScriptedProvider

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._connections: set[socket.socket] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        for connection in list(self._connections):
            with contextlib.suppress(OSError):  # the other side was faster
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing: in many tests the client hangs up."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave together, or each reply would wait for an acknowledgement
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self._serve_batches(headers, body):
            return
        request = ProviderRequest(self.path, headers, json.loads(body or b"null"))
        reply = self.server.provider.take(request)
        for _ in range(1 + reply.twice):
            if request.wants_stream and reply.status == 200 and reply.raw is None:
                self._stream(reply)
            else:
                self._send(reply)

    def _send(self, reply: Reply) -> None:
        content = reply.raw if reply.raw is not None else json.dumps(reply_body(self.path, reply)).encode()
        self.send_response(reply.status)
        for name, value in {"content-type": "application/json", **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        if reply.drip_s:
            self._drip(content, reply.drip_s)
        else:
            self.wfile.write(content[: len(content) // 2] if reply.cut else content)
        self.close_connection = self.close_connection or reply.cut

    def _stream(self, reply: Reply) -> None:
        events = reply_events(self.path, reply)
        self.send_response(200)
        for name, value in {"content-type": "text/event-stream; charset=utf-8", **reply.headers}.items():
            self.send_header(name, value)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in events[: len(events) // 2] if reply.cut else events:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
            self.wfile.flush()
        if not reply.cut:
            self.wfile.write(b"0\r\n\r\n")
        self.close_connection = self.close_connection or reply.cut

    def do_GET(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        if not self._serve_batches(headers, b""):
            self.send_error(404)

    def _serve_batches(self, headers: dict[str, str], body: bytes) -> bool:
        reply = self.server.provider.batches.serve(self.command, self.path, headers, body)
        if reply is None:
            return False
        self.close_connection = self.close_connection or reply.cut or reply.lost
        if reply.lost:
            return True
        self.send_response(reply.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body[: len(reply.body) // 2] if reply.cut else reply.body)
        return True

    def _drip(self, content: bytes, pause_s: float) -> None:
        for byte in content:
            self.wfile.write(bytes([byte]))
            self.wfile.flush()
            if self.server.provider.is_closing(pause_s):
                return

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the name that the base class gave it
        """Log nothing."""
