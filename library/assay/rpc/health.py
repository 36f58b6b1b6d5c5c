"""grpc.health.v1 for a whole process: all services are ready, or none is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from assay.rpc.options import VERSION_KEY
from assay.version import __version__

Status = health_pb2.HealthCheckResponse


class Health(health_pb2_grpc.HealthServicer):
    """Reports the health of the named services and of "", the process as a whole.

    The servicer that comes with gRPC keeps its watchers until they leave, which holds up every
    graceful stop for its whole grace; this one ends them on `close`.

    Args:
        service_names: The services that exist; others are unknown.
    """

    def __init__(self, service_names: frozenset[str]) -> None:
        self._known = service_names | {""}
        self._serving = False
        self._closed = False
        self._changed = asyncio.Event()

    def set_serving(self, serving: bool) -> None:
        """Set whether the process accepts calls."""
        self._serving = serving
        self._wake()

    def close(self) -> None:
        """End all watches after the last change was sent."""
        self._closed = True
        self._wake()

    async def Check(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:  # noqa: N802
        """Return the status of one service, and in the metadata the version of Assay."""
        if request.service not in self._known:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"{request.service} is not served here")
        await context.send_initial_metadata(((VERSION_KEY, __version__),))
        return Status(status=self._status(request.service))

    async def List(self, request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:  # noqa: N802
        """Return the status of every service."""
        return health_pb2.HealthListResponse(  # type: ignore[attr-defined]  # newer than its stubs
            statuses={name: Status(status=self._status(name)) for name in sorted(self._known)}
        )

    async def Watch(  # noqa: N802  # the name is the contract's
        self, request: Any, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[Any]:
        """Yield the status of one service, then each change."""
        last: int | None = None
        while True:
            # Taken before the status is read: a change in between then ends the wait below at once.
            changed = self._changed
            now = self._status(request.service)
            if now != last:
                yield Status(status=now)
                last = now
                continue  # it may have changed while it was written
            if self._closed:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "The server is stopping.")
            await changed.wait()

    def _status(self, service: str) -> Any:
        if service not in self._known:
            return Status.SERVICE_UNKNOWN
        return Status.SERVING if self._serving else Status.NOT_SERVING

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
