"""A client's stream as its handler reads it: decoded, with a limit on silence."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from assay.errors import DeadlineError
from assay.rpc.methods import Silence
from assay.rpc.options import ServerOptions


class RequestStream:
    """Decodes a client's messages and limits its silence.

    Inside `async with`, it ends the handler if the first message is late, or a later one while the method's rule
    requires it.

    Args:
        raw: The encoded messages.
        decode: Decodes a message; its errors end the call.
        silence: When the client counts as idle.
        options: The limits.
    """

    def __init__(
        self, raw: AsyncIterator[Any], decode: Callable[[Any], Any], *, silence: Silence, options: ServerOptions
    ) -> None:
        self._raw = raw
        self._messages: AsyncIterator[Any] | None = None
        self._decode = decode
        self._silence = silence
        self._options = options
        self._limit = asyncio.timeout(None)
        self._is_open = False
        self._is_waiting = False
        self._received_count = 0
        self._unanswered_count = 0

    def __aiter__(self) -> RequestStream:
        return self

    async def __anext__(self) -> Any:
        self._is_waiting = True
        self._schedule()
        try:
            if self._messages is None:  # gRPC complains about an iterator that is made and never read
                self._messages = aiter(self._raw)
            raw = await anext(self._messages)
        finally:
            self._is_waiting = False
            self._schedule()
        self._received_count += 1
        self._unanswered_count += 1
        return self._decode(raw)

    async def __aenter__(self) -> RequestStream:
        await self._limit.__aenter__()
        self._is_open = True
        return self

    async def __aexit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._is_open = False
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError:
            raise self._problem() from None

    def answered(self) -> None:
        """Record that a message was sent to the client."""
        self._unanswered_count -= 1
        self._schedule()

    def _schedule(self) -> None:
        if self._is_open and not self._limit.expired():
            limit_s = self._limit_s() if self._is_waiting else None
            self._limit.reschedule(None if limit_s is None else asyncio.get_running_loop().time() + limit_s)

    def _limit_s(self) -> float | None:
        """Return how long the next message may take, in seconds."""
        if not self._received_count:
            return self._options.first_message_s
        is_due = self._silence is Silence.ALWAYS or (
            self._silence is Silence.WHEN_ANSWERED and self._unanswered_count <= 0
        )
        return self._options.stream_idle_s if is_due else None

    def _problem(self) -> DeadlineError:
        if not self._received_count:
            return DeadlineError(
                f"the first message did not come within {self._options.first_message_s:g} s: open the stream when "
                "there is something to send",
                reason="FIRST_MESSAGE_TIMEOUT",
            )
        return DeadlineError(
            f"the client sent nothing for {self._options.stream_idle_s:g} s: open a new stream when there is more",
            reason="STREAM_IDLE",
        )
