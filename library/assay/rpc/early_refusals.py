"""Refusal of calls before their messages are read: the cheapest defence against a flood from one team."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

import grpc
import grpc.aio

from assay.rpc.access import TOKEN_KEY, Context

_MOST_REMEMBERED = 1_000
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Answer: TypeAlias = Callable[[Any, Context], Awaitable[Any]]
Refuse: TypeAlias = Callable[[Context], Awaitable[None]]


class EarlyRefusals:
    """Refuses further calls of a refused team's token until that team may call again.

    Such a call costs no lookup, no count and no decoding. Teams within their limits are never affected.

    Args:
        counted: Wraps the answering function of a method so that its calls are counted.
        longest_s: After this time at most a team is checked again, in seconds.
    """

    def __init__(self, counted: Callable[[str, Answer], Answer], longest_s: float) -> None:
        self._counted = counted
        self._longest_s = longest_s
        self._refused: dict[Any, _Refused] = {}

    def note(self, context: Context, retry_after_s: float, refuse: Refuse) -> None:
        """Refuse further calls with this call's token in the same way.

        Args:
            context: The call.
            retry_after_s: When its team may call again, in seconds.
            refuse: Ends a call with the refusal.
        """
        if len(self._refused) >= _MOST_REMEMBERED:
            # Bounded, since the tokens come from clients; a forgotten team is refused again as usual.
            self._refused.clear()
        until_s = asyncio.get_running_loop().time() + min(retry_after_s, self._longest_s)
        self._refused[_token_of(context.invocation_metadata() or ())] = _Refused(refuse, until_s)

    def handler(self, method: str, metadata: Iterable[tuple[str, Any]]) -> Handler | None:
        """Return the handler that refuses a call; None to admit it as usual.

        Args:
            method: The full name of its method.
            metadata: The metadata of the call.
        """
        if not self._refused:
            return None
        token = _token_of(metadata)
        refusal = self._refused.get(token)
        if refusal is None:
            return None
        if asyncio.get_running_loop().time() >= refusal.until_s:
            del self._refused[token]
            return None
        known = refusal.handlers.get(method)
        if known is None:
            known = refusal.handlers[method] = self._made(method, refusal.refuse)
        return known

    def _made(self, method: str, refuse: Refuse) -> Handler:
        async def answer(messages: Any, context: Context) -> None:
            await refuse(context)

        # gRPC reads no message before it calls the handler of a stream.
        return grpc.stream_stream_rpc_method_handler(self._counted(method, answer), None, None)


class _Refused:
    def __init__(self, refuse: Refuse, until_s: float) -> None:
        self.refuse = refuse
        self.until_s = until_s
        self.handlers: dict[str, Handler] = {}


def _token_of(metadata: Iterable[tuple[str, Any]]) -> Any:
    """Return the token of a call unparsed; None if it has none."""
    return next((value for key, value in metadata if key == TOKEN_KEY), None)
