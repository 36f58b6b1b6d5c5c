"""What calls of a judge counted and cost, attempt by attempt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay_judge.providers.messages import Tokens

MOST_TRIES = 20


@dataclass(frozen=True, slots=True)
class Try:
    """One call.

    Args:
        outcome: What came of it, one stable word.
        input: Tokens read; None where the judge does not say.
        output: Tokens written; None where the judge does not say.
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
class Tally:
    """What a verdict has cost so far.

    Args:
        calls: Calls of the judge.
        tokens: What each counted that was answered.
        cost: In billionths of a dollar; None where the judge has no price.
        last_problem: Why the last call gave no reply, for people.
        throttled: Whether that was because the judge was asked too fast.
        temperature: What the last call sent.
        tries: The calls one by one, at most MOST_TRIES.
    """

    calls: int = 0
    tokens: list[Tokens] = field(default_factory=list)
    cost: int | None = None
    last_problem: str = ""
    throttled: bool = False
    temperature: float | None = None
    tries: list[Try] = field(default_factory=list)

    def note(self, one: Try) -> None:
        """Note a call; of very many the first ones stay."""
        if len(self.tries) < MOST_TRIES:
            self.tries.append(one)
