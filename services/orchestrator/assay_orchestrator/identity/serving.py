"""What a server needs whose callers have identities; nothing of it is imported where they have none."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.identity.authenticator import Authenticator
    from assay.rpc.server import RpcServer
    from assay.storage.database import Database
    from assay_orchestrator.settings import Settings


def authenticator(settings: Settings, database: Database) -> Authenticator | None:
    """Return what knows the tokens of callers; None where they need none."""
    if settings.auth == "none":
        return None
    from assay_orchestrator.identity.verifier import TokenVerifier

    return TokenVerifier(database)


def add_admin_service(server: RpcServer, database: Database) -> None:
    """Serve teams and tokens."""
    from assay.v1 import admin_pb2_grpc
    from assay_orchestrator.identity.admin_service import SERVICE_NAME, AdminService

    service = AdminService(database)
    server.add(SERVICE_NAME, lambda grpc: admin_pb2_grpc.add_AdminServiceServicer_to_server(service, grpc))
