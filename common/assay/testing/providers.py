"""A provider of models on a port of this machine, which gives scripted replies.

It speaks OpenAI's Chat Completions (any path that ends with /chat/completions) and Anthropic's Messages (any path
that ends with /messages), and the batch APIs of both, so that the real packages of both can be used against it:

    with ScriptedProvider(Reply("Paris"), Reply(status=429, headers={"retry-after": "1"})) as provider:
        spec["agent"] |= {"adapter": "openai", "base_url": provider.openai_url}
        ...
        assert provider.requests[0].body["model"] == "some-model"
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from assay.testing.batches import ScriptedBatches
from assay.testing.messages import ProviderRequest, Reply, Tokens

__all__ = ["ProviderRequest", "Reply", "ScriptedProvider", "Tokens", "echo"]

_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


Script = Reply | Callable[[ProviderRequest], Reply]


def echo(request: ProviderRequest) -> Reply:
    """Answer with the last message."""
    return Reply(request.question)


class ScriptedProvider:
    """Answers with one reply after the other, the last one again and again; runs in threads of its own.

    Args:
        replies: What is answered: replies, or functions of the request that return one.
        port: Where; a free port if 0.
    """

    def __init__(self, *replies: Script, port: int = 0) -> None:
        self.requests: list[ProviderRequest] = []
        self._replies = list(replies) or [echo]
        self._lock = threading.Lock()
        self.batches = ScriptedBatches(self._script, _body)
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
        """Return what is to be answered to a request."""
        with self._lock:
            self.requests.append(request)
        reply = self._script(request)
        if reply.delay_s:
            self._closing.wait(reply.delay_s)
        return reply

    def _script(self, request: ProviderRequest) -> Reply:
        with self._lock:
            script = self._replies.pop(0) if len(self._replies) > 1 else self._replies[0]
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
        """Say nothing: a client that hangs up is part of many tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body leave together, or each reply would wait for an acknowledgement
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if self._serve_batches(headers, body):
            return
        reply = self.server.provider.take(ProviderRequest(self.path, headers, json.loads(body or b"null")))
        for _ in range(1 + reply.twice):
            self._send(reply)

    def _send(self, reply: Reply) -> None:
        content = reply.raw if reply.raw is not None else json.dumps(_body(self.path, reply)).encode()
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
        """Say nothing."""


def _body(path: str, reply: Reply) -> dict[str, Any]:
    if path.endswith("/chat/completions"):
        return _completion(reply)
    if path.endswith("/messages"):
        return _message(reply)
    return {"error": {"type": "not_found_error", "message": f"no such path: {path}"}}


def _completion(reply: Reply) -> dict[str, Any]:
    if reply.status != 200:
        return {"error": {"message": reply.text, "type": "scripted_error", "param": None, "code": None, **reply.error}}
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
    if reply.thinking:
        message["reasoning_content"] = reply.thinking
    if reply.tool_calls:
        message["tool_calls"] = [
            {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for i, (name, arguments) in enumerate(reply.tool_calls)
        ]
    data: dict[str, Any] = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": reply.stop}],
    }
    if reply.usage is not None:
        data["usage"] = {
            "prompt_tokens": reply.usage.input,
            "completion_tokens": reply.usage.output,
            "total_tokens": reply.usage.input + reply.usage.output,
            "prompt_tokens_details": {
                "cached_tokens": reply.usage.cache_read,
                "cache_write_tokens": reply.usage.cache_write,
            },
            "completion_tokens_details": {"reasoning_tokens": reply.usage.reasoning},
        }
    return data if reply.raw_usage is ... else {**data, "usage": reply.raw_usage}


def _message(reply: Reply) -> dict[str, Any]:
    if reply.status != 200:
        return {"type": "error", "error": {"type": "scripted_error", "message": reply.text, **reply.error}}
    content: list[dict[str, Any]] = []
    if reply.thinking:
        content.append({"type": "thinking", "thinking": reply.thinking, "signature": "s"})
    if reply.text:
        content.append({"type": "text", "text": reply.text})
    content += [
        {"type": "tool_use", "id": f"toolu_{i}", "name": name, "input": dict(arguments)}
        for i, (name, arguments) in enumerate(reply.tool_calls)
    ]
    data: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": content,
        "stop_reason": _STOPS.get(reply.stop, reply.stop),
        "stop_sequence": None,
    }
    if reply.usage is not None:
        used = reply.usage
        data["usage"] = {
            "input_tokens": used.input - used.cache_read - used.cache_write,
            "output_tokens": used.output,
            "cache_read_input_tokens": used.cache_read,
            "cache_creation_input_tokens": used.cache_write,
            "output_tokens_details": {"thinking_tokens": used.reasoning},
        }
    return data if reply.raw_usage is ... else {**data, "usage": reply.raw_usage}
