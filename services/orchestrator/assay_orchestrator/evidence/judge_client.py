"""The orchestrator's client of the judge: the verdicts of one judge of a run, and when to stop asking for them.

A problem of one answer (no valid verdict, a request that the judge does not accept) is that row's error. A problem of
all answers (a judge that cannot be reached, refuses every request, or must not spend more) stops the judging of the
run: its rows stay without a result, and their answers are stored until the run is resumed.

Some failures, such as a timeout, may be either. Then the judge is asked about a plain answer of our own. If it judges
that, the failure was the answer's.

Verdicts of a batch are ordered first; until a verdict arrives, its row waits. A refused order of a batch does not keep
the others from being fetched. The judge keeps an outcome until its row is stored: in one round of asking, a row gets
the same outcome however often it asks. A resumed run or a retried row starts a later round, which orders missing
verdicts again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc

from assay.errors import InvalidInputError, OverloadedError, SetupError, StorageError, UnavailableError, WrongStateError
from assay.identity.quotas import NANO
from assay.judge.v1 import judge_pb2
from assay.judging.rubric_list import list_rubrics
from assay.model.answers.agent_response import clean_text
from assay.rpc.status import from_rpc_error
from assay.telemetry.context import fields
from assay.wire.judging import JUDGE_MODEL
from assay_orchestrator.budgets.budget_store import BudgetExhaustedError
from assay_orchestrator.budgets.run_budget import RunBudget
from assay_orchestrator.evidence.verdict_wire import (
    NotYetError,
    RubricUse,
    check_use,
    evidence_of,
    failed_evidence,
    grade_request,
    own_rubric,
    rubric_use,
)
from assay_orchestrator.instruments import count_verdict
from assay_orchestrator.store.teams.allotments import NOTHING, Amount

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from typing import TypeVar

    from assay.errors import AssayError
    from assay.judge.v1.judge_pb2_grpc import JudgeServiceAsyncStub
    from assay.metrics.core.score import JudgeEvidence
    from assay.model.answers.agent_response import AgentResponse
    from assay.model.run import JudgeModel, JudgeSpec
    from assay_orchestrator.evidence.verdict_wire import JudgedRow, MetricRubric

    T = TypeVar("T")

_QUALITY = "quality"
_SPARE_S = 5.0
_PREFLIGHT_S = 15.0
_LONGEST_PAUSE_S = 5.0
_MAX_MESSAGE_CHARS = 400

_OF_THE_RUN = frozenset({"judge_not_configured", "judge_denied", "spend_cap_reached", "price_unknown"})
"""Reasons that make every verdict of the run unavailable."""

_EITHER = frozenset({"judge_unavailable", "judge_failed", "rate_limited", "deadline_exceeded", "retry_budget_spent"})
"""Reasons that may lie in the answer, or in the judge whatever the answer."""

_OF_A_BATCH = frozenset({"batch_cancelled", "batch_failed", "allowance_too_small"})
"""Reasons of a whole batch, which say nothing about the answer: a resumed run orders the verdict again."""

_PENDING = "batch_pending"
_REFUSED = "judge_refuses_request"
_TOO_SMALL = "allowance_too_small"
_FULL_S = 30.0
_LOOKS, _LOOK_S = 10, 0.2  # for an account whose calls were cancelled

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class JudgeStatus:
    """Whether a run is judged, across all of its judges.

    Args:
        trouble: Why verdicts are unavailable, as a sentence; empty while they are available.
        stops: Whether no judge is asked any more for that reason.
    """

    trouble: str = ""
    stops: bool = False


class _NotJudgedError(Exception):
    """There is currently no verdict."""


@dataclass(frozen=True, slots=True)
class RunAccount:
    """The account that pays for verdicts.

    Args:
        run_id: The run.
        scope: The name by which the judge knows the team; empty without identities.
        budget: The run's share of the team's money.
        spend_cap_nano_usd: The run's spend cap in billionths of a dollar; None for none.
        needs_spec: Whether a client that resumes the run must name its spec, for metrics in Python code.
        is_hosted: Whether it must also name it while the agent has questions left.
    """

    run_id: str
    scope: str = ""
    budget: RunBudget = field(default_factory=RunBudget)
    spend_cap_nano_usd: int | None = None
    needs_spec: bool = False
    is_hosted: bool = False


class RunJudge:
    """Asks one model for verdicts of one run.

    Args:
        stub: The judge service.
        judge: The judge.
        member: The model, which is a member of the judge.
        rubrics: The rubrics by the names of the judge's verdicts.
        account: The account that pays.
        place: Its place among the members of all judges of the run.
        ask_round: The round of asking: how many times the run was paused before.
        patience_s: How long to retry an unreachable judge service, in seconds.
        pausing: Set when no more questions may be asked.
        status: Records what stops the judging.
    """

    def __init__(
        self,
        stub: JudgeServiceAsyncStub,
        judge: JudgeSpec,
        member: JudgeModel,
        rubrics: Mapping[str, MetricRubric],
        account: RunAccount,
        *,
        place: int,
        ask_round: int,
        patience_s: float,
        pausing: asyncio.Event,
        status: JudgeStatus,
    ) -> None:
        self._place = place
        self._round = ask_round
        self._status = status
        self._stub = stub
        self._judge = judge
        self._member = member
        self._rubrics = rubrics
        self._account = account
        self._patience_s = patience_s
        self._pausing = pausing
        self._slots = asyncio.Semaphore(judge.concurrency)
        self._heard_at = 0.0
        self._has_judged = False
        self._most_tokens = 0
        self._uses: dict[str, asyncio.Future[RubricUse]] = {}
        self._proof: asyncio.Future[bool] | None = None

    @property
    def batches(self) -> bool:
        """Whether its verdicts are ordered, and arrive hours later."""
        return self._judge.batch

    async def aclose(self) -> None:
        """Cancel the calls in flight."""
        waiting: list[asyncio.Future[Any]] = [*self._uses.values()]
        if self._proof is not None:
            waiting.append(self._proof)
        for future in waiting:
            future.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    async def preflight(self) -> None:
        """Check whether the judge's provider refuses every call; if so, the judging of the run stops.

        Temporary problems, such as a judge service that is starting, are left to the first verdict.
        """
        # Every request has a question, although this one is not graded.
        request = judge_pb2.GradeRequest(rubric=_QUALITY, question="?", preflight=True)
        self._sign(request, at_once=True)
        request.timeout_ms = round(_PREFLIGHT_S * 1000)
        try:
            verdict = (await self._graded(request, _PREFLIGHT_S + _SPARE_S)).verdict
        except InvalidInputError as problem:
            if any(entry.field.startswith("judge") for entry in problem.problems):
                self._stopped(problem.message, nothing_asked=True)
        except (SetupError, WrongStateError) as problem:
            self._stopped(problem.message, nothing_asked=True)
        except (_NotJudgedError, _FailedError):
            return
        else:
            if verdict.reason in _OF_THE_RUN:
                self._stopped(verdict.message, verdict.reason, nothing_asked=True)

    async def order(self, row: JudgedRow, response: AgentResponse, rubric: str) -> NotYetError | None:
        """Order a verdict of a batch; return when to ask for it, or None if it can be requested at once."""
        async with self._slots:
            try:
                use = check_use(row.case, rubric) or await self._use(rubric)
                request = self._request(row, response, use)
                if request is None:
                    return None
                self._sign(request)
                return _not_yet((await self._graded(request, _SPARE_S)).verdict)
            except NotYetError as pending:
                return pending
            except (_NotJudgedError, _FailedError, InvalidInputError, SetupError, WrongStateError):
                return None  # requesting the verdict shows it

    async def evidence(
        self, row: JudgedRow, response: AgentResponse, rubric: str
    ) -> JudgeEvidence | NotYetError | None:
        """Return a verdict on an answer; None if it is currently unavailable, or when to ask for it again.

        Args:
            row: The row.
            response: The judged answer.
            rubric: The name under which a metric looks up the verdict.
        """
        async with self._slots:
            try:
                use = check_use(row.case, rubric) or await self._use(rubric)
                request = self._request(row, response, use)
                if request is None:
                    message = "question, answer, reference and passages are too long"
                    return failed_evidence("too_long_to_judge", message, self._member, use)
                return await self._verdict(request, use)
            except _NotJudgedError:
                return None
            except NotYetError as pending:
                return pending

    async def _verdict(self, request: judge_pb2.GradeRequest, use: RubricUse) -> JudgeEvidence:
        evidence = await self._asked(request, use)
        if evidence.error in _EITHER and not self._judge.batch:  # a verdict of a batch would be ordered and wait again
            await self._prove_that_it_judges(evidence)
            evidence = await self._asked(request, use)
        # A judge that has judged an answer of the run does not refuse all of them.
        is_suspect = evidence.error in _EITHER and not (self._judge.batch and self._has_judged)
        if is_suspect or (evidence.error == _REFUSED and not self._has_judged):
            await self._prove_that_it_judges(evidence)
        return evidence

    async def _asked(self, request: judge_pb2.GradeRequest, use: RubricUse, *, at_once: bool = False) -> JudgeEvidence:
        """Return the outcome of one request.

        Raises:
            _NotJudgedError: No request of the run would get a verdict.
            NotYetError: It is ordered.
        """
        self._sign(request, at_once=at_once)
        timeout_s = request.timeout_ms / 1000 + _SPARE_S
        try:
            verdict = (await self._graded(request, timeout_s)).verdict
        except InvalidInputError as problem:
            if any(entry.field.startswith(("judge", "rubric", "batch")) for entry in problem.problems):
                raise self._stopped(problem.message) from None
            return failed_evidence(_REFUSED, problem.message, self._member, use)
        except (SetupError, WrongStateError) as problem:
            raise self._stopped(problem.message) from None
        except _FailedError as failure:
            return failed_evidence("judge_failed", failure.problem.message, self._member, use)
        if (pending := _not_yet(verdict)) is not None:
            raise pending
        if verdict.reason in _OF_THE_RUN | _OF_A_BATCH:
            raise self._stopped(verdict.message, verdict.reason, for_all=not request.batch)
        if not verdict.cached:
            count_verdict(fields().get("team", ""), verdict.calls)
        self._has_judged |= verdict.status != judge_pb2.VERDICT_STATUS_UNAVAILABLE and verdict.call_count > 0
        return evidence_of(verdict, self._member, use)

    async def _graded(self, request: judge_pb2.GradeRequest, timeout_s: float) -> judge_pb2.GradeResponse:
        """Return the answer to a request, repeated with more money if the run's allowance is too small for it.

        Raises:
            _NotJudgedError: As in `_called`, or the team has too little money left.
            NotYetError, _FailedError, AssayError: As in `_called`.
        """
        budget = self._account.budget.judge
        while True:
            try:
                allowance = await budget.allowance()
                if allowance is not None:
                    request.allowance_nano_usd = allowance
                answer = await self._within_tokens(request, timeout_s)
                verdict = answer.verdict
                # An order that could not be paid has its outcome, whatever the current allowance.
                if verdict.reason != _TOO_SMALL or verdict.batched:
                    return answer
                self._most_tokens = max(self._most_tokens, verdict.needed_tokens)
                if allowance is not None and verdict.needed_nano_usd:
                    await budget.grow(allowance, verdict.needed_nano_usd)
            except BudgetExhaustedError:
                raise _NotJudgedError from None

    async def _within_tokens(self, request: judge_pb2.GradeRequest, timeout_s: float) -> judge_pb2.GradeResponse:
        """Return the answer to a request, with its tokens reserved if the team's tokens are limited.

        Tokens of a batch are not reserved: its verdicts arrive when no session of the run holds a reservation.

        Raises:
            BudgetExhaustedError: The team has too few tokens left.
            _NotJudgedError, NotYetError, _FailedError, AssayError: As in `_called`.
        """
        budget = self._account.budget
        if not budget.limits_tokens or request.batch:
            return await self._accounted(request, timeout_s)
        budget.meters_verdict_tokens = True
        request.token_allowance = most = self._most_tokens
        with await budget.reserve(lambda: Amount(tokens=most)) as reservation:
            try:
                answer = await self._accounted(request, timeout_s)
            except _NotJudgedError:  # the service was not reached, or its process ended with all its work
                reservation.cost = NOTHING
                raise
            reservation.cost = Amount(tokens=answer.verdict.charged_tokens)
            return answer

    async def _accounted(self, request: judge_pb2.GradeRequest, timeout_s: float) -> judge_pb2.GradeResponse:
        """Return the answer to a request, and record its figures of the run's account."""
        budget = self._account.budget.judge
        budget.began()
        spent, reserved = None, 0
        try:
            answer = await self._called(lambda: self._stub.Grade(request, timeout=timeout_s), is_once=request.preflight)
            spent, reserved = _account_in(answer)
            return answer
        finally:
            budget.ended(spent, reserved)

    async def settle(self) -> None:
        """Read the run's spending once its calls have ended, to return the rest."""
        budget = self._account.budget.judge
        request = judge_pb2.GradeRequest(rubric=_QUALITY, question="?", answer="!", validate_only=True)
        self._sign(request)
        with contextlib.suppress(grpc.aio.AioRpcError):  # its reservation is free when its lease expires
            for _ in range(_LOOKS):
                spent, reserved = _account_in(await self._stub.Grade(request, timeout=_SPARE_S))
                budget.observe(spent, reserved)
                if not reserved or self._judge.batch:
                    return
                await asyncio.sleep(_LOOK_S)

    def _request(self, row: JudgedRow, response: AgentResponse, use: RubricUse) -> judge_pb2.GradeRequest | None:
        request = grade_request(row, response, use, self._judge.sample_offset)
        if request is not None:
            request.row, request.round = row.name(self._place), self._round + row.retries
        return request

    def _sign(self, request: judge_pb2.GradeRequest, *, at_once: bool = False) -> None:
        """Add the judge, the account and the time limit to a request."""
        judge = self._judge
        request.judge.CopyFrom(JUDGE_MODEL.to_wire(self._member))
        request.run_id, request.scope = self._account.run_id, self._account.scope
        request.batch = judge.batch and not at_once
        request.timeout_ms = 1 if request.batch else round(judge.timeout_s * 1000)
        if self._account.spend_cap_nano_usd is not None:
            request.spend_cap_nano_usd = self._account.spend_cap_nano_usd

    async def _called(self, call: Callable[[], Awaitable[T]], *, is_once: bool = False) -> T:
        """Return the judge service's answer; retry if it is unreachable or busy, unless `is_once`.

        Raises:
            _NotJudgedError: It cannot be reached, or the run is being paused.
            NotYetError: It accepts no more orders of batches for now.
            _FailedError: It failed at this request.
            AssayError: It refuses the request.
        """
        loop = asyncio.get_running_loop()
        begun, pause_s = loop.time(), 0.1
        while True:
            if self._status.stops or self._pausing.is_set():
                raise _NotJudgedError
            try:
                answer = await call()
            except grpc.aio.AioRpcError as error:
                problem = from_rpc_error(error)
                if is_once and isinstance(problem, OverloadedError | UnavailableError):
                    raise _FailedError(problem) from None
                if isinstance(problem, OverloadedError):
                    self._heard_at = loop.time()  # the service is reachable
                    if self._judge.batch:
                        raise NotYetError(max(problem.retry_after_s, _FULL_S)) from None
                    pause_s = max(pause_s, problem.retry_after_s)
                elif not isinstance(problem, UnavailableError):
                    self._heard_at = loop.time()
                    if isinstance(problem, InvalidInputError | SetupError | WrongStateError):
                        raise problem from None
                    raise _FailedError(problem) from None
                elif loop.time() - max(begun, self._heard_at) >= self._patience_s:
                    is_there = isinstance(problem, StorageError)  # it answers, but cannot store what it is asked for
                    why = problem.message if is_there else f"the judge service cannot be reached: {problem.message}"
                    raise self._stopped(why) from None
            else:
                self._heard_at = loop.time()
                return answer
            await self._wait(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads callers, no secret
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    async def _wait(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._pausing.wait()

    def _stopped(
        self, message: str, reason: str = "", *, for_all: bool = True, nothing_asked: bool = False
    ) -> _NotJudgedError:
        """Record why verdicts of the run are unavailable, or this one; the first reason is kept."""
        status = self._status
        status.stops |= for_all
        if not status.trouble:
            message = clean_text(message).replace("\n", "; ")[:_MAX_MESSAGE_CHARS].rstrip(".")
            account = self._account
            needs_spec = account.needs_spec or (nothing_asked and account.is_hosted)
            command = f"`assay runs resume {account.run_id}{' --spec SPEC' if needs_spec else ''}"
            update = f"`assay runs update {account.run_id}"
            status.trouble = _sentence(message, reason, self._member, account.spend_cap_nano_usd, (command, update))
            _log.warning("judging stopped: run=%s: %s", self._account.run_id, status.trouble)
        return _NotJudgedError()

    async def _prove_that_it_judges(self, failed: JudgeEvidence) -> None:
        """Return if the judge has a verdict on a plain answer; concurrent callers share the proof.

        Raises:
            _NotJudgedError: It has none: the failure was not the answer's fault.
        """
        if self._proof is None or self._proof.done():
            self._proof = asyncio.ensure_future(self._judges())
        if not await asyncio.shield(self._proof):
            raise self._stopped(failed.message or failed.error, failed.error, for_all=not self._judge.batch)

    async def _judges(self) -> bool:
        """Return whether there is a verdict, even a wrong one, on a plain answer."""
        request = judge_pb2.GradeRequest(
            rubric=_QUALITY,
            question="How much is two and two?",
            answer="Four.",
            reference="Four.",
            # A stored verdict would prove nothing.
            sample_index=random.randrange(2**31, 2**32),  # noqa: S311 - no secret
        )
        try:
            evidence = await self._asked(request, RubricUse(_QUALITY), at_once=True)
        except (_NotJudgedError, NotYetError):
            return False
        return evidence.error not in _EITHER | {_REFUSED}

    async def _use(self, rubric: str) -> RubricUse:
        """Return the rubric for a verdict; concurrent callers share the request for it."""
        of_metric = self._rubrics[rubric]
        if of_metric.is_default:
            return RubricUse(of_metric.name)
        if of_metric.text:
            return own_rubric(of_metric.text)
        pending = self._uses.get(rubric)
        if pending is None or (pending.done() and (pending.cancelled() or pending.exception() is not None)):
            pending = self._uses[rubric] = asyncio.ensure_future(self._listed(of_metric.name))
        return await asyncio.shield(pending)

    async def _listed(self, name: str) -> RubricUse:
        """Return a rubric of the judge service."""
        try:
            listed = await self._called(lambda: list_rubrics(self._stub))
        except (_FailedError, InvalidInputError, SetupError, WrongStateError) as problem:
            raise self._stopped(f"its rubrics cannot be listed: {problem}") from None
        rubrics = {rubric.name: rubric for rubric in listed if not rubric.compares}
        if name not in rubrics:
            raise self._stopped(f"it has no rubric {name!r}, only {', '.join(sorted(rubrics))}")
        return rubric_use(rubrics[name])


class _FailedError(Exception):
    """The judge service failed at a request."""

    def __init__(self, problem: AssayError) -> None:
        super().__init__(problem.message)
        self.problem = problem


def _not_yet(verdict: judge_pb2.Verdict) -> NotYetError | None:
    return NotYetError(verdict.retry_after_ms / 1000) if verdict.reason == _PENDING else None


def _account_in(answer: judge_pb2.GradeResponse) -> tuple[int, int]:
    """Return a run's spending and reservations, in billionths of a dollar."""
    return answer.spending.spent_nano_usd, answer.spending.reserved_nano_usd


def _sentence(message: str, reason: str, judge: JudgeModel, cap: int | None, commands: tuple[str, str]) -> str:
    """Return why the judging stopped, and what resumes it; the commands begin a resume and a change of the run."""
    command, update = commands
    if reason == "spend_cap_reached":
        cap_reached = (
            f"the spend cap of {cap / NANO:g} dollars is reached"
            if cap is not None
            else "the judge service's cap is reached"
        )
        return f"{cap_reached} ({message}); raise it: {update} --spend-cap USD`, then {command}`"
    if reason == "judge_denied":
        return f"{judge.identity}: {message}. Then: {command}`"
    if reason == "price_unknown":
        return f"{message}; remove the cap: {update} --spend-cap none`, then {command}`"
    return f"the judge {judge.identity} gives none ({message}); once it does: {command}`"
