"""Tokens and cost of a judge's calls, attempt by attempt."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay_judge.model import Tokens

MAX_LISTED_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class CallAttempt:
    """One call of a judge.

    Args:
        outcome: How it ended, as a stable code.
        input: Tokens read; None if the provider reports none.
        output: Tokens written; None if the provider reports none.
        cost: Cost in billionths of a dollar; None if the judge has no price.
        latency_ms: Duration of the call in milliseconds; None in a batch.
        estimated: Whether tokens and cost are estimated.
    """

    outcome: str
    input: int | None = None
    output: int | None = None
    cost: int | None = None
    latency_ms: float | None = None
    estimated: bool = False


@dataclass(slots=True)
class CallUsage:
    """Tokens and cost of a verdict so far.

    Args:
        calls: Number of calls.
        tokens: Tokens of each call with a reply.
        cost: Cost in billionths of a dollar; None if the judge has no price.
        last_problem: Why the last call got no reply, as a sentence.
        throttled: Whether the provider throttled the last call.
        temperature: Temperature that the last call sent.
        attempts: The first MAX_LISTED_ATTEMPTS calls.
        charged: Tokens of all direct calls; calls with unknown usage count with their maximum.
        waits: Whether the next call waits for the judge's rate limiter.
        changes: Parameters that the last call omitted or weakened because the model refuses them.
    """

    calls: int = 0
    tokens: list[Tokens] = field(default_factory=list)
    cost: int | None = None
    last_problem: str = ""
    throttled: bool = False
    temperature: float | None = None
    attempts: list[CallAttempt] = field(default_factory=list)
    charged: int = 0
    waits: bool = False
    changes: tuple[str, ...] = ()

    def bound_lost(self, most: int) -> None:
        """Lower the cost of attempts without a reply to the maximum that a reply has shown."""
        for place, attempt in enumerate(self.attempts):
            if attempt.input is None and attempt.cost is not None and attempt.cost > most:
                self.cost = (self.cost or 0) - (attempt.cost - most)
                self.attempts[place] = dataclasses.replace(attempt, cost=most)

    def add_attempt(self, attempt: CallAttempt) -> None:
        """List an attempt, up to MAX_LISTED_ATTEMPTS."""
        if len(self.attempts) < MAX_LISTED_ATTEMPTS:
            self.attempts.append(attempt)
