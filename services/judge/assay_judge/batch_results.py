"""What one result of a batch comes to: an outcome, or another turn."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay_judge.calling import Tally, Try, refused
from assay_judge.orders import new_id
from assay_judge.outcome import Outcome, Status
from assay_judge.prompting import build_prompt
from assay_judge.providers.batching import Standing
from assay_judge.reading import TURNS, no_verdict, outcome_of
from assay_judge.verdicts import InvalidVerdictError

if TYPE_CHECKING:
    from assay_judge.calling import CallFailedError, Line
    from assay_judge.orders import Order
    from assay_judge.providers.batching import BatchResult
    from assay_judge.providers.protocol import ProviderStatusError, Reply, Tokens

__all__ = ["Step", "come_of", "failed"]

_ENDS = {
    Standing.EXPIRED: ("batch_expired", "the provider did not come to this request in the time of its batch"),
    Standing.CANCELLED: ("batch_cancelled", "somebody cancelled the batch at the provider"),
    Standing.FAILED: ("batch_failed", "the provider refused the batch"),
}


@dataclass(frozen=True, slots=True)
class Step:
    """What has come of a turn.

    Args:
        cost: What it has cost, in billionths of a dollar.
        outcome: What came of the order; None where there is another turn.
        again: The next turn, for which nothing is set aside yet.
        problem: Why there is one.
    """

    cost: int
    outcome: Outcome | None = None
    again: Order | None = None
    problem: str = ""


def come_of(order: Order, result: BatchResult, line: Line, said: str = "") -> Step:
    """Return what a result comes to.

    Args:
        order: What was asked.
        result: What came of it.
        line: The judge; it learns which parameters it does not take.
        said: The provider's own words about the whole batch.
    """
    if result.reply is not None:
        return _replied(order, line.clean(result.reply), line)
    if result.refusal is not None:
        return _refused(order, result.refusal, line)
    if result.standing is not None:
        reason, message = _ENDS[result.standing]
        return failed(order, line, reason, f"{message}: {said}" if said else message, cost=0)
    # Nobody knows what it cost: the most that it may have is on the bill.
    return failed(order, line, "batch_failed", result.problem, cost=order.reserved)


def failed(order: Order, line: Line, reason: str, message: str, *, cost: int, came: str = "") -> Step:
    """Return the step of an order without a reply; `came` says what came of the call, where the reason does not."""
    tally = _tally(order, line, cost, came or reason)
    return Step(cost, _told(order, Outcome(Status.UNAVAILABLE, reason=reason, message=message), tally))


def _replied(order: Order, reply: Reply, line: Line) -> Step:
    cost = order.reserved
    if reply.tokens is not None and line.price is not None:
        cost = line.price.nano(reply.tokens, batched=True)
    tally = _tally(order, line, cost, "replied", reply.tokens)
    try:
        outcome = outcome_of(reply, order.rubric, order.prompt.verdict_id)
    except InvalidVerdictError as invalid:
        problem = str(invalid)
        if order.turn < TURNS:
            return Step(cost, again=_next(order, tally, problem=problem, turn=order.turn + 1), problem=problem)
        outcome = no_verdict(problem, reply.model)
    return Step(cost, _told(order, outcome, tally))


def _refused(order: Order, refusal: ProviderStatusError, line: Line) -> Step:
    adapted = order.sent.without_refused(refusal)
    if adapted is not None:
        line.learn(order.sent, adapted)
        again = dataclasses.replace(_next(order, _tally(order, line, 0, f"http_{refusal.status}")), sent=adapted)
        return Step(0, again=again, problem=refused(refusal).message)
    failure: CallFailedError = line.refused(refusal)
    reason = failure.reason
    if refusal.throttles:
        reason = "rate_limited"
    elif refusal.may_pass:
        reason = "judge_unavailable"
    return failed(order, line, reason, f"in the batch: {failure.message}", cost=0, came=f"http_{refusal.status}")


def _next(order: Order, tally: Tally, *, problem: str = "", turn: int | None = None) -> Order:
    prompt = build_prompt(order.rubric, order.material, problem=problem)
    return dataclasses.replace(order, item_id=new_id(), prompt=prompt, turn=turn or order.turn, tally=tally)


def _tally(order: Order, line: Line, cost: int, outcome: str, tokens: Tokens | None = None) -> Tally:
    before = order.tally
    spent = None if line.price is None else (before.cost or 0) + cost
    counted = [*before.tokens, tokens] if tokens is not None else list(before.tokens)
    tally = Tally(before.calls + 1, counted, spent, tries=list(before.tries))
    used, said = (tokens.input, tokens.output) if tokens is not None else (None, None)
    tally.note(Try(outcome, used, said, None if line.price is None else cost))
    return tally


def _told(order: Order, outcome: Outcome, tally: Tally) -> Outcome:
    return dataclasses.replace(outcome, tally=tally, temperature=order.sent.temperature, batched=True)
