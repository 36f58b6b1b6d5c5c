"""A channel whose calls carry a token.

gRPC's own credentials of calls are not sent over plain connections, not even to this machine; and an interceptor for
streams changes how they end. So the metadata is added where a call is made.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from assay.rpc.access import SCHEME, TOKEN_KEY


class TokenChannel(grpc.aio.Channel):
    """Sends a token with every call but those of health.

    Args:
        channel: The channel that makes the calls.
        token: The token's text.
    """

    def __init__(self, channel: grpc.aio.Channel, token: str) -> None:
        self._channel = channel
        self._entry = (TOKEN_KEY, SCHEME + token)
        self._alone = grpc.aio.Metadata(self._entry)  # made once: most calls have no metadata of their own

    async def __aenter__(self) -> Self:
        await self._channel.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.__aexit__(kind, error, trace)

    async def close(self, grace: float | None = None) -> None:
        """Close the connection."""
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Return the state of the connection."""
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait until the connection has another state."""
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Wait until there is a connection."""
        await self._channel.channel_ready()

    def unary_unary(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Return what makes calls of a method."""
        return self._calling(method, self._channel.unary_unary(method, *arguments, **options))

    def unary_stream(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Return what makes calls of a method."""
        return self._calling(method, self._channel.unary_stream(method, *arguments, **options))

    def stream_unary(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Return what makes calls of a method."""
        return self._calling(method, self._channel.stream_unary(method, *arguments, **options))

    def stream_stream(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Return what makes calls of a method."""
        return self._calling(method, self._channel.stream_stream(method, *arguments, **options))

    def _calling(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        if method.startswith("/grpc.health."):
            return call

        def with_token(*arguments: Any, metadata: Any = None, **options: Any) -> Any:
            whole = (*metadata, self._entry) if metadata else self._alone
            return call(*arguments, metadata=whole, **options)

        return with_token
