"""The team data in the embedder and the judge: deleted with the team, at every replica."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from typing import TYPE_CHECKING, Any, Protocol

from assay.embedder.v1 import embedder_pb2, embedder_pb2_grpc
from assay.errors import UnavailableError
from assay.judge.v1 import judge_pb2, judge_pb2_grpc
from assay.model.scope import LOCAL
from assay.rpc.addresses import first_of_list
from assay.rpc.channel import open_channel
from assay.rpc.options import ChannelOptions
from assay.rpc.status import translated
from assay_orchestrator.identity.service_scopes import ServiceScopes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from grpc.aio import Channel

    from assay.storage.database import Database
    from assay_orchestrator.settings import Settings

Counts = tuple[dict[str, int], dict[str, int]]
"""How many entries were deleted and how many remain, by kind."""

_TIMEOUT_S = 300.0


class TeamService(Protocol):
    """Another service with data of teams.

    Attributes:
        name: Its name in messages.
    """

    name: str

    async def delete(self, team: str) -> Counts:
        """Delete all data of a team, then count what remains.

        Raises:
            AssayError: The service does not answer, or cannot delete.
        """


def services_of_teams(database: Database, settings: Settings) -> Sequence[TeamService]:
    """Return the services of an installation that have data of teams."""
    services = {"embedder": (settings.embedder, _delete_vectors), "judge": (settings.judge, _delete_verdicts)}
    return [
        ReplicatedService(name, address, database, settings, delete)
        for name, (address, delete) in services.items()
        if address
    ]


class ReplicatedService:
    """A service with one or several replicas, each with its own caches.

    Args:
        name: Its name in messages.
        address: Its address.
        database: The store, for the name by which the service knows a team.
        settings: How to reach the service.
        delete: Calls the service's method that deletes a scope.
    """

    def __init__(
        self,
        name: str,
        address: str,
        database: Database,
        settings: Settings,
        delete: Callable[[Channel, str], Any],
    ) -> None:
        self.name = name
        self._address = address
        self._scopes = ServiceScopes(database)
        self._tls = settings.services_tls
        self._delete = delete

    async def delete(self, team: str) -> Counts:
        """Delete a team's data at every replica."""
        scope = await self._scopes.of(team)
        deleted, remaining = Counter[str](), Counter[str]()
        for address, authority in await replicas(self._address):
            async with open_channel(address, ChannelOptions(tls=self._tls, authority=authority)) as channel:
                with translated():
                    response = await self._delete(channel, scope)
            deleted.update(response.deleted_counts)
            remaining.update(response.remaining_counts)
        return dict(deleted), dict(remaining)


async def replicas(address: str) -> list[tuple[str, str]]:
    """Return the address of each server behind an address, with its certificate's name if that differs.

    Args:
        address: As `open_channel` takes it: "dns:///host:port" and "ipv4:host:port,host:port" name several servers.

    Raises:
        UnavailableError: The name cannot be resolved.
    """
    scheme, _, rest = address.partition(":")
    if scheme in ("ipv4", "ipv6"):
        return [(f"{scheme}:{server}", first_of_list(address)) for server in rest.split(",")]
    if not address.startswith("dns:///"):
        return [(address, "")]
    name = address.removeprefix("dns:///")
    host, _, port = name.rpartition(":")
    try:
        resolved = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as problem:  # no such host, or not a host name
        raise UnavailableError(f"{host} cannot be resolved: {problem}") from problem
    kinds = {socket.AF_INET: "ipv4:{}:{}", socket.AF_INET6: "ipv6:[{}]:{}"}
    return sorted({(kinds[family].format(*place[:2]), name) for family, _, _, _, place in resolved if family in kinds})


async def _delete_vectors(channel: Channel, scope: str) -> embedder_pb2.DeleteScopeResponse:
    request = embedder_pb2.DeleteScopeRequest(scope=scope or LOCAL.team)
    return await embedder_pb2_grpc.EmbedderServiceStub(channel).DeleteScope(request, timeout=_TIMEOUT_S)


async def _delete_verdicts(channel: Channel, scope: str) -> judge_pb2.DeleteScopeResponse:
    request = judge_pb2.DeleteScopeRequest(scope=scope)
    return await judge_pb2_grpc.JudgeServiceStub(channel).DeleteScope(request, timeout=_TIMEOUT_S)
