"""Calls of a judge: rate limits, payment, retries with backoff, and deadlines.

A 429 costs no attempt: the limiter waits and the call is repeated until its deadline. Other transient failures are
retried with full jitter, up to a number of attempts and within the run's retry budget. Money is reserved before each
call; a call with an unknown outcome is booked with its maximum cost.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.errors import StorageError
from assay.providers.errors import MalformedReplyError, ProviderStatusError, UnreachableError
from assay.providers.parameters import LearnedParameters
from assay.providers.retry_after import retry_after_s
from assay.telemetry.instruments import bounded_label
from assay.telemetry.tracing import span
from assay_judge.calls.circuit_breaker import Breaker, BreakerOpenError
from assay_judge.calls.prices import NANO
from assay_judge.calls.rate_headers import read_allowances
from assay_judge.calls.rate_limiter import Limiter
from assay_judge.calls.token_usage import most_input, usable_tokens
from assay_judge.calls.usage import CallAttempt
from assay_judge.instruments import BREAKER_OPEN, CALL_SECONDS, CALLS, COST, RETRIES, TOKENS
from assay_judge.judges import JudgeChoice
from assay_judge.model import lower_limit
from assay_judge.state.accounts import SpendCapReachedError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping

    from assay.providers.messages import Reply
    from assay_judge.calls.prices import Price, PriceTable
    from assay_judge.calls.rate_limiter import Grant, Limits
    from assay_judge.calls.retry_policy import RetryPolicy
    from assay_judge.calls.usage import CallUsage
    from assay_judge.model import Prompt
    from assay_judge.providers.batch_api import BatchApi
    from assay_judge.providers.provider import Provider
    from assay_judge.providers.verdict_request import JudgeParameters
    from assay_judge.state.accounts import Account, Reservation

_LONGEST_PAUSE_S = 20.0
_LONGEST_ASKED_S = 60.0
_CHARS_PER_TOKEN = 3.5
_PREFLIGHT_S = 10.0
_CHECKED_S = 600.0
_SETTLED_S = 60.0  # a call that is not settled this long after its timeout belongs to a dead process
_DENIED = (401, 402, 403, 404, 429)
"""HTTP statuses of a judge that refuses every request: bad key, no quota, unknown model or URL."""

logger = logging.getLogger("assay_judge")


class CallFailedError(Exception):
    """There is no reply. `reason` is a stable code, `message` a sentence, `needed…` the allowance it would take."""

    def __init__(self, reason: str, message: str, *, needed: int = 0, needed_tokens: int = 0) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.needed = needed
        self.needed_tokens = needed_tokens


@dataclass(frozen=True, slots=True)
class BudgetHandle:
    """The account and the limits of a call.

    Args:
        account: The run's account.
        cap: Most that the run may spend, in billionths of a dollar; None for no cap.
        allowance: Most that the run may have spent by now; None for no limit.
        token_allowance: Most tokens that the request may take; None for no limit.
        key: The key of the verdict; empty for none.
        price: The judge's price; None if unknown.
    """

    account: Account
    cap: int | None
    allowance: int | None = None
    token_allowance: int | None = None
    key: str = ""
    price: Price | None = None

    @property
    def limit(self) -> int | None:
        """The lower of cap and allowance; None if there is neither."""
        return lower_limit(self.cap, self.allowance)


class ObservedJudge:
    """The instruments of one judge, looked up once.

    Args:
        model: The id of the judge's model.
    """

    def __init__(self, model: str) -> None:
        self._model = model = bounded_label("model", model)
        self._seconds = CALL_SECONDS.series(model)
        self._input, self._output = (TOKENS.series(model, direction) for direction in ("input", "output"))
        self._cost = COST.series(model)
        self.retries = RETRIES.series(model)
        self.breaker = BREAKER_OPEN.series(model)
        self.breaker.set(0)

    def ended(self, attempt: CallAttempt) -> None:
        """Count a call that has ended."""
        direct = attempt.latency_ms is not None
        CALLS.series(self._model, "direct" if direct else "batch", attempt.outcome).inc()
        if attempt.latency_ms is not None:
            self._seconds.observe(attempt.latency_ms / 1000)
        self._input.inc(attempt.input or 0)
        self._output.inc(attempt.output or 0)
        self._cost.inc((attempt.cost or 0) / NANO)


class ProviderClient:
    """The client of one judge, with its rate limiter, circuit breaker and price.

    Args:
        provider: The service.
        model: The model's id.
        prices: The prices of models.
        limits: The judge's rate limits.
        retry_policy: Attempts, timeouts and backoff.
        jitter: Returns a number in [0, 1).
        choice: The judge as the request names it, for advice in error messages; None for none.
        redact: Removes keys from a text.
    """

    def __init__(
        self,
        provider: Provider,
        model: str,
        prices: PriceTable,
        *,
        limits: Limits,
        retry_policy: RetryPolicy,
        jitter: Callable[[], float] = random.random,
        choice: JudgeChoice | None = None,
        redact: Callable[[str], str] = str,
    ) -> None:
        self.limiter = Limiter(limits, pause_s=2 * retry_policy.pause_s, jitter=jitter)
        self.breaker = Breaker()
        self.observed = ObservedJudge(model)
        self.prices = prices
        self.learned = LearnedParameters()
        self._provider = provider
        self._checked_at: float | None = None
        """When the service last answered with this key, by the monotonic clock in seconds."""
        self._checking = asyncio.Lock()
        self._model = model
        self._retry_policy = retry_policy
        self._jitter = jitter
        self._choice = choice
        self._redact = redact

    async def call(
        self,
        prompt: Prompt,
        schema: Mapping[str, Any],
        wanted: JudgeParameters,
        budget: BudgetHandle,
        usage: CallUsage,
    ) -> Reply:
        """Return a judge's reply.

        Args:
            prompt: The prompt.
            schema: JSON schema of the verdict.
            wanted: The parameters to send, except those that the model refuses.
            budget: The account and the limits of the call.
            usage: Collects the usage of all attempts, even if there is no reply.

        Raises:
            CallFailedError: There is no reply.
            StorageError: Spending cannot be stored.
        """
        self.check_price(budget.cap, budget.price)
        failures = 0
        sent = self.learned.apply(wanted)
        while True:
            usage.changes = sent.changes_from(wanted)
            try:
                reply = await self._attempt(prompt, schema, sent, budget, usage)
            except ProviderStatusError as refusal:
                adapted = sent.without_refused(refusal, prompt.text)
                if adapted is not None:
                    sent = adapted
                    continue
                usage.last_problem = refusal_failure(refusal).message
                usage.throttled = refusal.throttles
                if refusal.throttles:
                    continue
                if not refusal.may_pass:
                    raise self.refused(refusal) from None
                asked_s = retry_after_s(refusal.headers)
            except (UnreachableError, MalformedReplyError) as problem:
                if isinstance(problem, UnreachableError) and not problem.may_pass:
                    raise CallFailedError("judge_unavailable", str(problem)) from None
                usage.last_problem, usage.throttled = str(problem), False
                asked_s = None
            except BreakerOpenError:
                detail = f"; last: {usage.last_problem}" if usage.last_problem else ""
                message = f"judge unavailable: circuit breaker open after repeated failures{detail}"
                raise CallFailedError("judge_unavailable", message) from None
            else:
                self.learn(wanted, sent)
                return reply
            failures += 1
            await self._pause(failures, asked_s, budget.account, usage)

    async def preflight(
        self,
        prompt: Prompt,
        schema: Mapping[str, Any],
        wanted: JudgeParameters,
        budget: BudgetHandle,
        usage: CallUsage,
    ) -> None:
        """Check with one call of a single token whether the service refuses every call.

        A service that answered within the last ten minutes is not called. Unreachable services and transient failures
        pass the check.

        Args:
            prompt, schema, wanted, budget, usage: As in `call`.

        Raises:
            CallFailedError: The service denies every call, or the budget does not allow the call.
            StorageError: Spending cannot be stored.
        """
        self.check_price(budget.cap, budget.price)
        least = dataclasses.replace(wanted, max_tokens=1)
        async with self._checking:
            sent = self.learned.apply(least)
            while self._checked_at is None or time.monotonic() - self._checked_at > _CHECKED_S:
                try:
                    async with asyncio.timeout(_PREFLIGHT_S):
                        await self._attempt(prompt, schema, sent, budget, usage)
                    self.learn(least, sent)
                    return
                except ProviderStatusError as refusal:
                    adapted = sent.without_refused(refusal, prompt.text)
                    if adapted is None:
                        if refusal.status in _DENIED and not refusal.may_pass:
                            raise self.refused(refusal) from None
                        return
                    sent = adapted
                except UnreachableError as problem:
                    if not problem.may_pass:
                        raise CallFailedError("judge_denied", str(problem)) from None
                    return
                except (TimeoutError, MalformedReplyError, BreakerOpenError):
                    return

    def learn(self, wanted: JudgeParameters, accepted: JudgeParameters) -> None:
        """Send later requests with the accepted parameters, and log a change."""
        if names := self.learned.learn(wanted, accepted):
            logger.warning("adapting requests to a judge that refuses parameters: model=%s changed=%s",
                           self._model, ",".join(names))  # fmt: skip

    def use(self, provider: Provider) -> None:
        """Use another connection to the same service from now on, because its key was rotated."""
        self._provider = provider
        self._checked_at = None

    @property
    def model(self) -> str:
        """The model's id."""
        return self._model

    @property
    def batches(self) -> BatchApi:
        """The batch API of the judge's service."""
        return self._provider.batches

    def check_price(self, cap: int | None, price: Price | None) -> None:
        """Refuse a cap that cannot be enforced.

        Raises:
            CallFailedError: The judge has no price.
        """
        if cap is not None and price is None:
            choice = self._choice or JudgeChoice(model=self._model)
            raise CallFailedError("price_unknown", self.prices.no_price(choice))

    def clean(self, reply: Reply) -> Reply:
        """Return a reply without keys; a service may echo the key it was sent."""
        text, model = self._redact(reply.text), self._redact(reply.model)
        return (
            reply if (text, model) == (reply.text, reply.model) else dataclasses.replace(reply, text=text, model=model)
        )

    def refused(self, refusal: ProviderStatusError) -> CallFailedError:
        """Return the failure of a permanently refused call, with advice."""
        failure = refusal_failure(refusal)
        remedy = self._choice.remedy(refusal.status) if self._choice else ""
        if not remedy:
            return failure
        detail = f" The service says: {refusal.message}" if refusal.message else ""
        return CallFailedError(failure.reason, f"{remedy}{detail}")

    async def _pause(self, failures: int, asked_s: float | None, account: Account, usage: CallUsage) -> None:
        if failures >= self._retry_policy.attempts:
            message = f"no answer after {failures} attempts; last: {usage.last_problem}"
            raise CallFailedError("judge_unavailable", message)
        if not self.breaker.is_open:  # an open breaker lets few calls through anyway
            if not account.may_retry():
                message = f"retry budget of the run is spent; last: {usage.last_problem}"
                raise CallFailedError("retry_budget_spent", message)
            account.retries += 1
            self.observed.retries.inc()
        longest = min(_LONGEST_PAUSE_S, self._retry_policy.pause_s * 2 ** (failures - 1))
        await asyncio.sleep(min(asked_s or 0.0, _LONGEST_ASKED_S) + self._jitter() * longest)

    async def _attempt(
        self, prompt: Prompt, schema: Mapping[str, Any], sent: JudgeParameters, budget: BudgetHandle, usage: CallUsage
    ) -> Reply:
        price = budget.price
        most = price.most_nano(prompt, sent.max_tokens) if price else 0
        if budget.limit is not None and budget.account.spent + most > budget.limit:
            raise too_little_left(most, budget)
        most_tokens = most_input(prompt) + sent.max_tokens
        if budget.token_allowance is not None and usage.charged + most_tokens > budget.token_allowance:
            raise too_few_tokens(usage.charged + most_tokens, most_tokens)
        estimate = len(prompt.system + prompt.call + prompt.user) / _CHARS_PER_TOKEN + sent.max_tokens
        async with self._turn(budget.account, estimate, usage) as turn:
            turn.price = price
            try:
                reservation = await budget.account.reserve(
                    most,
                    budget.limit,
                    lasts_s=self._retry_policy.attempt_timeout_s + _SETTLED_S,
                    key=budget.key,
                )
            except SpendCapReachedError:
                raise too_little_left(most, budget) from None
            turn.cost, turn.used, turn.tokens = most, estimate, most_tokens  # until the reply shows the actual usage
            budget.account.calls += 1
            usage.calls += 1
            # Charged in full before the call, so that a call that is cut off counts with its maximum.
            usage.charged += most_tokens
            usage.temperature = sent.temperature
            begun, counted = time.perf_counter(), len(usage.tokens)
            try:
                with span("judge call", kind="client", attributes={"gen_ai.request.model": self._model}) as recorded:
                    try:
                        return await self._asked(prompt, schema, sent, turn, usage)
                    finally:
                        recorded.set("assay.outcome", turn.outcome)
            finally:
                usage.charged += turn.tokens - most_tokens
                if price is not None:
                    usage.cost = (usage.cost or 0) + turn.cost
                tokens = usage.tokens[-1] if len(usage.tokens) > counted else None
                attempt = CallAttempt(
                    turn.outcome,
                    tokens.input if tokens else None,
                    tokens.output if tokens else None,
                    turn.cost if price is not None else None,
                    (time.perf_counter() - begun) * 1000,
                    estimated=tokens is not None and tokens.estimated,
                )
                usage.add_attempt(attempt)
                self.observed.ended(attempt)
                self.observed.breaker.set(self.breaker.is_open)
                lost_most = None
                if tokens is not None and price is not None and not tokens.estimated:
                    lost_most = price.most_nano_like(tokens, prompt, sent.max_tokens)
                    usage.bound_lost(lost_most)
                await _settle(reservation, turn, lost_most)

    @asynccontextmanager
    async def _turn(self, account: Account, estimate: float, usage: CallUsage) -> AsyncIterator[_Turn]:
        """Hold the turn of one call inside the block, waiting for it first; afterwards the next call has its turn."""
        turn, first = _Turn(), bool(usage.last_problem)
        try:
            while turn.grant is None:
                turn.probes = await self.breaker.enter(self._retry_policy.breaker_s)
                usage.waits = True
                turn.grant = await self.limiter.acquire(account.run, estimate, first=first)
                usage.waits = False
                if self.breaker.is_open and not turn.probes:  # it opened while this call waited for its turn
                    self.limiter.release(turn.grant, used=0.0)
                    turn.grant = None
            yield turn
        finally:
            if turn.probes and not turn.answered:
                self.breaker.left()
            if turn.grant is not None:
                self.limiter.release(turn.grant, used=turn.used)

    async def _asked(
        self, prompt: Prompt, schema: Mapping[str, Any], sent: JudgeParameters, turn: _Turn, usage: CallUsage
    ) -> Reply:
        try:
            reply = self.clean(await self._in_time(self._provider.ask(self._model, prompt, schema, sent)))
        except ProviderStatusError as refusal:
            turn.cost, turn.used, turn.tokens, turn.answered, turn.is_known = 0, 0.0, 0, True, True
            turn.outcome = f"http_{refusal.status}"
            self._take_refusal(refusal, turn)
            raise
        except (UnreachableError, MalformedReplyError) as problem:
            turn.answered = True
            turn.outcome = "malformed" if isinstance(problem, MalformedReplyError) else "unreachable"
            self.breaker.failed()
            if isinstance(problem, UnreachableError) and not problem.sent:
                turn.cost, turn.used, turn.tokens, turn.is_known = 0, 0.0, 0, True
            raise
        turn.answered, turn.is_known, turn.outcome = True, True, "replied"
        self._checked_at = time.monotonic()
        self.breaker.succeeded()
        self.limiter.observe(*read_allowances(reply.headers, now=time.time()))
        self.limiter.succeeded()
        tokens = usable_tokens(reply, prompt, sent.max_tokens)
        turn.tokens = tokens.input + tokens.output
        turn.used = float(turn.tokens)
        turn.cost = turn.price.nano(tokens) if turn.price else 0
        usage.tokens.append(tokens)
        return reply

    async def _in_time(self, asking: Coroutine[Any, Any, Reply]) -> Reply:
        try:
            async with asyncio.timeout(self._retry_policy.attempt_timeout_s):
                return await asking
        except TimeoutError:
            message = f"no answer within {self._retry_policy.attempt_timeout_s:g} s"
            raise UnreachableError(message, sent=True) from None

    def _take_refusal(self, refusal: ProviderStatusError, turn: _Turn) -> None:
        self.limiter.observe(*read_allowances(refusal.headers, now=time.time()))
        if refusal.throttles and turn.grant is not None:
            self.limiter.throttled(turn.grant, retry_after_s(refusal.headers))
        if refusal.status >= 500:
            self.breaker.failed()
        else:
            self.breaker.succeeded()


