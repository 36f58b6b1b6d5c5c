"""ServerService on the wire: what the server is, which metrics it knows, and who its caller is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from assay.identity.caller import caller
from assay.metrics import METRICS
from assay.model.limits import MAX_COMPARED_FIGURES, MAX_COMPARED_ROWS, MAX_COMPARED_RUNS
from assay.v1 import server_pb2, server_pb2_grpc
from assay.version import __version__
from assay.wire.metric_definition import definition_to_wire
from assay.wire.pages import MAX_PAGE_BYTES
from assay.wire.roles import ROLES
from assay.wire.times import timestamp_to_wire

if TYPE_CHECKING:
    from assay.model.scope import Scope
    from assay.rpc.access import Context
    from assay_orchestrator.settings import Settings

API = 1
"""The revision of assay.v1; a release that adds methods or fields raises it."""


class ServerService(server_pb2_grpc.ServerServiceServicer):
    """Describes the server and the caller.

    Args:
        settings: Features and limits.
        scope: The scope of every call; None if each caller has an identity.
    """

    def __init__(self, settings: Settings, scope: Scope | None) -> None:
        self._settings = settings
        self._fixed_scope = scope

    async def GetServerInfo(
        self, request: server_pb2.GetServerInfoRequest, context: Context
    ) -> server_pb2.GetServerInfoResponse:
        """Return version, features and limits."""
        settings = self._settings
        features = {"embedder": settings.embedder, "judge": settings.judge, "oidc": settings.oidc}
        return server_pb2.GetServerInfoResponse(
            version=__version__,
            api=API,
            auth=server_pb2.AUTH_MODE_NONE if settings.auth == "none" else server_pb2.AUTH_MODE_TOKENS,
            features=sorted(name for name, value in features.items() if value),
            limits=server_pb2.ServerLimits(
                max_message_bytes=settings.server_options.max_message_bytes,
                max_page_bytes=MAX_PAGE_BYTES,
                max_active_runs=settings.active_run_limit,
                max_compared_runs=MAX_COMPARED_RUNS,
                max_compared_rows=MAX_COMPARED_ROWS,
                max_compared_figures=MAX_COMPARED_FIGURES,
            ),
        )

    async def ListMetrics(
        self, request: server_pb2.ListMetricsRequest, context: Context
    ) -> server_pb2.ListMetricsResponse:
        """Return all kinds of metrics."""
        # In a thread: the first call imports every metric.
        definitions = await asyncio.to_thread(lambda: list(map(definition_to_wire, METRICS)))
        return server_pb2.ListMetricsResponse(metrics=sorted(definitions, key=lambda metric: metric.name))

    async def GetIdentity(
        self, request: server_pb2.GetIdentityRequest, context: Context
    ) -> server_pb2.GetIdentityResponse:
        """Return the identity behind the call's token; the team alone where callers have no identities."""
        if self._fixed_scope is not None:
            return server_pb2.GetIdentityResponse(team=self._fixed_scope.team)
        own = caller()
        return server_pb2.GetIdentityResponse(
            team=own.team,
            role=ROLES.to_wire(own.role),
            token_id=own.token_id,
            name=own.name,
            expire_time=timestamp_to_wire(own.expires_at),
        )
