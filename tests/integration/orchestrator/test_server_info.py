"""What a server says of itself: version, features, limits and metrics, and who its caller is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.support.services.shared_installation import shared_installation

from assay.errors import UnauthenticatedError
from assay.metrics import METRICS, complete_parameters
from assay.rpc.channel import open_channel
from assay.rpc.status import translated
from assay.v1 import server_pb2, server_pb2_grpc
from assay.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from assay.client.client import Client

    Serve = Callable[..., AbstractAsyncContextManager[Client]]


async def test_a_server_describes_itself_to_a_client_without_a_token(tmp_path: Path) -> None:
    """The first call of a client says how to identify itself; every other one needs the token."""
    async with shared_installation(tmp_path) as shared:
        member = await shared.member("search")
        async with open_channel(member.address) as channel:
            stub = server_pb2_grpc.ServerServiceStub(channel)
            info = await stub.GetServerInfo(server_pb2.GetServerInfoRequest())
            for call in (
                stub.GetIdentity(server_pb2.GetIdentityRequest()),
                stub.ListMetrics(server_pb2.ListMetricsRequest()),
            ):
                with pytest.raises(UnauthenticatedError), translated():
                    await call
        assert (info.version, info.api, info.auth) == (__version__, 1, server_pb2.AUTH_MODE_TOKENS)
        assert info.limits.max_message_bytes == 4 * 1024 * 1024
        assert info.limits.max_page_bytes < info.limits.max_message_bytes
        assert info.limits.max_compared_runs == 26
        assert await member.server_version() == __version__


async def test_a_server_without_tokens_has_one_team(serve: Serve) -> None:
    """Callers need no token to learn who they are: everybody is of the team local."""
    async with serve(judge="unix:/nowhere") as client:
        stub = server_pb2_grpc.ServerServiceStub(client._channel)
        info = await stub.GetServerInfo(server_pb2.GetServerInfoRequest())
        identity = await stub.GetIdentity(server_pb2.GetIdentityRequest())
    assert (info.auth, list(info.features)) == (server_pb2.AUTH_MODE_NONE, ["judge"])
    assert identity == server_pb2.GetIdentityResponse(team="local")


async def test_metrics_are_listed_with_their_parameters(serve: Serve) -> None:
    """A form can be built from the list: names, types, defaults that are accepted, bounds and choices."""
    async with serve() as client:
        stub = server_pb2_grpc.ServerServiceStub(client._channel)
        definitions = (await stub.ListMetrics(server_pb2.ListMetricsRequest())).metrics
    kinds = ["hosted" if kind == "python" else kind for kind in METRICS]
    assert [definition.name for definition in definitions] == sorted(kinds)
    for definition in definitions:
        assert definition.summary
        assert definition.definition
        given = {parameter.name: json.loads(parameter.default_json) for parameter in definition.parameters}
        if not any(parameter.required for parameter in definition.parameters):
            kind = "python" if definition.name == "hosted" else definition.name
            assert set(complete_parameters(kind, given, where="")) == set(given)
    (rouge,) = (definition for definition in definitions if definition.name == "rouge")
    (measure,) = (parameter for parameter in rouge.parameters if parameter.name == "measure")
    assert (measure.type, measure.default_json, list(measure.choices)) == (
        "text",
        '"rougeL"',
        ["rouge1", "rouge2", "rougeL"],
    )
