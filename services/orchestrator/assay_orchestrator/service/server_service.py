"""ServerService on the wire: the identity of the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.identity.caller import caller
from assay.v1 import server_pb2, server_pb2_grpc
from assay.wire.times import timestamp_to_wire

if TYPE_CHECKING:
    from assay.model.scope import Scope
    from assay.rpc.access import Context


class ServerService(server_pb2_grpc.ServerServiceServicer):
    """Describes the server and the caller.

    Args:
        scope: The scope of every call; None if each caller has an identity.
    """

    def __init__(self, scope: Scope | None) -> None:
        self._fixed_scope = scope

    async def GetIdentity(
        self, request: server_pb2.GetIdentityRequest, context: Context
    ) -> server_pb2.GetIdentityResponse:
        """Return the identity behind the call's token; the team alone where callers have no identities."""
        if self._fixed_scope is not None:
            return server_pb2.GetIdentityResponse(team=self._fixed_scope.team)
        own = caller()
        return server_pb2.GetIdentityResponse(
            team=own.team,
            role=own.role.value,
            token_id=own.token_id,
            name=own.name,
            expire_time=timestamp_to_wire(own.expires_at),
        )
