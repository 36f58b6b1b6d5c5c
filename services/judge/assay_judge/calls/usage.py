"""What calls of a judge counted and cost, attempt by attempt."""

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
        outcome: How it ended, one stable word.
        input: Tokens read; None where the provider reports none.
        output: Tokens written; None where the provider reports none.
        cost: In billionths of a dollar; None where the judge has no price.
        latency_ms: From the call to its end; None in a batch.
        estimated: Whether the tokens are estimated, and so the cost.
    """

    outcome: str
    input: int | None = None
    output: int | None = None
    cost: int | None = None
    latency_ms: float | None = None
    estimated: bool = False


@dataclass(slots=True)
class CallUsage:
    """What a verdict has cost so far.

    Args:
        calls: Calls of the judge.
        tokens: Tokens of each call with a reply.
        cost: In billionths of a dollar; None where the judge has no price.
        last_problem: Why the last call gave no reply, for people.
        throttled: Whether the provider throttled the last call.
        temperature: Temperature that the last call sent.
        attempts: The first MAX_LISTED_ATTEMPTS calls, one by one.
        charged: Tokens of all direct calls, the most that they may have taken where that is unknown.
        waits: Whether the next call waits for the judge's own pace.
        changes: Parameters that the last call left out or weakened because the model refuses them.
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
        """Lower the cost of attempts without a reply to the most that they can have cost, as a reply has shown."""
        for place, attempt in enumerate(self.attempts):
            if attempt.input is None and attempt.cost is not None and attempt.cost > most:
                self.cost = (self.cost or 0) - (attempt.cost - most)
                self.attempts[place] = dataclasses.replace(attempt, cost=most)

    def add_attempt(self, attempt: CallAttempt) -> None:
        """List an attempt, unless MAX_LISTED_ATTEMPTS are listed."""
        if len(self.attempts) < MAX_LISTED_ATTEMPTS:
            self.attempts.append(attempt)
