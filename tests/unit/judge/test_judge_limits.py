from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.processes.virtual_time import in_virtual_time
from tests.support.services.memory_books import MemoryBooks

from assay.model.scope import LOCAL
from assay.providers.errors import ProviderStatusError, UnreachableError
from assay.providers.messages import Reply, TokenUsage
from assay_judge.calls.circuit_breaker import Breaker
from assay_judge.calls.prices import PriceTable
from assay_judge.calls.provider_client import BudgetHandle, CallFailedError, ProviderClient
from assay_judge.calls.rate_headers import Allowance, read_allowances
from assay_judge.calls.rate_limiter import Limiter, Limits
from assay_judge.calls.retry_policy import RetryPolicy
from assay_judge.calls.usage import CallUsage
from assay_judge.model import Prompt, RunKey
from assay_judge.providers.verdict_request import JudgeParameters
from assay_judge.state.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PROMPT = Prompt("s" * 1_000, "c" * 100, "u" * 2_400, "id")
WANTED = JudgeParameters(500, 0.1)


def now() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class Service:
    """A provider with a token bucket of requests, an answer time, and what a test adds; it counts what it saw."""

    per_minute: float = 600.0
    burst: float = 60.0
    latency_s: float = 1.0
    retry_after: Callable[[float], dict[str, str]] = lambda wait_s: {"retry-after": str(max(1, round(wait_s)))}
    refuses: Callable[[float], bool] = lambda at: False
    headers: Callable[[Service], dict[str, str]] = lambda service: {}
    answered: int = 0
    refused: int = 0
    at_once: int = 0
    most_at_once: int = 0
    times: list[float] = field(default_factory=list)
    _level: float | None = None
    _at: float = 0.0

    async def ask(self, model: str, prompt: Prompt, schema: Mapping[str, Any], parameters: JudgeParameters) -> Reply:
        self.times.append(now())
        self.refill()
        if self.refuses(now()) or self.level < 1:
            self.refused += 1
            wait_s = max(0.0, (1 - self.level) * 60 / self.per_minute)
            raise ProviderStatusError(429, {**self.retry_after(wait_s), **self.headers(self)}, {})
        self.level -= 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(self.latency_s)
        self.at_once -= 1
        self.answered += 1
        return Reply("{}", tokens=TokenUsage(1_000, 100), headers=self.headers(self))

    async def aclose(self) -> None:
        """Nothing is open."""

    def refill(self) -> None:
        self.level = min(self.burst, self.level + (now() - self._at) * self.per_minute / 60)
        self._at = now()

    @property
    def level(self) -> float:
        return self.burst if self._level is None else self._level

    @level.setter
    def level(self, value: float) -> None:
        self._level = value


def client_to(service: Any, limits: Limits = Limits(max_concurrency=64), **retry_policy: Any) -> ProviderClient:  # noqa: B008
    return ProviderClient(
        service,
        "m",
        PriceTable(),
        limits=limits,
        retry_policy=RetryPolicy(**retry_policy),
        jitter=random.Random(1).random,
    )


async def ask_all(client: ProviderClient, count: int) -> list[BaseException | Reply]:
    budget = BudgetHandle(MemoryBooks().account(""), None)
    return await asyncio.gather(
        *(client.call(PROMPT, {}, WANTED, budget, CallUsage()) for _ in range(count)), return_exceptions=True
    )


ALLOWED = 600.0


