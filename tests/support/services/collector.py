"""An OpenTelemetry collector for spans over HTTP, which reads them as agents' spans are read."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from assay.agent_host.traces.protobuf_spans import spans_from_protobuf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.agent_host.traces.span import Span


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        """Store an export."""
        body = self.rfile.read(int(self.headers["content-length"]))
        spans, malformed = spans_from_protobuf(body)
        assert not malformed
        self.server.spans += spans
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Log nothing."""


class Collector(ThreadingHTTPServer):
    """Receives OTLP over HTTP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.spans: list[Span] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def by_name(self) -> dict[str, list[Span]]:
        """Return the spans by name."""
        return {name: [span for span in self.spans if span.name == name] for name in {span.name for span in self.spans}}


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector inside the block."""
    server = Collector()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