@dataclass(slots=True)
class _Turn:
    """One call in flight: its price, cost and tokens, whether the service answered, and whether its cost is known."""

    grant: Grant | None = None
    price: Price | None = None
    cost: int = 0
    used: float = 0.0
    tokens: int = 0
    answered: bool = False
    is_known: bool = False
    probes: bool = False
    outcome: str = "broken_off"


async def _settle(reservation: Reservation, turn: _Turn, lost_most: int | None) -> None:
    """Replace a reservation by the cost of its call. If the write fails, the whole reservation stays spent.

    The error is only logged: the reply is paid for and must not be lost with the write.
    """
    try:
        await asyncio.shield(reservation.settle(turn.cost, lost_most) if turn.is_known else reservation.lose())
    except StorageError as problem:
        logger.warning("cannot settle the cost of a call, its reservation stays spent: %s", problem)


def refusal_failure(refusal: ProviderStatusError) -> CallFailedError:
    """Return the failure of a permanently refused call."""
    reason = "judge_denied" if refusal.status in _DENIED else "judge_refuses_request"
    return CallFailedError(reason, f"HTTP {refusal.status}: {refusal.message or '(no explanation)'}")


def too_few_tokens(needed: int, most: int) -> CallFailedError:
    """Return the failure of a call that may take more tokens than its request has left.

    Args:
        needed: The most tokens that the request may take including this call.
        most: The most tokens that this call may take; a second turn, after an invalid reply, may take as many.
    """
    message = f"the verdict may take {needed:,} tokens, more than are allowed for it"
    return CallFailedError("allowance_too_small", message, needed_tokens=needed + most)


def too_little_left(most: int, budget: BudgetHandle) -> CallFailedError:
    """Return the failure of a call that exceeds the rest of the run's cap or allowance."""
    if budget.allowance is not None and (budget.cap is None or budget.account.spent + most <= budget.cap):
        message = f"this call may cost up to {most / NANO:.6f} dollars, more than is left of the run's allowance"
        return CallFailedError("allowance_too_small", message, needed=most)
    cap = budget.cap or 0
    allows = f", which allows at least {cap // most:,} verdicts like this one" if most else ""  # the call may be free
    return CallFailedError(
        "spend_cap_reached",
        f"this call may cost up to {most / NANO:.6f} dollars; {budget.account.spent / NANO:.6f} of the run's spend cap "
        f"of {cap / NANO:g} are spent{allows}",
    )
