"""Calls of a judge: rate limited, paid for, retried with backoff, and ended by a deadline.

A 429 costs no attempt: the limiter waits and the call is made again until its deadline. Other failures that may pass
are retried with full jitter, up to a number of attempts and within the run's retry budget. Each call is paid for
before it is made; one whose outcome is unknown has cost the most that it could.
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
from assay.telemetry.tracing import span
from assay_judge.calls.circuit_breaker import Breaker, BreakerOpenError
from assay_judge.calls.observed_judge import ObservedJudge
from assay_judge.calls.prices import NANO
from assay_judge.calls.rate_headers import read_allowances
from assay_judge.calls.rate_limiter import Limiter
from assay_judge.calls.token_usage import most_input, usable_tokens
from assay_judge.calls.usage import CallAttempt
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
_SETTLED_S = 60.0  # after its end a call is paid for within this time, or its process is gone
_DENIED = (401, 402, 403, 404, 429)
"""HTTP statuses of a judge that refuses every request: bad key, no quota, unknown model or URL."""

logger = logging.getLogger("assay_judge")


class CallFailedError(Exception):
    """There is no reply: `reason` is a stable word, `message` a sentence, `needed…` what would have to be allowed."""

    def __init__(self, reason: str, message: str, *, needed: int = 0, needed_tokens: int = 0) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.needed = needed
        self.needed_tokens = needed_tokens


@dataclass(frozen=True, slots=True)
class BudgetHandle:
    """Who pays for a call.

    Args:
        account: The run's.
        cap: Most that it may spend, in billionths of a dollar; None for no cap.
        allowance: Most that it may have spent by now; None for no bound.
        token_allowance: Most tokens that the request may take; None for no bound.
        key: The verdict that the call is for; empty for none.
        price: What a call costs; None where that is not known.
    """

    account: Account
    cap: int | None
    allowance: int | None = None
    token_allowance: int | None = None
    key: str = ""
    price: Price | None = None

    @property
    def limit(self) -> int | None:
        """The lower of cap and allowance; None where there is neither."""
        return lower_limit(self.cap, self.allowance)


class ProviderClient:
    """One judge as it is called: its provider, model, pace and price.

    Args:
        provider: The service.
        model: The model's id.
        prices: What models cost.
        limits: Its rate limits.
        retry_policy: Attempts, timeouts and backoff.
        jitter: Returns a number in [0, 1).
        choice: The judge as it was chosen, for advice; None for none.
        redact: Returns a text without any key.
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
        """When the service last answered with this key, in seconds of the monotonic clock."""
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
            prompt: What it is sent.
            schema: The form of the verdict.
            wanted: JudgeParameters to send, less those that the model refuses.
            payer: Who pays.
            usage: Collects what the calls cost, also where no reply comes.

        Raises:
            CallFailedError: There is none.
            StorageError: Spending cannot be kept.
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
                said = f"; last: {usage.last_problem}" if usage.last_problem else ""
                message = f"judge unavailable: circuit breaker open after repeated failures{said}"
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
        """Find out whether the service refuses every call, with one call of a single token.

        A service that answered within the last ten minutes is not called. One that cannot be reached, or fails in a
        way that may pass, is not refused: a run finds out.

        Args:
            prompt, schema, wanted, budget, usage: As in `call`.

        Raises:
            CallFailedError: The service denies every call, or the call may not be paid.
            StorageError: Spending cannot be kept.
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
        """Send later requests as one was accepted, and say so in the log where that is new."""
        if names := self.learned.learn(wanted, accepted):
            logger.warning("adapting requests to a judge that refuses parameters: model=%s changed=%s",
                           self._model, ",".join(names))  # fmt: skip

    def use(self, provider: Provider) -> None:
        """Make further calls with another connection to the same service, after its key was rotated."""
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
        """Refuse a cap that cannot hold.

        Raises:
            CallFailedError: The judge has no price.
        """
        if cap is not None and price is None:
            choice = self._choice or JudgeChoice(model=self._model)
            raise CallFailedError("price_unknown", self.prices.no_price(choice))

    def clean(self, reply: Reply) -> Reply:
        """Return a reply without any key, which a service may repeat that was sent one."""
        text, model = self._redact(reply.text), self._redact(reply.model)
        return (
            reply if (text, model) == (reply.text, reply.model) else dataclasses.replace(reply, text=text, model=model)
        )

    def refused(self, refusal: ProviderStatusError) -> CallFailedError:
        """Return the failure of a call that will be refused again, with what to do about it."""
        failure = refusal_failure(refusal)
        remedy = self._choice.remedy(refusal.status) if self._choice else ""
        if not remedy:
            return failure
        said = f" The service says: {refusal.message}" if refusal.message else ""
        return CallFailedError(failure.reason, f"{remedy}{said}")

    async def _pause(self, failures: int, asked_s: float | None, account: Account, usage: CallUsage) -> None:
        if failures >= self._retry_policy.attempts:
            message = f"no answer after {failures} attempts; last: {usage.last_problem}"
            raise CallFailedError("judge_unavailable", message)
        if not self.breaker.is_open:  # then probes are few anyway
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
            turn.cost, turn.used, turn.tokens = most, estimate, most_tokens  # until more is known
            budget.account.calls += 1
            usage.calls += 1
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
        """Wait until a call may be made; leave the next one its turn."""
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
    """One call in flight: its price, cost and tokens, whether the service answered, and whether the cost is known."""

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
    """Replace what was set aside by what a call has cost; where that cannot be written, all of it stays spent.

    The reply is paid for: it must not be lost with the write.
    """
    try:
        await asyncio.shield(reservation.settle(turn.cost, lost_most) if turn.is_known else reservation.lose())
    except StorageError as problem:
        logger.warning("cannot settle the cost of a call, what was set aside for it stays spent: %s", problem)


def refusal_failure(refusal: ProviderStatusError) -> CallFailedError:
    """Return the failure of a call that will be refused again."""
    reason = "judge_denied" if refusal.status in _DENIED else "judge_refuses_request"
    return CallFailedError(reason, f"HTTP {refusal.status}: {refusal.message or '(no explanation)'}")


def too_few_tokens(needed: int, most: int) -> CallFailedError:
    """Return the failure of a call that may take more tokens than its request has left.

    Args:
        needed: What the request may take with this call.
        most: What this call may take; a second turn, as after a reply that is no verdict, may take as much.
    """
    message = f"the verdict may take {needed:,} tokens, more than are allowed for it"
    return CallFailedError("allowance_too_small", message, needed_tokens=needed + most)


def too_little_left(most: int, budget: BudgetHandle) -> CallFailedError:
    """Return the failure of a call for which a run has too little left, of its cap or of its allowance."""
    if budget.allowance is not None and (budget.cap is None or budget.account.spent + most <= budget.cap):
        message = f"this call may cost up to {most / NANO:.6f} dollars, more than is left of the run's allowance"
        return CallFailedError("allowance_too_small", message, needed=most)
    cap = budget.cap or 0
    allows = f", which allows at least {cap // most:,} verdicts like this one" if most else ""  # this one may be free
    return CallFailedError(
        "spend_cap_reached",
        f"this call may cost up to {most / NANO:.6f} dollars; {budget.account.spent / NANO:.6f} of the run's spend cap "
        f"of {cap / NANO:g} are spent{allows}",
    )
