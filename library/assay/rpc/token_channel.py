"""A channel whose calls carry a token.

gRPC's own credentials of calls are not sent over plain connections, not even to this machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import grpc.aio

from assay.rpc.access import SCHEME, TOKEN_KEY
from assay.rpc.wrapped_channel import WrappedChannel


class TokenChannel(WrappedChannel):
    """Sends a token with every call except health checks.

    Args:
        channel: The channel that makes the calls.
        token: The token's text.
    """

    def __init__(self, channel: grpc.aio.Channel, token: str) -> None:
        super().__init__(channel)
        self._entry = (TOKEN_KEY, SCHEME + token)
        self._alone = grpc.aio.Metadata(self._entry)  # made once: most calls have no metadata of their own

    def _calling(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        if method.startswith("/grpc.health."):
            return call

        def with_token(*arguments: Any, metadata: Any = None, **options: Any) -> Any:
            whole = (*metadata, self._entry) if metadata else self._alone
            return call(*arguments, metadata=whole, **options)

        return with_token
