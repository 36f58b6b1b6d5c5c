"""An orchestrator shared by teams, in this process behind the real wire, with tokens and clients."""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from assay.client.client import Client
from assay.identity.rights import Role
from assay.identity.tokens import new_token
from assay.rpc.server import RpcServer
from assay_orchestrator.engine.dispatcher_factory import open_dispatcher
from assay_orchestrator.identity.audit_log import AuditLog
from assay_orchestrator.identity.serving import add_admin_service, authenticator
from assay_orchestrator.identity.verifier import TokenVerifier
from assay_orchestrator.runs.manager import RunManager
from assay_orchestrator.runs.planner import Planner
from assay_orchestrator.runs.team_runs import TeamRuns
from assay_orchestrator.runs.upkeep import Upkeep
from assay_orchestrator.service.registration import registrations
from assay_orchestrator.settings import Settings
from assay_orchestrator.store.database import open_database
from assay_orchestrator.store.teams import tokens

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from assay.rpc.team_admission import TeamAdmission
    from assay.storage.database import Database
    from assay_orchestrator.runs.team_services import TeamService


@dataclass
class Clock:
    """A clock that a test advances."""

    now_s: float = 0.0

    def __call__(self) -> float:
        """Return the current time in seconds."""
        return self.now_s


@dataclass
class SharedInstallation:
    """An orchestrator with identities.

    Args:
        address: Where it serves.
        database: Its store.
        clock: By which it remembers tokens, and counts for the audit.
        audit: Stores the audit's entries.
        manager: Its runs.
        patience_s: Of clients that are made from now on.
    """

    address: str
    database: Database
    clock: Clock
    audit: AuditLog
    stack: AsyncExitStack
    manager: RunManager
    teams: set[str] = field(default_factory=set)
    patience_s: float = 60.0

    async def token(self, team: str, role: Role = Role.RUNNER, *, expires_at: str | None = None) -> str:
        """Return a new token of a team; the team is created if it does not exist."""
        token = new_token()

        def make(connection: Any) -> None:
            if team not in self.teams:
                tokens.create_team(connection, team)
            wanted = tokens.NewToken(team, role, f"{role.value} of {team}", expires_at=expires_at)
            tokens.create_token(connection, token, wanted)

        await self.database.write(make)
        self.teams.add(team)
        return token.text

    async def client(self, token: str, **options: Any) -> Client:
        """Return a client with a token; it is closed with the installation."""
        return await self.stack.enter_async_context(
            Client(self.address, token=token, patience_s=self.patience_s, **options)
        )

    async def member(self, team: str, role: Role = Role.RUNNER) -> Client:
        """Return a client with a new token of a team."""
        return await self.client(await self.token(team, role))


@asynccontextmanager
async def shared_installation(
    folder: Path,
    *,
    listen: str = "",
    recheck_s: float = 30.0,
    refused_s: float = 1.0,
    upkeep_s: float = 60.0,
    team_admission: Callable[[Database], TeamAdmission] | None = None,
    planner: Callable[[Settings], Planner] = lambda settings: Planner(settings, None),
    services: Sequence[TeamService] = (),
    **changes: Any,
) -> AsyncIterator[SharedInstallation]:
    """Serve an orchestrator with identities and the settings of a test."""
    own: dict[str, Any] = {"database": folder / "assay.db", "auth": "tokens", "grace_s": 1.0, **changes}
    settings = Settings(listen=listen or f"unix:{folder}/shared.sock", **own)
    database, clock = open_database(settings), Clock()
    manager = RunManager(database, settings, planner(settings), open_dispatcher(settings, database))
    known = TokenVerifier(database, monotonic_s=clock) if settings.oidc is None else authenticator(settings, database)
    log = AuditLog(database, monotonic_s=clock)
    teams = team_admission(database) if team_admission is not None else None
    options = replace(
        settings.server_options,
        authenticator=known,
        auditor=log,
        recheck_s=recheck_s,
        team_admission=teams,
        refused_s=refused_s,
    )
    server = RpcServer(options)
    for name, register in registrations(database, manager, settings, server.stopping, None).items():
        server.add(name, register)
    team_runs = TeamRuns(database, manager)
    upkeep = Upkeep(database, team_runs, services, settle_s=0.0, interval_s=upkeep_s)
    add_admin_service(server, database, team_runs, upkeep)
    async with AsyncExitStack() as stack:
        stack.callback(database.close)
        stack.push_async_callback(log.aclose)
        address = await server.start(settings.listen)
        stack.push_async_callback(server.stop, 0)
        await manager.start()
        stack.push_async_callback(manager.aclose)
        upkeep.start()
        stack.push_async_callback(upkeep.aclose)
        server.set_serving(True)
        async with AsyncExitStack() as clients:
            yield SharedInstallation(address, database, clock, log, clients, manager=manager)
        server.begin_stopping()
