"""The next step of an order after one result of its batch: an outcome, or another turn."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay_judge.batches.orders import MOST_ORDERS, new_id
from assay_judge.calls.provider_client import refusal_failure
from assay_judge.calls.token_usage import usable_tokens
from assay_judge.calls.usage import CallAttempt, CallUsage
from assay_judge.providers.batch_api import BatchState
from assay_judge.verdicts.outcome import Outcome, Status
from assay_judge.verdicts.parser import InvalidVerdictError
from assay_judge.verdicts.prompt import build_prompt
from assay_judge.verdicts.replies import TURNS, no_verdict, outcome_from_reply, requested_parameters

if TYPE_CHECKING:
    from assay.providers.errors import ProviderStatusError
    from assay.providers.messages import Reply
    from assay_judge.batches.orders import Order
    from assay_judge.calls.provider_client import CallFailedError, ProviderClient
    from assay_judge.model import Tokens
    from assay_judge.providers.batch_api import BatchResult

_ENDS = {
    BatchState.EXPIRED: ("batch_expired", "the batch expired before the provider processed this request"),
    BatchState.CANCELLED: ("batch_cancelled", "the batch was cancelled at the provider"),
    BatchState.FAILED: ("batch_failed", "the provider refused the batch"),
}


@dataclass(frozen=True, slots=True)
class Step:
    """How an order continues after one turn.

    Args:
        cost: The cost of the turn, in billionths of a dollar.
        outcome: The order's outcome; if it is ordered again, its outcome in case that cannot be paid.
        again: The next order, for which no money is reserved yet; None if the order is done.
    """

    cost: int
    outcome: Outcome
    again: Order | None = None


def step_from_result(order: Order, result: BatchResult, client: ProviderClient, batch_message: str = "") -> Step:
    """Return the next step of an order.

    Args:
        client: The judge's provider client; it learns which parameters the model refuses.
        batch_message: The provider's message about the whole batch.
    """
    if result.reply is not None:
        return _replied(order, client.clean(result.reply), client)
    if result.refusal is not None:
        return _refused(order, result.refusal, client)
    if result.state is not None:
        reason, message = _ENDS[result.state]
        step = failed_step(order, client, reason, f"{message}: {batch_message}" if batch_message else message, cost=0)
        return _ordered_again(order, step) if result.state is BatchState.EXPIRED else step
    # The cost is unknown, so the maximum is booked.
    return _ordered_again(
        order, failed_step(order, client, "batch_result_missing", result.problem, cost=order.reserved)
    )


def failed_step(order: Order, client: ProviderClient, reason: str, message: str, *, cost: int, came: str = "") -> Step:
    """Return the step of an order without a reply; `came` names the outcome of the call if the reason does not."""
    usage = _usage_after(order, client, cost, came or reason)
    return Step(cost, _with_usage(order, Outcome(Status.UNAVAILABLE, reason=reason, message=message), usage))


def _replied(order: Order, reply: Reply, client: ProviderClient) -> Step:
    client.learn(requested_parameters(order.judge), order.sent)
    tokens = usable_tokens(reply, order.prompt, order.sent.max_tokens)
    price = client.prices.find(order.judge)
    cost = price.nano(tokens, batched=True) if price is not None else order.reserved
    usage = _usage_after(order, client, cost, "replied", tokens)
    try:
        outcome = outcome_from_reply(reply, order.rubric, order.prompt.verdict_id)
    except InvalidVerdictError as invalid:
        problem = str(invalid)
        if order.turn < TURNS:
            again = dataclasses.replace(
                order,
                item_id=new_id(),
                prompt=build_prompt(order.rubric, order.material, problem=problem),
                turn=order.turn + 1,
                usage=usage,
                orders=1,
            )
            message = (
                f"the judge gave no valid verdict ({problem}), "
                "and the run's spend cap leaves too little for another turn"
            )
            unpaid = Outcome(Status.INVALID, reason="invalid_verdict", message=message)
            return Step(cost, _with_usage(order, unpaid, usage), again)
        outcome = no_verdict(problem, reply.model)
    return Step(cost, _with_usage(order, outcome, usage))


def _ordered_again(order: Order, step: Step) -> Step:
    """Return the step of an order that its batch did not answer: the next batch, or after MOST_ORDERS the end."""
    outcome = step.outcome
    if order.orders >= MOST_ORDERS:
        message = f"{outcome.message} (ordered {order.orders} times)"
        return dataclasses.replace(step, outcome=dataclasses.replace(outcome, message=message))
    unpaid = f"{outcome.message}, and the run's spend cap leaves too little to order it again"
    return Step(
        step.cost,
        dataclasses.replace(outcome, reason="spend_cap_reached", message=unpaid),
        dataclasses.replace(order, item_id=new_id(), usage=outcome.usage, orders=order.orders + 1),
    )


def _refused(order: Order, refusal: ProviderStatusError, client: ProviderClient) -> Step:
    adapted = order.sent.without_refused(refusal, order.prompt.text)
    if adapted is not None:
        usage = _usage_after(order, client, 0, f"http_{refusal.status}")
        refused = refusal_failure(refusal).message
        message = f"{refused}, and the run's spend cap leaves too little to retry without that parameter"
        unpaid = Outcome(Status.UNAVAILABLE, reason="spend_cap_reached", message=message)
        again = dataclasses.replace(order, item_id=new_id(), usage=usage, sent=adapted)
        return Step(0, _with_usage(order, unpaid, usage), again)
    failure: CallFailedError = client.refused(refusal)
    reason = failure.reason
    if refusal.throttles:
        reason = "rate_limited"
    elif refusal.may_pass:
        reason = "judge_unavailable"
    return failed_step(order, client, reason, f"in the batch: {failure.message}", cost=0, came=f"http_{refusal.status}")


def _usage_after(
    order: Order, client: ProviderClient, cost: int, outcome: str, tokens: Tokens | None = None
) -> CallUsage:
    before = order.usage
    is_priced = client.prices.find(order.judge) is not None
    spent = (before.cost or 0) + cost if is_priced else None
    counted = [*before.tokens, tokens] if tokens is not None else list(before.tokens)
    usage = CallUsage(before.calls + 1, counted, spent, attempts=list(before.attempts))
    input_tokens, output_tokens = (tokens.input, tokens.output) if tokens is not None else (None, None)
    is_estimated = tokens is not None and tokens.estimated
    attempt = CallAttempt(outcome, input_tokens, output_tokens, cost if is_priced else None, estimated=is_estimated)
    usage.add_attempt(attempt)
    client.observed.ended(attempt)
    return usage


def _with_usage(order: Order, outcome: Outcome, usage: CallUsage) -> Outcome:
    return dataclasses.replace(outcome, usage=usage, temperature=order.sent.temperature, batched=True)
