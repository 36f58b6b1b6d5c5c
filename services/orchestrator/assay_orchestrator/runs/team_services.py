"""The embedder and the judge, as far as they keep something of teams: deleted there with a team."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from assay.model.scope import LOCAL
from assay.rpc.status import translated
from assay.v1 import embedder_pb2, judge_pb2
from assay_orchestrator.identity.service_scopes import ServiceScopes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.storage.database import Database
    from assay.v1.embedder_pb2_grpc import EmbedderServiceAsyncStub
    from assay.v1.judge_pb2_grpc import JudgeServiceAsyncStub

Counts = tuple[dict[str, int], dict[str, int]]
"""How many entries were deleted, and how many are left, by what they are."""

_TIMEOUT_S = 300.0


class TeamService(Protocol):
    """Another service that has something of teams.

    Attributes:
        name: As people know it.
    """

    name: str

    async def delete(self, team: str) -> Counts:
        """Delete all that it has of a team, and count again.

        Raises:
            AssayError: It does not answer, or cannot.
        """
        ...


def services_of_teams(
    database: Database, embedder: EmbedderServiceAsyncStub | None, judge: JudgeServiceAsyncStub | None
) -> Sequence[TeamService]:
    """Return the services of an installation that have something of teams.

    Args:
        database: The store.
        embedder: Calls the embedder; None where there is none.
        judge: Calls the judge; likewise.
    """
    services: list[TeamService] = []
    if embedder is not None:
        services.append(EmbedderOfTeams(embedder, database))
    if judge is not None:
        services.append(JudgeOfTeams(judge, database))
    return services


class JudgeOfTeams:
    """The judge: verdicts, accounts, orders.

    Args:
        stub: Calls it.
        database: The store, for the name by which it knows a team.
    """

    name = "judge"

    def __init__(self, stub: JudgeServiceAsyncStub, database: Database) -> None:
        self._stub = stub
        self._scopes = ServiceScopes(database)

    async def delete(self, team: str) -> Counts:
        """Delete what it has of a team."""
        request = judge_pb2.JudgeServiceDeleteScopeRequest(scope=await self._scopes.of(team))
        with translated():
            response = await self._stub.DeleteScope(request, timeout=_TIMEOUT_S)
        return dict(response.deleted_counts), dict(response.remaining_counts)


class EmbedderOfTeams:
    """The embedder: cached vectors.

    Args:
        stub: Calls it.
        database: The store, for the name by which it knows a team.
    """

    name = "embedder"

    def __init__(self, stub: EmbedderServiceAsyncStub, database: Database) -> None:
        self._stub = stub
        self._scopes = ServiceScopes(database)

    async def delete(self, team: str) -> Counts:
        """Delete what it has of a team."""
        scope = await self._scopes.of(team) or LOCAL.team
        with translated():
            response = await self._stub.DeleteScope(
                embedder_pb2.EmbedderServiceDeleteScopeRequest(scope=scope), timeout=_TIMEOUT_S
            )
        return dict(response.deleted_counts), dict(response.remaining_counts)