@pytest.mark.parametrize(
    ("service", "limits", "wasted"),
    [
        (lambda: Service(), Limits(max_concurrency=64), 0.05),
        (lambda: Service(retry_after=lambda wait_s: {}), Limits(max_concurrency=64), 0.05),
        (lambda: Service(retry_after=lambda wait_s: {"retry-after-ms": str(wait_s * 1000)}), Limits(max_concurrency=64),
         0.10),
        (lambda: Service(latency_s=0.2), Limits(max_concurrency=64), 0.05),
        (lambda: Service(latency_s=4.0), Limits(max_concurrency=64), 0.05),
        (lambda: Service(), Limits(requests_per_minute=ALLOWED, max_concurrency=64), 0.01),
        (lambda: Service(headers=lambda s: {"x-ratelimit-limit-requests": "600",
                                            "x-ratelimit-remaining-requests": str(int(s.level))}),
         Limits(max_concurrency=64), 0.02),
    ],
    ids=["seconds", "no retry-after", "milliseconds", "fast", "slow", "configured", "headers"],
)  # fmt: skip
@in_virtual_time
async def test_nine_tenths_of_the_allowed_rate_are_used(service: Any, limits: Limits, wasted: float) -> None:
    """4,500 requests against a provider that allows 600 a minute: all answered, in little more than 7.5 minutes."""
    provider = service()
    results = await ask_all(client_to(provider, limits), 4_500)
    assert all(isinstance(result, Reply) for result in results)
    used = (provider.answered - provider.burst) / (now() * ALLOWED / 60)
    assert used >= 0.9, used
    assert provider.refused <= wasted * provider.answered, provider.refused / provider.answered


@pytest.mark.parametrize(
    ("refuses", "retry_after"),
    [
        (lambda at: at < 60, lambda wait_s: {}),
        (lambda at: at < 60, lambda wait_s: {"retry-after": "0"}),
        (lambda at: at < 60, lambda wait_s: {"retry-after": "10000"}),
        (lambda at: 20 < at < 620 and random.Random(at).random() < 0.5, lambda wait_s: {"retry-after": "1"}),
    ],
    ids=["a minute of nothing", "lying low", "lying high", "every second one for ten minutes"],
)
@in_virtual_time
async def test_a_storm_of_429s_loses_nothing(refuses: Any, retry_after: Any) -> None:
    """Every request is answered after a storm of refusals, and few calls are wasted."""
    provider = Service(refuses=refuses, retry_after=retry_after)
    results = await ask_all(client_to(provider), 3_000)
    assert all(isinstance(result, Reply) for result in results)
    assert provider.answered == 3_000
    assert provider.refused < 1_000


@in_virtual_time
async def test_a_storm_wastes_few_calls() -> None:
    """While everything is refused, calls become rarer instead of coming from every waiting request."""
    provider = Service(refuses=lambda at: at < 60)
    await ask_all(client_to(provider), 1_000)
    assert provider.refused <= 60


@in_virtual_time
async def test_tokens_per_minute_hold() -> None:
    """The pace follows the tokens that calls use, not the first estimate."""
    provider = Service(per_minute=1e9, burst=1e9, latency_s=0.5)
    # 1,100 tokens a call: 60 calls a minute.
    await ask_all(client_to(provider, Limits(tokens_per_minute=66_000, max_concurrency=64)), 600)
    assert 0.9 * 600 <= now() <= 600 * 1.02


@in_virtual_time
async def test_concurrency_grows_while_all_goes_well_and_never_beyond_its_limit() -> None:
    """Without refusals the concurrency soon reaches the operator's limit."""
    provider = Service(per_minute=1e9, burst=1e9)
    await ask_all(client_to(provider, Limits(max_concurrency=16)), 400)
    assert provider.most_at_once == 16
    assert now() < 400 / 16 + 5


@pytest.mark.parametrize(("asked_s", "paused_s"), [(10_000.0, 60.0), (61.0, 60.0), (59.0, 59.0), (2.0, 2.0)])
@in_virtual_time
async def test_a_pause_that_is_asked_for_is_a_minute_at_most(asked_s: float, paused_s: float) -> None:
    """A provider that asks for a pause of hours gets one of a minute."""
    limiter = Limiter(Limits(max_concurrency=2))
    grant = await limiter.acquire(RunKey("t", "r"), 1)
    limiter.throttled(grant, asked_s)
    limiter.release(grant, used=0.0)
    begun = now()
    await limiter.acquire(RunKey("t", "r"), 1)
    # Without a known rate calls are paced as well, by the rate that was measured.
    assert paused_s <= now() - begun <= paused_s + 1


