"""The circuit breaker of one judge: failures open it, a probe tests it while half-open, an answer closes it."""

from __future__ import annotations

import asyncio

_FAILURES = 8
_FIRST_OPEN_S = 5.0
_LONGEST_OPEN_S = 60.0


class BreakerOpenError(Exception):
    """The breaker is open."""


class Breaker:
    """Opens after repeated failures, then lets a single call through as a probe, which closes it or opens it again.

    Times are those of the event loop. A 429 is not a failure: the service works, and the limiter waits.

    Args:
        failures: Consecutive failures that open it.
        open_s: How long it stays open at first, in seconds; doubled by each failed probe, up to a minute.
    """

    def __init__(self, failures: int = _FAILURES, open_s: float = _FIRST_OPEN_S) -> None:
        self._threshold = failures
        self._first_open_s = open_s
        self._failures = 0
        self._open_s = 0.0
        self._open_until: float | None = None
        self._probing = False
        self._changed = asyncio.Event()

    @property
    def is_open(self) -> bool:
        """Whether calls wait."""
        return self._open_until is not None

    async def enter(self, timeout_s: float) -> bool:
        """Wait until a call may be made; return whether the call is the probe, whose outcome must be reported.

        Args:
            timeout_s: Longest wait, in seconds.

        Raises:
            BreakerOpenError: The breaker is still open.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        while self._open_until is not None:
            if not self._probing and loop.time() >= self._open_until:
                self._probing = True
                return True
            # While a probe is in flight only its outcome matters; otherwise this call may become the probe.
            wake = until if self._probing else min(until, self._open_until)
            changed = self._changed
            try:
                async with asyncio.timeout_at(wake):
                    await changed.wait()
            except TimeoutError:
                if loop.time() >= until:
                    raise BreakerOpenError from None
        return False

    def succeeded(self) -> None:
        """Report any answer of the service: the breaker closes."""
        self._failures = 0
        self._probing = False
        self._open_until, self._open_s = None, 0.0
        self._wake()

    def failed(self) -> None:
        """Report a failure of the service."""
        self._failures += 1
        if self._probing or (self._open_until is None and self._failures >= self._threshold):
            self._probing = False
            self._open_s = min(self._open_s * 2 or self._first_open_s, _LONGEST_OPEN_S)
            self._open_until = asyncio.get_running_loop().time() + self._open_s
            self._wake()

    def left(self) -> None:
        """Report a call that its caller cancelled, which is neither a success nor a failure."""
        if self._probing:
            self._probing = False
            self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
