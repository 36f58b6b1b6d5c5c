"""The parts of a server with identified callers; a server without identities does not import this module."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from assay.admin.v1 import admin_pb2_grpc
from assay.errors import SetupError
from assay.local_stack.install_hint import install_hint
from assay_orchestrator.identity.admin_service import SERVICE_NAME, AdminService
from assay_orchestrator.identity.issuers import read_issuers
from assay_orchestrator.identity.verifier import TokenVerifier

if TYPE_CHECKING:
    from assay.identity.authenticator import Authenticator
    from assay.rpc.server import RpcServer
    from assay.storage.database import Database
    from assay_orchestrator.identity.admin_service import TeamRuns, TeamUpkeep
    from assay_orchestrator.settings import Settings


def authenticator(settings: Settings, database: Database) -> Authenticator:
    """Return the authenticator of callers.

    Raises:
        InvalidInputError: The file of issuers is wrong.
        SetupError: A package for their tokens is missing.
    """
    if settings.oidc is None:
        return TokenVerifier(database)
    issuers = read_issuers(settings.oidc)
    try:
        from assay_orchestrator.identity.oidc import OidcVerifier
    except ImportError as problem:
        raise SetupError(f"{problem.name} is not installed, which --oidc needs: {install_hint('oidc')}") from None
    return TokenVerifier(database, OidcVerifier(issuers, database))


def add_admin_service(server: RpcServer, database: Database, runs: TeamRuns, upkeep: TeamUpkeep) -> None:
    """Serve teams, tokens, quotas and the audit."""
    service = AdminService(database, runs, upkeep)
    server.add(SERVICE_NAME, partial(admin_pb2_grpc.add_AdminServiceServicer_to_server, service))
