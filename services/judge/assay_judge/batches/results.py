"""What one result of a batch comes to: an outcome, or another turn."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay_judge.batches.orders import MOST_ORDERS, new_id
from assay_judge.calls.provider_client import refused
from assay_judge.calls.token_usage import usable_tokens
from assay_judge.calls.usage import Tally, Try
from assay_judge.providers.batch_api import Standing
from assay_judge.verdicts.outcome import Outcome, Status
from assay_judge.verdicts.parser import InvalidVerdictError
from assay_judge.verdicts.prompt import build_prompt
from assay_judge.verdicts.replies import TURNS, no_verdict, outcome_of

if TYPE_CHECKING:
    from assay_judge.batches.orders import Order
    from assay_judge.calls.provider_client import CallFailedError, Line
    from assay_judge.providers.batch_api import BatchResult
    from assay_judge.providers.messages import ProviderStatusError, Reply, Tokens

__all__ = ["Step", "come_of", "failed"]

_ENDS = {
    Standing.EXPIRED: ("batch_expired", "the provider did not come to this request in the time of its batch"),
    Standing.CANCELLED: ("batch_cancelled", "the batch was cancelled at the provider"),
    Standing.FAILED: ("batch_failed", "the provider refused the batch"),
}


@dataclass(frozen=True, slots=True)
class Step:
    """What has come of a turn.

    Args:
        cost: What it has cost, in billionths of a dollar.
        outcome: What came of the order; where it is ordered again, what does if that cannot be paid.
        again: What is ordered next, for which nothing is set aside yet; None where this is the end.
    """

    cost: int
    outcome: Outcome
    again: Order | None = None


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
        step = failed(order, line, reason, f"{message}: {said}" if said else message, cost=0)
        return _ordered_again(order, step) if result.standing is Standing.EXPIRED else step
    # What it cost is unknown: the most that it may have is on the bill.
    return _ordered_again(order, failed(order, line, "batch_result_missing", result.problem, cost=order.reserved))


def failed(order: Order, line: Line, reason: str, message: str, *, cost: int, came: str = "") -> Step:
    """Return the step of an order without a reply; `came` says what came of the call, where the reason does not."""
    tally = _tally(order, line, cost, came or reason)
    return Step(cost, _told(order, Outcome(Status.UNAVAILABLE, reason=reason, message=message), tally))


def _replied(order: Order, reply: Reply, line: Line) -> Step:
    tokens = usable_tokens(reply.tokens, order.prompt, order.sent.max_tokens)
    cost = line.price.nano(tokens, batched=True) if line.price is not None else order.reserved
    tally = _tally(order, line, cost, "replied", tokens)
    try:
        outcome = outcome_of(reply, order.rubric, order.prompt.verdict_id)
    except InvalidVerdictError as invalid:
        problem = str(invalid)
        if order.turn < TURNS:
            again = dataclasses.replace(
                order,
                item_id=new_id(),
                prompt=build_prompt(order.rubric, order.material, problem=problem),
                turn=order.turn + 1,
                tally=tally,
                orders=1,
            )
            said = f"the judge gave no valid verdict ({problem}), and the run's cap leaves too little to ask again"
            unpaid = Outcome(Status.INVALID, reason="invalid_verdict", message=said)
            return Step(cost, _told(order, unpaid, tally), again)
        outcome = no_verdict(problem, reply.model)
    return Step(cost, _told(order, outcome, tally))


def _ordered_again(order: Order, step: Step) -> Step:
    """Return the step of an order that its batch did not answer: it goes into the next one, a few times."""
    outcome = step.outcome
    if order.orders >= MOST_ORDERS:
        said = f"{outcome.message} (ordered {order.orders} times)"
        return dataclasses.replace(step, outcome=dataclasses.replace(outcome, message=said))
    unpaid = f"{outcome.message}, and the run's cap leaves too little to order it again"
    return Step(
        step.cost,
        dataclasses.replace(outcome, reason="spend_cap_reached", message=unpaid),
        dataclasses.replace(order, item_id=new_id(), tally=outcome.tally, orders=order.orders + 1),
    )


def _refused(order: Order, refusal: ProviderStatusError, line: Line) -> Step:
    adapted = order.sent.without_refused(refusal)
    if adapted is not None:
        line.learn(order.sent, adapted)
        tally = _tally(order, line, 0, f"http_{refusal.status}")
        said = f"{refused(refusal).message}, and the run's cap leaves too little to ask without that"
        unpaid = Outcome(Status.UNAVAILABLE, reason="spend_cap_reached", message=said)
        again = dataclasses.replace(order, item_id=new_id(), tally=tally, sent=adapted)
        return Step(0, _told(order, unpaid, tally), again)
    failure: CallFailedError = line.refused(refusal)
    reason = failure.reason
    if refusal.throttles:
        reason = "rate_limited"
    elif refusal.may_pass:
        reason = "judge_unavailable"
    return failed(order, line, reason, f"in the batch: {failure.message}", cost=0, came=f"http_{refusal.status}")


def _tally(order: Order, line: Line, cost: int, outcome: str, tokens: Tokens | None = None) -> Tally:
    before = order.tally
    spent = None if line.price is None else (before.cost or 0) + cost
    counted = [*before.tokens, tokens] if tokens is not None else list(before.tokens)
    tally = Tally(before.calls + 1, counted, spent, tries=list(before.tries))
    used, said = (tokens.input, tokens.output) if tokens is not None else (None, None)
    is_estimated = tokens is not None and tokens.estimated
    tally.note(Try(outcome, used, said, None if line.price is None else cost, estimated=is_estimated))
    return tally


def _told(order: Order, outcome: Outcome, tally: Tally) -> Outcome:
    return dataclasses.replace(outcome, tally=tally, temperature=order.sent.temperature, batched=True)
