"""The rate limiter of one judge: requests and tokens per minute, and an adaptive concurrency limit.

Rates are token buckets, charged with an estimate before a call and corrected after it. They come from the
configuration or from the provider's headers, whichever is lower. Concurrency starts low, doubles while calls succeed,
is cut by a fifth on a 429, quickly returns to just below its earlier level, and then grows by one per round of calls
(AIMD). After a 429 no call is made until the provider's retry-after is over: it would only be refused. If the provider
names no rate limit, its rate of answers before the 429 becomes the pace, raised a little every second.

Times are those of the event loop.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay_judge.calls.rate_headers import Allowance
    from assay_judge.model import RunKey

_START_CONCURRENCY = 4.0
_DECREASE = 0.8
_QUICK_STEP = 0.25
_NEARLY = 0.95
_PACE_AFTER_429 = 0.9
_PACE_GROWTH_PER_S = 0.02
_MEASURED_S = 15.0
_BURST_S = 6.0
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The operator's limits for one judge.

    Args:
        requests_per_minute: None for the provider's limit.
        tokens_per_minute: Input and output together; None for the provider's limit.
        max_concurrency: Most calls in flight.
    """

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    max_concurrency: int = 32


@dataclass(slots=True)
class Grant:
    """Permission to make one call.

    Args:
        tokens: The estimate that was charged.
        round: The round of calls that it belongs to; every 429 begins a new round.
    """

    tokens: float
    round: int


@dataclass(slots=True)
class _Waiting:
    tokens: float
    granted: asyncio.Future[Grant]

    @property
    def has_left(self) -> bool:
        """Whether the caller has cancelled."""
        return self.granted.done()


class _Turns:
    """Waiting calls by team and run. Teams take turns, and so do the runs of a team, so many runs gain no share."""

    def __init__(self) -> None:
        self._teams: dict[str, dict[str, deque[_Waiting]]] = {}  # both in the order of their turns

    def __bool__(self) -> bool:
        return bool(self._teams)

    def add(self, run: RunKey, waiting: _Waiting, *, first: bool = False) -> None:
        """Queue a call of a run; `first` puts it before the run's other calls."""
        queue = self._teams.setdefault(run.team, {}).setdefault(run.run_id, deque())
        (queue.appendleft if first else queue.append)(waiting)

    def next(self) -> _Waiting | None:
        """Return the next call, dropping cancelled ones; None if no call waits."""
        while self._teams:
            team, runs = next(iter(self._teams.items()))
            while runs:
                run_id, queue = next(iter(runs.items()))
                while queue and queue[0].has_left:
                    queue.popleft()
                if queue:
                    return queue[0]
                del runs[run_id]
            del self._teams[team]
        return None

    def take(self) -> _Waiting:
        """Remove the call that `next` returned; its run and its team go to the back of the line."""
        team, runs = next(iter(self._teams.items()))
        run_id, queue = next(iter(runs.items()))
        taken = queue.popleft()
        del runs[run_id]
        if queue:
            runs[run_id] = queue
        del self._teams[team]
        if runs:
            self._teams[team] = runs
        return taken


