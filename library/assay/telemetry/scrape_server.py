"""The HTTP server that Prometheus reads, in its own threads: a busy event loop does not delay a scrape."""

from __future__ import annotations

import io
import logging
import socket
import sys
import threading
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any, TextIO
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import make_wsgi_app

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_STOP_S = 0.05
_IDLE_S = 10.0
MOST_REQUESTS = 16
"""Requests at once; further connections are closed."""

_log = logging.getLogger(__name__)


class ScrapeServer:
    """Answers every path with the metrics of a registry.

    Args:
        host: The host to listen at.
        port: The port; 0 takes a free port.
        registry: The registry to serve.

    Raises:
        OSError: The address is taken, or not an address of this machine.
    """

    def __init__(self, host: str, port: int, registry: CollectorRegistry) -> None:
        kind = _Server6 if ":" in host else _Server
        self._server = make_server(host, port, make_wsgi_app(registry), kind, _Handler)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_STOP_S,), daemon=True, name="metrics")
        self._thread.start()

    def close(self) -> None:
        """Stop listening; blocks briefly."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._slots = threading.BoundedSemaphore(MOST_REQUESTS)
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in one of a few threads."""
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started
            self._slots.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and release the slot."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log a failed request, except if its client disconnected."""
        problem = sys.exc_info()[1]
        level = logging.DEBUG if isinstance(problem, OSError) else logging.ERROR
        _log.log(level, "request for metrics failed", exc_info=problem)

    def server_bind(self) -> None:
        """Bind without resolving the address's name, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()


class _Server6(_Server):
    address_family = socket.AF_INET6


class _LoggedErrors(io.StringIO):
    """Logs the current exception in place of the library's traceback."""

    def flush(self) -> None:
        """Log it."""
        if self.getvalue():
            _log.error("request for metrics failed", exc_info=True)
            self.seek(0)
            self.truncate()


class _Handler(WSGIRequestHandler):
    timeout = _IDLE_S

    def get_stderr(self) -> TextIO:
        """Return the stream for reports of failed requests: the log."""
        return _LoggedErrors()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Log nothing: scrapes are routine."""
