"""An OTLP receiver over HTTP on loopback, in its own threads: exporters may block the loop that agents run in."""

from __future__ import annotations

import functools
import json
import logging
import os
import threading
import zlib
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from assay.agent_host.traces.json_spans import spans_from_json
from assay.agent_host.traces.protobuf_spans import partial_success, spans_from_protobuf
from assay.agent_host.traces.span import MalformedSpanError, Span
from assay.agent_host.traces.trace import EXPORT_DELAY_S, TraceBook

if TYPE_CHECKING:
    import socket

MAX_BODY_BYTES = 16 * 1024 * 1024
"""Maximum size of an export, compressed or not."""

_MAX_CONNECTIONS = 512
_IDLE_S = 10.0
_TRACES = "/v1/traces"
_OTHERS = ("/v1/metrics", "/v1/logs")
_JSON, _PROTOBUF = "application/json", "application/x-protobuf"

_log = logging.getLogger(__name__)


class TraceReceiver:
    """Listens on a free port of 127.0.0.1 until it is closed or this process ends.

    Attributes:
        traces: Receives the spans; those of unknown traces are dropped.
        url: The receiver's URL, e.g. "http://127.0.0.1:40123".
    """

    def __init__(self) -> None:
        self.traces = TraceBook()
        self._server = _Server(self.traces)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="trace receiver", daemon=True)
        thread.start()

    def environment(self) -> dict[str, str]:
        """Return the variables that make an exporter send spans here without delay."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": self.url + _TRACES,
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
            "OTEL_BSP_SCHEDULE_DELAY": f"{EXPORT_DELAY_S * 1000:.0f}",
            **dict.fromkeys(("NO_PROXY", "no_proxy"), _unproxied()),
        }

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


@functools.cache
def shared_receiver() -> TraceReceiver:
    """Return this process's receiver, which lives as long as it: an agent that is imported once keeps its address."""
    return TraceReceiver()


def _unproxied() -> str:
    """Return the hosts to reach without a proxy, including this one; otherwise spans would go to the proxy."""
    value = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    hosts = [host for host in value.split(",") if host.strip()]
    return ",".join([*hosts, *(host for host in ("127.0.0.1", "localhost") if host not in hosts)])


class _RefusedError(Exception):
    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, traces: TraceBook) -> None:
        self.traces = traces
        self._free = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        super().__init__(("127.0.0.1", 0), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)  # exporters retry

    def process_request_thread(self, request: socket.socket | tuple[bytes, socket.socket], client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("connection of an exporter broke", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """Handles one export per connection."""

    server: _Server
    timeout = _IDLE_S

    def do_POST(self) -> None:
        kind = self.headers.get_content_type()
        try:
            body = self._body()
            if self.path in _OTHERS:
                self._reply(HTTPStatus.OK, b"{}" if kind == _JSON else b"", kind)
                return
            if self.path != _TRACES:
                raise _RefusedError(HTTPStatus.NOT_FOUND, f"traces are received at {_TRACES}")
            spans, malformed = _read(body, kind)
        except _RefusedError as problem:
            _log.warning("refusing spans of an exporter: %s", problem)
            self._reply(problem.status, str(problem).encode(), "text/plain")
            return
        self.server.traces.add(spans)
        self._reply(HTTPStatus.OK, _reply_to(malformed, kind), kind)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Log nothing: an export is not an event for users."""

    def _reply(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind if kind in (_JSON, _PROTOBUF) else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _body(self) -> bytes:
        body = self._chunks() if "chunked" in self.headers.get("Transfer-Encoding", "").lower() else self._sized()
        match self.headers.get("Content-Encoding", "identity").strip().lower():
            case "identity" | "":
                return body
            case "gzip":
                return _unzipped(body)
            case _:
                raise _RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a body is plain or in gzip")

    def _sized(self) -> bytes:
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit() and len(length) < 20):
            raise _RefusedError(HTTPStatus.LENGTH_REQUIRED, "the request has no Content-Length")
        _check_size(int(length))
        return self.rfile.read(int(length))

    def _chunks(self) -> bytes:
        body = bytearray()
        while True:
            line = self.rfile.readline(100)
            try:
                size = int(line.partition(b";")[0], 16)
            except ValueError:
                raise _RefusedError(HTTPStatus.BAD_REQUEST, "a chunk has no size") from None
            if size <= 0:
                return bytes(body)
            _check_size(len(body) + size)
            body += self.rfile.read(size)
            self.rfile.readline(3)


def _check_size(size: int) -> None:
    if size > MAX_BODY_BYTES:
        message = f"an export is larger than {MAX_BODY_BYTES // 1024**2} MiB"
        raise _RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message)


def _unzipped(body: bytes) -> bytes:
    unzip = zlib.decompressobj(wbits=31)
    try:
        # One byte more than allowed shows the excess without unpacking all of it.
        plain = unzip.decompress(body, MAX_BODY_BYTES + 1)
    except zlib.error:
        raise _RefusedError(HTTPStatus.BAD_REQUEST, "the body is not gzip, as its header says") from None
    _check_size(len(plain))
    return plain


def _read(body: bytes, kind: str) -> tuple[list[Span], int]:
    """Return the spans of a body, and the number of malformed ones."""
    try:
        if kind == _PROTOBUF:
            return spans_from_protobuf(body)
        if kind == _JSON:
            return spans_from_json(json.loads(body))
    except MalformedSpanError as problem:
        raise _RefusedError(HTTPStatus.BAD_REQUEST, f"the body cannot be read: {problem}") from None
    except (ValueError, RecursionError):
        raise _RefusedError(HTTPStatus.BAD_REQUEST, "the body is not JSON") from None
    raise _RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"a body is {_PROTOBUF} or {_JSON}")


def _reply_to(malformed: int, kind: str) -> bytes:
    message = "malformed spans were left out" if malformed else ""
    if malformed:
        _log.warning("leaving out malformed spans of an exporter: count=%d", malformed)
    if kind == _PROTOBUF:
        return partial_success(malformed, message)
    reply = {"partialSuccess": {"rejectedSpans": str(malformed), "errorMessage": message}} if malformed else {}
    return json.dumps(reply).encode()
