"""The servicers of an orchestrator, by the names of their services."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from assay.v1 import (
    calibration_pb2_grpc,
    comparison_pb2_grpc,
    dataset_pb2_grpc,
    host_pb2_grpc,
    run_pb2_grpc,
    server_pb2_grpc,
)
from assay_orchestrator.service import SERVICES
from assay_orchestrator.service.calibration_service import CalibrationService
from assay_orchestrator.service.comparison_service import ComparisonService
from assay_orchestrator.service.dataset_service import DatasetService
from assay_orchestrator.service.host_service import HostService
from assay_orchestrator.service.run_service import RunService
from assay_orchestrator.service.server_service import ServerService
from assay_orchestrator.store.page_tokens import PageTokens

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    import grpc.aio

    from assay.model.scope import Scope
    from assay.storage.database import Database
    from assay_orchestrator.runs.manager import RunManager
    from assay_orchestrator.settings import Settings


def registrations(
    database: Database, manager: RunManager, settings: Settings, stopping: asyncio.Event, scope: Scope | None
) -> dict[str, Callable[[grpc.aio.Server], None]]:
    """Return what registers each service with a gRPC server, by the service's name.

    Args:
        database: The store.
        manager: The runs.
        settings: Limits.
        stopping: Set when the process begins to stop. Long streams end then, and clients resume them elsewhere.
        scope: The scope of every call; None takes the scope of each caller's identity.
    """
    tokens = PageTokens(database)
    runs = RunService(database, tokens, manager, settings, stopping, scope)
    comparisons = ComparisonService(database, tokens, manager, scope)
    calibrations = CalibrationService(database, tokens, scope)
    datasets = DatasetService(database, tokens, manager, scope)
    registering = (
        partial(dataset_pb2_grpc.add_DatasetServiceServicer_to_server, datasets),
        partial(run_pb2_grpc.add_RunServiceServicer_to_server, runs),
        partial(comparison_pb2_grpc.add_ComparisonServiceServicer_to_server, comparisons),
        partial(calibration_pb2_grpc.add_CalibrationServiceServicer_to_server, calibrations),
        partial(host_pb2_grpc.add_HostServiceServicer_to_server, HostService(manager, stopping, scope)),
        partial(server_pb2_grpc.add_ServerServiceServicer_to_server, ServerService(settings, scope)),
    )
    return dict(zip(SERVICES, registering, strict=True))
