"""The parts of a server with identified callers; a server without identities imports none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.errors import SetupError
from assay.local_stack.install_hint import install_hint

if TYPE_CHECKING:
    from assay.identity.authenticator import Authenticator
    from assay.rpc.server import RpcServer
    from assay.rpc.team_admission import TeamAdmission
    from assay.storage.database import Database
    from assay_orchestrator.identity.admin_service import TeamRuns, TeamUpkeep
    from assay_orchestrator.identity.audit_log import AuditLog
    from assay_orchestrator.settings import Settings


def authenticator(settings: Settings, database: Database) -> Authenticator | None:
    """Return the authenticator of callers; None if they need no tokens.

    Raises:
        InvalidInputError: The file of issuers is wrong.
        SetupError: A package for their tokens is missing.
    """
    if settings.auth == "none":
        return None
    from assay_orchestrator.identity.verifier import TokenVerifier

    return TokenVerifier(database, _oidc(settings, database))


def team_admission(settings: Settings, database: Database) -> TeamAdmission | None:
    """Return the admission control of teams' calls; None if callers have no teams."""
    if settings.auth == "none":
        return None
    from assay_orchestrator.identity.team_requests import TeamRequests

    return TeamRequests(database)


def _oidc(settings: Settings, database: Database) -> Authenticator | None:
    if settings.oidc is None:
        return None
    from assay_orchestrator.identity.issuers import read_issuers

    issuers = read_issuers(settings.oidc)
    try:
        from assay_orchestrator.identity.oidc import OidcVerifier
    except ImportError as problem:
        raise SetupError(f"{problem.name} is not installed, which --oidc needs: {install_hint('oidc')}") from None
    return OidcVerifier(issuers, database)


def auditor(settings: Settings, database: Database) -> AuditLog | None:
    """Return the log of audit entries; None if callers have no identities."""
    if settings.auth == "none":
        return None
    from assay_orchestrator.identity.audit_log import AuditLog

    return AuditLog(database)


def add_admin_service(server: RpcServer, database: Database, runs: TeamRuns, upkeep: TeamUpkeep) -> None:
    """Serve teams, tokens, quotas and the audit."""
    from assay.v1 import admin_pb2_grpc
    from assay_orchestrator.identity.admin_service import SERVICE_NAME, AdminService

    service = AdminService(database, runs, upkeep)
    server.add(SERVICE_NAME, lambda grpc: admin_pb2_grpc.add_AdminServiceServicer_to_server(service, grpc))
