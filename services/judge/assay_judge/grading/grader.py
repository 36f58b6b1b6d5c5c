"""Grade one answer, or compare two: precheck, cache lookup, calls, check of the reply, cache write."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.errors import InvalidInputError, OverloadedError, Problem
from assay_judge.calls.provider_client import BudgetHandle, CallFailedError
from assay_judge.calls.usage import CallUsage
from assay_judge.grading.single_flight import SingleFlight
from assay_judge.instruments import CACHE, IN_FLIGHT, VERDICTS
from assay_judge.model import Prompt
from assay_judge.verdicts.cache import outcome_from_record
from assay_judge.verdicts.outcome import Outcome, Status
from assay_judge.verdicts.parser import InvalidVerdictError, JudgeVerdict
from assay_judge.verdicts.precheck import precheck_off_loop
from assay_judge.verdicts.prepared_grading import prepare_grading
from assay_judge.verdicts.replies import TURNS, failed_outcome, no_verdict, outcome_from_reply

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from assay_judge.batches.dispatcher import BatchDispatcher
    from assay_judge.calls.provider_client import ProviderClient
    from assay_judge.calls.provider_registry import ProviderRegistry
    from assay_judge.model import Grading
    from assay_judge.state.claims import Claims
    from assay_judge.state.ledger import Ledger
    from assay_judge.verdicts.cache import VerdictCache
    from assay_judge.verdicts.prepared_grading import PreparedGrading
    from assay_judge.verdicts.recording import Recording

_PREFLIGHT = Prompt("", "", "Reply with OK.", "")


@dataclass(slots=True)
class Statistics:
    """Cache statistics since the start: hits, misses, and requests that joined an identical one in flight."""

    hits: int = 0
    misses: int = 0
    joined: int = 0


class Grader:
    """Grades answers.

    Args:
        registry: The provider clients.
        cache: The cache of verdicts.
        ledger: The accounts of the runs.
        batches: Dispatches requests that go through batch APIs.
        recording: Verdicts for the provider "replay"; None for none.
        claims: Claims to verdicts among replicas that share a cache; None if there is only this process.
        queue_limit: Most requests in flight; n teams with requests in flight may have an n-th each.
    """

    def __init__(
        self,
        registry: ProviderRegistry,
        cache: VerdictCache,
        ledger: Ledger,
        batches: BatchDispatcher,
        *,
        recording: Recording | None = None,
        claims: Claims | None = None,
        queue_limit: int = 4_096,
    ) -> None:
        self.statistics = Statistics()
        self._registry = registry
        self._cache = cache
        self._ledger = ledger
        self._batches = batches
        self._recording = recording
        self._claims = claims
        self._queue_limit = queue_limit
        self._in_flight: dict[str, int] = {}  # by team
        self._single_flight: SingleFlight[Outcome] = SingleFlight()

    async def grade(self, grading: Grading) -> Outcome:
        """Return the outcome of a request; a missing verdict is an outcome too.

        Raises:
            InvalidInputError: The request must name one of several recorded judges.
            SetupError: The judge's package or key is missing.
            OverloadedError: Too many requests are in flight.
            StorageError: Spending cannot be stored.
        """
        if grading.judge.provider == "none":
            message = "no judge configured: name one in the run, or start the judge service with --provider"
            return Outcome(Status.UNAVAILABLE, reason="judge_not_configured", message=message)
        with self._place(grading.scope.team):
            outcome = await self._graded(self._named(grading))
        VERDICTS.series(outcome.status.value, outcome.reason).inc()
        return self._redacted(outcome)

    @contextmanager
    def _place(self, team: str) -> Iterator[None]:
        """Hold a place in the queue inside the block; one team's requests cannot take all places."""
        held = self._in_flight.get(team, 0)
        share = max(1, self._queue_limit // len(self._in_flight.keys() | {team}))
        if held >= share:
            raise OverloadedError(f"{held} verdicts are in flight; retry in 1 s.", reason="QUEUE_FULL")
        self._in_flight[team] = held + 1
        IN_FLIGHT.series().inc()
        try:
            yield
        finally:
            IN_FLIGHT.series().dec()
            self._in_flight[team] -= 1
            if not self._in_flight[team]:
                del self._in_flight[team]

    def check(self, grading: Grading) -> None:
        """Check the configuration of a judge without calling it.

        Raises:
            InvalidInputError: As in `grade`.
            SetupError: As in `grade`.
        """
        grading = self._named(grading)
        if grading.judge.provider not in ("none", "replay"):
            self._registry.check(grading.judge, capped=grading.cap is not None)

    async def preflight(self, grading: Grading) -> Outcome:
        """Call a judge to see whether it refuses every request; the outcome's reason is empty if it does not.

        The run pays for the call.

        Raises:
            InvalidInputError, SetupError, OverloadedError, StorageError: As in `grade`.
        """
        grading = self._named(grading)
        usage = CallUsage()
        if grading.judge.provider in ("none", "replay"):
            return await self.grade(grading) if grading.judge.provider == "none" else Outcome(Status.UNAVAILABLE)
        client = await self._registry.client(grading.judge)
        prepared = prepare_grading(grading)
        try:
            async with self._budget(client, grading) as budget:
                await client.preflight(_PREFLIGHT, prepared.schema, prepared.parameters, budget, usage)
        except CallFailedError as failure:
            return self._redacted(dataclasses.replace(failed_outcome(failure), usage=usage))
        return Outcome(Status.UNAVAILABLE, usage=usage)

    async def aclose(self) -> None:
        """Cancel requests in flight."""
        await self._single_flight.aclose()

    def _redacted(self, outcome: Outcome) -> Outcome:
        if not outcome.message:
            return outcome
        return dataclasses.replace(outcome, message=self._registry.redact(outcome.message))

    def _named(self, grading: Grading) -> Grading:
        """Return the request; if it names no judge and only one was recorded, fill that judge in."""
        if grading.judge.provider != "replay" or grading.judge.model:
            return grading
        judges = self._recording.judges if self._recording else []
        if len(judges) != 1:
            recorded = ", ".join(judges) or "nothing"
            message = f"must name the recorded judge; the recording of this server holds {recorded}"
            raise InvalidInputError([Problem(message, "judge.model")])
        return dataclasses.replace(grading, judge=dataclasses.replace(grading.judge, model=judges[0]))

    async def _graded(self, grading: Grading) -> Outcome:
        checked = await precheck_off_loop(grading.material)
        prepared = prepare_grading(grading)
        outcome = await self._outcome(prepared, is_empty=checked.is_empty)
        return dataclasses.replace(outcome, key=prepared.key, fingerprint=prepared.fingerprint, flags=checked.flags)

    async def _outcome(self, prepared: PreparedGrading, *, is_empty: bool) -> Outcome:
        grading = prepared.grading
        if is_empty and not grading.rubric.judges_trivial:
            lowest = JudgeVerdict("The answer is empty.", grading.rubric.lowest)
            return Outcome(Status.VALID, lowest, by_rule=True)
        if grading.judge.provider == "replay":
            return self._replayed(prepared)
        if grading.batch:
            ordered = await self._batches.find_outcome(prepared, on_join=self._joined)
            if ordered is not None:
                return ordered
        cached = await self._cache.find(grading.scope, prepared.key, grading.rubric)
        if cached is not None:
            self.statistics.hits += 1
            CACHE.series("hit").inc()
            return dataclasses.replace(cached, cached=True)
        client = await self._registry.client(grading.judge)
        if grading.batch:
            self._missed()
            return await self._batches.order_verdict(client, prepared)
        return await self._call_once(client, prepared)

    async def _call_once(self, client: ProviderClient, prepared: PreparedGrading) -> Outcome:
        """Call the judge, or wait for the identical request that is in flight."""
        grading = prepared.grading
        # The limit is part of the key: another run's cap must not decide about this run's verdict.
        # One flight per run: the calls are paid from its account.
        flight = (grading.scope, prepared.key, grading.run_id, grading.cap)
        joins = self._single_flight.is_in_flight(flight)
        if joins:
            self._joined()
        else:
            self._missed()
        usage = CallUsage()
        try:
            outcome = await self._single_flight.do(
                flight, lambda: self._call_and_cache(client, prepared, usage), grading.timeout_s
            )
        except TimeoutError:
            waited = client.limiter.waits_for() if usage.waits else ""
            pace = f"; the judge waited for its own pace: {waited}" if waited else ""
            last = f"; last: {usage.last_problem}" if usage.last_problem else ""
            message = f"no verdict within {grading.timeout_s:g} s{pace}{last}"
            reason = "rate_limited" if usage.throttled else "deadline_exceeded"
            return Outcome(
                Status.UNAVAILABLE, reason=reason, message=message, usage=usage,
                temperature=usage.temperature,
            )  # fmt: skip
        return outcome.as_found() if joins else outcome

    async def _call_and_cache(self, client: ProviderClient, prepared: PreparedGrading, usage: CallUsage) -> Outcome:
        """Call the judge and cache its verdict, or wait for the replica that is already calling for this verdict."""
        grading, claims = prepared.grading, self._claims
        if claims is None:
            return await self._paid(client, prepared, usage)
        usage.last_problem = "another replica is calling the judge for the same verdict"
        async with claims.held(grading.scope.team, prepared.key):
            usage.last_problem = ""
            # Looked up again: the replica that held the claim has usually stored the verdict.
            outcome = await self._cache.find(grading.scope, prepared.key, grading.rubric)
            if outcome is not None:
                return dataclasses.replace(outcome, cached=True)
            return await self._paid(client, prepared, usage)

    async def _paid(self, client: ProviderClient, prepared: PreparedGrading, usage: CallUsage) -> Outcome:
        grading = prepared.grading
        try:
            async with self._budget(client, grading, prepared.key) as budget:
                outcome = await self._call_judge(client, prepared, budget, usage)
        except CallFailedError as failure:
            outcome = failed_outcome(failure)
        outcome = dataclasses.replace(outcome, usage=usage, temperature=usage.temperature)
        await self._cache.keep(grading.scope.team, prepared.key, grading.rubric, grading.judge, outcome)
        return outcome

    @asynccontextmanager
    async def _budget(self, client: ProviderClient, grading: Grading, key: str = "") -> AsyncIterator[BudgetHandle]:
        """Hold the account of the request's run inside the block."""
        account, close = await self._ledger.open(grading.scope, grading.run_id)
        try:
            yield BudgetHandle(
                account,
                grading.cap,
                grading.allowance,
                grading.token_allowance,
                key,
                client.prices.find(grading.judge),
            )
        finally:
            close()

    async def _call_judge(
        self, client: ProviderClient, prepared: PreparedGrading, budget: BudgetHandle, usage: CallUsage
    ) -> Outcome:
        problem = ""
        for _ in range(TURNS):
            # The repair turn does not quote the invalid reply, which may repeat instructions from the answer.
            prompt = await prepared.prompt(problem)
            reply = await client.call(prompt, prepared.schema, prepared.parameters, budget, usage)
            try:
                return outcome_from_reply(reply, prepared.grading.rubric, prompt.verdict_id)
            except InvalidVerdictError as invalid:
                problem = str(invalid)
                usage.last_problem = problem
        return no_verdict(problem, reply.model)

    def _joined(self) -> None:
        self.statistics.joined += 1
        CACHE.series("joined").inc()

    def _missed(self) -> None:
        self.statistics.misses += 1
        CACHE.series("miss").inc()

    def _replayed(self, prepared: PreparedGrading) -> Outcome:
        grading = prepared.grading
        record = self._recording.find(prepared.key) if self._recording else None
        outcome = None if record is None else outcome_from_record(record, grading.rubric)
        if outcome is None:
            message = f"the recording holds no verdict of {grading.judge.identity} on this answer"
            return Outcome(Status.UNAVAILABLE, reason="not_recorded", message=message)
        return outcome


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of comparing two answers in both orders.

    Args:
        winner: "a", "b" or "tie"; empty if a verdict is missing.
        flipped: Whether the two orders disagree.
        outcomes: The outcome with A shown first, and with B shown first.
    """

    winner: str
    flipped: bool
    outcomes: tuple[Outcome, Outcome]


async def compare_answers(grader: Grader, grading: Grading) -> Comparison:
    """Return which of two answers is better; an answer wins only if it does so in both orders.

    Args:
        grader: The grader.
        grading: The request, with A as the first answer and B as the second.
    """
    material = grading.material
    assert material.second is not None
    swapped = dataclasses.replace(material, answer=material.second, second=material.answer)
    async with asyncio.TaskGroup() as both:
        shown = both.create_task(grader.grade(grading))
        other = both.create_task(grader.grade(dataclasses.replace(grading, material=swapped)))
    outcomes = (shown.result(), other.result())
    first = _winner(outcomes[0], {"first": "a", "second": "b", "tie": "tie"})
    second = _winner(outcomes[1], {"first": "b", "second": "a", "tie": "tie"})
    if not first or not second:
        return Comparison("", flipped=False, outcomes=outcomes)
    return Comparison(first if first == second else "tie", flipped=first != second, outcomes=outcomes)


def _winner(outcome: Outcome, names: dict[str, str]) -> str:
    return names[outcome.verdict.winner] if outcome.verdict is not None else ""