@in_virtual_time
async def test_a_probe_that_is_given_up_lets_the_next_call_probe() -> None:
    """If the caller of a probe leaves, the next call becomes the probe."""
    breaker = Breaker(failures=1, open_s=5.0)
    breaker.failed()
    assert await breaker.enter(10.0)
    waiting = asyncio.ensure_future(breaker.enter(10.0))
    await asyncio.sleep(1)
    assert not waiting.done()
    breaker.left()
    assert await waiting
    breaker.succeeded()
    assert not await breaker.enter(0.0)


@in_virtual_time
async def test_a_call_that_is_cancelled_while_it_probes_leaves_the_breaker_usable() -> None:
    """The judge is well again: the call after the cancelled one gets its answer."""
    provider = Failing(until=1e9)
    client = client_to(provider, attempts=1, breaker_s=30.0)
    await ask_all(client, 20)
    assert client.breaker.is_open
    provider.until = 0.0
    await asyncio.sleep(5)
    budget = BudgetHandle(MemoryBooks().account(""), None)
    probe = asyncio.ensure_future(client.call(PROMPT, {}, WANTED, budget, CallUsage()))
    await asyncio.sleep(0.05)  # virtual: the call is in flight
    probe.cancel()
    (result,) = await ask_all(client, 1)
    assert isinstance(result, Reply)


@in_virtual_time
async def test_runs_take_turns() -> None:
    """A run with few requests does not wait for one with many."""
    limiter = Limiter(Limits(max_concurrency=1))
    order: list[str] = []

    async def work(run_id: str) -> None:
        grant = await limiter.acquire(RunKey("t", run_id), 1)
        order.append(run_id)
        await asyncio.sleep(1)
        limiter.release(grant, used=1)

    await asyncio.gather(*(work("large") for _ in range(50)), *(work("small") for _ in range(3)))
    assert max(index for index, run_id in enumerate(order) if run_id == "small") < 8


@in_virtual_time
async def test_teams_take_turns() -> None:
    """A team with one run does not wait for a team with many."""
    limiter = Limiter(Limits(max_concurrency=1))
    order: list[RunKey] = []

    async def work(run: RunKey) -> None:
        grant = await limiter.acquire(run, 1)
        order.append(run)
        await asyncio.sleep(1)
        limiter.release(grant, used=1)

    flood = [RunKey("large", str(number % 20)) for number in range(100)]
    await asyncio.gather(*map(work, flood), *(work(RunKey("small", "0")) for _ in range(3)))
    assert max(index for index, run in enumerate(order) if run.team == "small") < 8


@in_virtual_time
async def test_whoever_leaves_takes_no_turn() -> None:
    """Requests cancelled at any moment return what they had."""
    limiter = Limiter(Limits(requests_per_minute=600, max_concurrency=4))
    rng = random.Random(3)

    async def work() -> None:
        grant = await limiter.acquire(RunKey("t", "r"), 1)
        try:
            await asyncio.sleep(rng.random())
        finally:
            limiter.release(grant, used=1)

    tasks = [asyncio.ensure_future(work()) for _ in range(200)]
    for _ in range(100):
        await asyncio.sleep(0.05)
        rng.choice(tasks).cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    grants = [await limiter.acquire(RunKey("t", "r"), 1) for _ in range(limiter.concurrency)]
    assert len(grants) == 4


class Failing:
    """A provider that fails until a time, and takes its time about it."""

    def __init__(self, until: float, *, error: Exception | None = None) -> None:
        self.until = until
        self.calls: list[float] = []
        self.error = error or ProviderStatusError(500, {}, {})

    async def ask(self, model: str, prompt: Prompt, schema: Mapping[str, Any], parameters: JudgeParameters) -> Reply:
        self.calls.append(now())
        await asyncio.sleep(0.1)
        if now() < self.until:
            raise self.error
        return Reply("{}")

    async def aclose(self) -> None:
        """Nothing is open."""


