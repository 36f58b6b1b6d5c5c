"""Credentials and interceptors of an installation's own, through the one factory of servers and channels."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

from assay.rpc.options import ChannelOptions, ServerOptions

LOCAL = grpc.LocalConnectionType.LOCAL_TCP
METHOD = "/assay.test.Service/M"


class Noting(grpc.aio.ServerInterceptor):
    """Notes the methods that are called."""

    def __init__(self) -> None:
        self.methods: list[str] = []

    async def intercept_service(self, continuation: Any, handler_call_details: Any) -> Any:
        self.methods.append(handler_call_details.method)
        return await continuation(handler_call_details)


class Signing(grpc.aio.UnaryUnaryClientInterceptor):
    """Adds a header to every call."""

    async def intercept_unary_unary(self, continuation: Any, client_call_details: Any, request: Any) -> Any:
        metadata = grpc.aio.Metadata(("authorization", "token"))
        return await continuation(client_call_details._replace(metadata=metadata), request)


async def test_server_and_channel_use_their_credentials(wire: Any) -> None:
    """Connections are made with the credentials that the options hold."""

    async def kind(request: Any, context: Any) -> bytes:
        (name,) = context.auth_context()["transport_security_type"]
        return bytes(name)

    options = ServerOptions(credentials=grpc.local_server_credentials(LOCAL))
    address = await wire.serve({"M": ("unary_unary", kind)}, options=options)
    channel = await wire.channel(address, ChannelOptions(credentials=grpc.local_channel_credentials(LOCAL)))
    assert await channel.unary_unary(METHOD)(b"") == b"local"


async def test_further_interceptors_see_every_call(wire: Any) -> None:
    """Those of the options stand beside Assay's own, at both ends."""

    async def header(request: Any, context: Any) -> bytes:
        return str(dict(context.invocation_metadata()).get("authorization")).encode()

    noting = Noting()
    address = await wire.serve({"M": ("unary_unary", header)}, options=ServerOptions(interceptors=(noting,)))
    channel = await wire.channel(address, ChannelOptions(interceptors=(Signing(),)))
    assert await channel.unary_unary(METHOD)(b"") == b"token"
    assert METHOD in noting.methods