class Limiter:
    """The rate limiter of one judge; teams take turns, and so do the runs of a team.

    Args:
        limits: The operator's limits.
        pause_s: Longest pause after a first 429 without a retry-after, in seconds; doubled by each further 429.
        jitter: Returns a number in [0, 1).
    """

    def __init__(
        self, limits: Limits, *, pause_s: float = _FIRST_PAUSE_S, jitter: Callable[[], float] = random.random
    ) -> None:
        self._limits = limits
        self._pause_s = pause_s
        self._jitter = jitter
        self._requests = _Bucket(limits.requests_per_minute)
        self._tokens = _Bucket(limits.tokens_per_minute)
        self._turns = _Turns()
        self._concurrency = min(_START_CONCURRENCY, float(limits.max_concurrency))
        self._active = 0
        self._cut_from = float("inf")  # the concurrency before the last 429
        self._pace = _Pace()
        self._round = 0
        self._refused_in_a_row = 0
        self._paused_until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def concurrency(self) -> int:
        """The current limit on calls in flight."""
        return int(self._concurrency)

    async def acquire(self, run: RunKey, tokens: float, *, first: bool = False) -> Grant:
        """Wait until a call may be made; return the grant with `release`.

        Args:
            run: The run that waits.
            tokens: Estimate of the call's tokens.
            first: Whether it goes before its run's other calls, because it has waited its turn before.
        """
        waiting = _Waiting(tokens, asyncio.get_running_loop().create_future())
        self._turns.add(run, waiting, first=first)
        self._pump()
        try:
            return await waiting.granted
        except asyncio.CancelledError:
            if waiting.granted.done() and not waiting.granted.cancelled():
                self.release(waiting.granted.result(), used=0.0)
            raise

    def release(self, grant: Grant, *, used: float | None) -> None:
        """End a call.

        Args:
            grant: The grant from `acquire`.
            used: The tokens of the call; None if unknown.
        """
        self._active -= 1
        if used is not None:
            self._tokens.correct(grant.tokens - used, self._now())
        self._pump()

    def succeeded(self) -> None:
        """Report an answer, which may raise the concurrency."""
        self._refused_in_a_row = 0
        self._pace.answered(self._now())
        if self._turns or self._active >= self.concurrency:
            step = 1.0 / self._concurrency
            if self._concurrency < _NEARLY * self._cut_from:
                step = 1.0 if self._cut_from == float("inf") else _QUICK_STEP
            self._concurrency = min(self._concurrency + step, float(self._limits.max_concurrency))

    def throttled(self, grant: Grant, retry_after_s: float | None) -> None:
        """Report a 429; only the first 429 of a round lowers the concurrency.

        Args:
            grant: The grant of the call.
            retry_after_s: The provider's retry-after, in seconds; capped at a minute.
        """
        if grant.round != self._round:
            return
        self._round += 1
        self._pace.refused(self._now())
        if self._cut_from == float("inf") or self._concurrency >= _NEARLY * self._cut_from:
            self._cut_from = self._concurrency
        self._concurrency = max(1.0, self._concurrency * _DECREASE)
        pause_s = min(retry_after_s or 0.0, _LONGEST_PAUSE_S)
        if retry_after_s is None or self._refused_in_a_row:
            # Equal jitter: full jitter may pause for almost no time, which quotas per minute punish.
            longest = min(self._pause_s * 2**self._refused_in_a_row, _LONGEST_PAUSE_S)
            pause_s = max(pause_s, longest * (0.5 + self._jitter() / 2))
        self._refused_in_a_row = min(self._refused_in_a_row + 1, 10)
        self._paused_until = self._now() + pause_s

    def waits_for(self) -> str:
        """Return a phrase that says what the next call waits for; empty if it need not wait."""
        now = self._now()
        first = self._turns.next()
        tokens = first.tokens if first is not None else 1.0
        waits = {
            "the provider refused calls with HTTP 429 and asks to wait": self._paused_until - now,
            f"{self._requests.source} {self._requests.text} requests a minute": self._requests.wait_s(1.0, now),
            f"{self._tokens.source} {self._tokens.text} tokens a minute": self._tokens.wait_s(tokens, now),
            "the rate at which the provider answered before it refused a call with HTTP 429": self._pace.wait_s(now),
        }
        reason, wait_s = max(waits.items(), key=lambda wait: wait[1])
        if wait_s > 0:
            return reason
        return f"{self._active} calls of this judge are in flight" if self._active >= self.concurrency else ""

    def observe(self, requests: Allowance | None, tokens: Allowance | None) -> None:
        """Apply the provider's limits."""
        for bucket, allowance in ((self._requests, requests), (self._tokens, tokens)):
            if allowance is not None and allowance.per_minute:
                bucket.learn(allowance.limit, allowance.remaining, self._now())

    def _pump(self) -> None:
        """Grant calls in turn, and set a timer for the next grant."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._active < self.concurrency and (first := self._turns.next()) is not None:
            now = self._now()
            wait_s = max(
                self._paused_until - now,
                self._requests.wait_s(1.0, now),
                self._tokens.wait_s(first.tokens, now),
                0.0 if self._requests.is_known else self._pace.wait_s(now),
            )
            if wait_s > 0:
                self._timer = asyncio.get_running_loop().call_later(wait_s, self._pump)
                return
            self._turns.take()
            self._requests.take(1.0)
            self._pace.take(now)
            self._tokens.take(first.tokens)
            self._active += 1
            first.granted.set_result(Grant(first.tokens, self._round))

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


class _Pace:
    """The call rate for a provider that throttles but names no rate limit."""

    def __init__(self) -> None:
        self._answers: deque[float] = deque()
        self._since = 0.0
        self._per_s: float | None = None
        self._growth = 0.0
        self._next = 0.0

    def answered(self, now: float) -> None:
        """Report an answer."""
        self._answers.append(now)
        self._forget(now)

    def refused(self, now: float) -> None:
        """Report a 429: the measured rate of answers becomes the pace."""
        self._forget(now)
        measured = len(self._answers) / _MEASURED_S
        if now - self._since < _MEASURED_S or not measured:
            # Too short a time for a measurement: lower the current rate.
            measured = self._rate(now) or measured
        if measured:
            self._per_s = measured * _PACE_AFTER_429
            self._growth = measured * _PACE_GROWTH_PER_S
            self._since = now

    def wait_s(self, now: float) -> float:
        """Return how long the next call must wait, in seconds."""
        return max(0.0, self._next - now)

    def take(self, now: float) -> None:
        """Report a call."""
        rate = self._rate(now)
        if rate:
            # Calls that were late may catch up, by a second's worth at most.
            self._next = max(self._next, now - 1.0) + 1.0 / rate

    def _rate(self, now: float) -> float:
        return 0.0 if self._per_s is None else self._per_s + self._growth * (now - self._since)

    def _forget(self, now: float) -> None:
        while self._answers and self._answers[0] < now - _MEASURED_S:
            self._answers.popleft()


class _Bucket:
    """A token bucket with a burst of a few seconds' worth; without a rate no call waits."""

    def __init__(self, per_minute: float | None) -> None:
        self._configured = per_minute
        self._per_minute = per_minute
        self._level = self._burst()
        self._at: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether there is a rate."""
        return self._per_minute is not None

    @property
    def source(self) -> str:
        """The subject and verb of a sentence about the rate."""
        return "--limits allows" if self._per_minute == self._configured else "the provider allows"

    @property
    def text(self) -> str:
        """The rate as text."""
        return f"{self._per_minute or 0:,.6g}"

    def wait_s(self, amount: float, now: float) -> float:
        """Return how long to wait for an amount, in seconds; an amount above the burst overdraws the bucket."""
        if self._per_minute is None:
            return 0.0
        self._refill(now)
        lacking = min(amount, self._burst()) - self._level
        # A wait shorter than the clock's resolution would never end.
        return max(lacking * 60 / self._per_minute, 1e-3) if lacking > 1e-9 else 0.0

    def take(self, amount: float) -> None:
        """Use an amount."""
        self._level = self._bounded(self._level - amount)

    def correct(self, amount: float, now: float) -> None:
        """Correct the estimate of a call: return the excess, or take the rest."""
        if self._per_minute is not None:
            self._refill(now)
            self._level = self._bounded(min(self._level + amount, self._burst()))

    def _bounded(self, level: float) -> float:
        """Return a level that allows a call within a minute if the rate comes from the provider's headers.

        A minute is the period of such a limit; a wrong header must not stop a judge for hours.
        """
        if self._per_minute is None or self._per_minute == self._configured:
            return level
        return max(level, self._burst() - self._per_minute)

    def learn(self, limit: float, remaining: float, now: float) -> None:
        """Adopt the provider's limit if it is lower than the known one; a limit below 1 is ignored."""
        if limit < 1:
            return
        known = self._per_minute is not None
        self._refill(now)
        self._per_minute = min(limit, self._configured) if self._configured else limit
        self._level = min(self._level, remaining) if known else min(self._burst(), remaining)

    def _refill(self, now: float) -> None:
        if self._per_minute is not None and self._at is not None:
            self._level = min(self._level + (now - self._at) * self._per_minute / 60, self._burst())
        self._at = now

    def _burst(self) -> float:
        return max(1.0, (self._per_minute or 0.0) * _BURST_S / 60)