@in_virtual_time
async def test_a_judge_that_fails_all_the_time_is_left_alone_and_tried_again() -> None:
    """The breaker opens after a few failures, allows one probe at a time and closes with the first answer."""
    provider = Failing(until=40.0)
    client = client_to(provider, attempts=20, breaker_s=120.0)
    results = await ask_all(client, 50)
    assert all(isinstance(result, Reply) for result in results)
    while_down = [at for at in provider.calls if 3 < at < 39]
    assert len(while_down) <= 6
    assert not client.breaker.is_open


@in_virtual_time
async def test_a_judge_that_never_comes_back_fails_in_time() -> None:
    """Calls to a dead judge fail in bounded time, and few are made."""
    provider = Failing(until=1e9, error=UnreachableError("ConnectError", sent=False))
    results = await ask_all(client_to(provider), 300)
    assert {error.reason for error in results if isinstance(error, CallFailedError)} <= {
        "judge_unavailable", "retry_budget_spent",
    }  # fmt: skip
    assert all(isinstance(result, CallFailedError) for result in results)
    assert now() < 300
    assert len(provider.calls) < 100


@in_virtual_time
async def test_repeats_are_a_fifth_of_a_runs_calls_at_most() -> None:
    """Occasional failures of a provider repeat at most a fifth of a run's calls."""
    rng = random.Random(5)

    class Moody(Failing):
        async def ask(self, *arguments: Any) -> Reply:
            self.calls.append(now())
            await asyncio.sleep(0.1)
            if rng.random() < 0.5:
                raise ProviderStatusError(500, {}, {})
            return Reply("{}")

    account, client = MemoryBooks().account(), client_to(Moody(0))
    budget = BudgetHandle(account, None)
    await asyncio.gather(
        *(client.call(PROMPT, {}, WANTED, budget, CallUsage()) for _ in range(500)), return_exceptions=True
    )
    assert account.retries <= 0.2 * account.calls + 10


@pytest.mark.parametrize(
    ("headers", "requests", "tokens"),
    [
        ({}, None, None),
        ({"x-ratelimit-limit-requests": "500", "x-ratelimit-remaining-requests": "499",
          "x-ratelimit-reset-requests": "120ms", "x-ratelimit-limit-tokens": "30000",
          "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "1m0s"},
         Allowance(500, 499), Allowance(30_000, 0)),
        ({"x-ratelimit-limit-requests": "10000", "x-ratelimit-remaining-requests": "9999",
          "x-ratelimit-reset-requests": "8.64s"}, Allowance(10_000, 9_999, per_minute=False), None),
        ({"anthropic-ratelimit-requests-limit": "50", "anthropic-ratelimit-requests-remaining": "49",
          "anthropic-ratelimit-requests-reset": "1970-01-01T00:16:41Z"}, Allowance(50, 49), None),
        ({"x-ratelimit-limit-requests": "nan", "x-ratelimit-remaining-requests": "1"}, None, None),
        ({"x-ratelimit-limit-requests": "0", "x-ratelimit-remaining-requests": "0"}, None, None),
        ({"x-ratelimit-limit-requests": "5", "x-ratelimit-remaining-requests": "50",
          "x-ratelimit-reset-requests": "later"}, Allowance(5, 5), None),
    ],
)  # fmt: skip
def test_headers_say_what_is_allowed(
    headers: dict[str, str], requests: Allowance | None, tokens: Allowance | None
) -> None:
    """Both providers' headers, limits of a day told from those of a minute, and nonsense that is ignored."""
    assert read_allowances(headers, now=1_000.0) == (requests, tokens)


async def test_accounts_that_nobody_uses_are_forgotten() -> None:
    """Memory does not grow with the number of runs."""
    books: Any = MemoryBooks()
    ledger = Ledger(books, accounts=10)
    for index in range(100):
        _, close = await ledger.open(LOCAL, f"run {index}")
        close()
    assert len(ledger._accounts) <= 10
