"""One shard's pipeline: dataset, agent, (answer stored), evidence, metrics, result stored."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from assay.errors import AssayError
from assay.metrics.core.row_verdict import row_message, row_verdict
from assay.metrics.core.score import EmbeddingEvidence, JudgeEvidence, Metric, keeps_vector, made_advisory
from assay.model.answers.agent_response import AgentErrorKind, AgentRequest, AgentResponse, error_response
from assay.model.answers.approvals import remaining_approvals
from assay.model.answers.response_limits import MAX_ANSWER_BYTES
from assay.model.limits import MAX_BYTES_PER_CHAR
from assay.model.run import RowResult
from assay.process.failpoints import failpoint
from assay.specs.judging import NO_JUDGE
from assay.storage.texts import json_text
from assay.storage.times import now
from assay.telemetry.context import added_fields
from assay.telemetry.tracing import traceparent
from assay.wire.agent import response_to_wire
from assay_orchestrator.agents.protocol import NotAskedError
from assay_orchestrator.evidence.verdict_wire import JudgedRow, NotYetError
from assay_orchestrator.pipeline.canary_rows import CanaryRows
from assay_orchestrator.pipeline.conversations import history_before, scored_row, scored_turns
from assay_orchestrator.pipeline.row_embeddings import gather_embeddings, prefetch
from assay_orchestrator.store.rows import attempts, results
from assay_orchestrator.store.rows.attempts import RowAttempts
from assay_orchestrator.store.rows.results import AnswerRecord
from assay_orchestrator.store.runs import datasets

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from assay.metrics.core.embedding import EmbeddingSettings
    from assay.model.case import Case
    from assay.model.metric_call import MetricOutcome
    from assay_orchestrator.evidence.run_judges import RunJudges
    from assay_orchestrator.pipeline.conversations import ScoredTurn
    from assay_orchestrator.pipeline.session import Session
    from assay_orchestrator.pipeline.storage_pauses import RunStore
    from assay_orchestrator.store.rows.results import RowKey
    from assay_orchestrator.store.shards.shards import Shard

_CONCURRENT_POLLS = 16
_MAX_PENDING_POLLS = 64
"""How many rows may lack a verdict before the shard stops polling until the next timer."""

_Evidence: TypeAlias = "tuple[Mapping[EmbeddingSettings, EmbeddingEvidence], Mapping[str, JudgeEvidence]]"
_Outcomes: TypeAlias = "Mapping[str, MetricOutcome]"
_UNJUDGED = JudgeEvidence(None, skipped="judge_not_configured", message=NO_JUDGE)


class _Clock:
    """When a row began, and how long it has taken; excludes the wait for a free slot."""

    def __init__(self) -> None:
        self._started_at = ""
        self._start = 0.0

    def start(self) -> None:
        if not self._started_at:
            self._started_at, self._start = now(), time.perf_counter()

    @property
    def started_at(self) -> str:
        return self._started_at

    @property
    def duration_ms(self) -> float:
        return (time.perf_counter() - self._start) * 1000


@dataclass(frozen=True, slots=True)
class _Work:
    case: Case
    case_index: int
    repeat: int
    stored: Sequence[AgentResponse]
    attempts: RowAttempts
    problem: str = ""
    clock: _Clock = field(default_factory=_Clock)

    @property
    def has_begun(self) -> bool:
        """Whether the agent has answered one of its questions: a run that stops early finishes such a row."""
        return bool(self.stored) or self.attempts.retried > 0


class ShardRunner:
    """Takes every unfinished row of a shard to its result.

    Memory is O(concurrency): a row enters only when one of its run's slots is free.

    Args:
        store: The store of datasets, answers and results.
        session: What the run's shards share in this process.
        shard: The shard, with the epoch under which its rows are stored.
        is_ordered: Whether all its verdicts were ordered earlier. A few missing verdicts then suggest that the others
            are missing too.
    """

    def __init__(self, store: RunStore, session: Session, shard: Shard, *, is_ordered: bool = False) -> None:
        self._store = store
        self._session = session
        self._context = session.context
        self._shard = shard
        self._journaled: set[tuple[int, int]] = set()
        self._unjudged = 0
        self._pending = 0
        self._polling = asyncio.Semaphore(_CONCURRENT_POLLS) if is_ordered else None
        self.has_judged = False
        """Whether a row received its verdicts here."""
        self.repoll_after_s: float | None = None
        """In how many seconds to poll ordered verdicts again; None if no row awaits any."""
        self._canaries: CanaryRows | None = None

    @property
    def may_stop_early(self) -> bool:
        """Whether the run may have stopped early, so that remaining rows must not be asked."""
        return self._context.stop_look is not None

    @property
    def trouble(self) -> str:
        """Why answered rows remain that await a verdict; empty if there are none, or if other rows remain too."""
        judge = self._context.judge
        return judge.trouble if judge is not None and self._unjudged and not self._context.pausing.is_set() else ""

    @property
    def has_ordered(self) -> bool:
        """Whether all remaining rows wait only for ordered verdicts."""
        return self.repoll_after_s is not None and not self._unjudged and not self._context.pausing.is_set()

    async def run(self) -> None:
        """Finish every row; while the run is being paused, only those whose answer has arrived or is in flight.

        Raises:
            StorageError: Rows cannot be stored, and the process stops or the run was cancelled.
            FencedError: Another worker has the shard.
        """
        judge = self._context.judge
        if judge is not None and await judge.is_refused():
            self._unjudged += 1  # its rows remain unasked
            return
        suspects: list[_Work] = []
        try:
            async with asyncio.TaskGroup() as rows:
                for work in await self._unfinished():
                    if self._context.stopped.is_set() and not work.has_begun:
                        continue
                    if work.attempts.interrupted:
                        suspects.append(work)
                        continue
                    await self._context.turns.take()
                    await self._session.enter()
                    if self._context.pausing.is_set():
                        self._session.leave()
                        break
                    rows.create_task(self._finish_beside(work))
            # A row that was in progress when the process was killed may have killed it: it runs last and alone, so
            # that it takes no other row of the run with it.
            for work in suspects:
                async with self._session.alone():
                    await self._finish(work)
        except BaseExceptionGroup as group:
            raise _first(group) from group

    async def _unfinished(self) -> Iterator[_Work]:
        context, first, count = self._context, self._shard.first_case, self._shard.case_count
        source = context.source_run_id
        cases, finished, stored, earlier, scored_before = await self._store.read(
            lambda connection: (
                datasets.read_cases(connection, context.run_id, first, count),
                results.finished_keys(connection, context.run_id, first, count),
                results.stored_answers(connection, context.run_id, first, count),
                attempts.count_attempts(connection, context.run_id, first, count),
                results.stored_answers(connection, source, first, count) if source else {},
            )
        )
        if context.judge is not None:
            decoded = await asyncio.to_thread(
                lambda: [datasets.stored_case(*stored_case).case for stored_case in cases]
            )
            self._canaries = CanaryRows(
                context.judge, context.metrics, decoded, first=first, case_count=context.case_count
            )
        return self._works(cases, finished, stored, earlier, scored_before)

    def _works(
        self,
        cases: Sequence[tuple[str, str]],
        finished: Container[RowKey],
        stored: Mapping[RowKey, Sequence[AgentResponse]],
        earlier: Mapping[RowKey, RowAttempts],
        scored_before: Mapping[RowKey, Sequence[AgentResponse]],
    ) -> Iterator[_Work]:
        """Yield the rows without a result. Cases are decoded one by one: decoding all at once delays others."""
        source, repeats = self._context.source_run_id, range(1, self._context.repeats + 1)
        for case_index, (case_id, text) in enumerate(cases, self._shard.first_case):
            keys = [key for repeat in repeats if (key := (case_index, repeat)) not in finished]
            if keys:
                stored_case = datasets.stored_case(case_id, text)
                case = stored_case.case
                if source:
                    case = rescored_case(
                        case, source, [scored_before.get((case_index, repeat), ()) for repeat in repeats]
                    )
                for key in keys:
                    yield _Work(case, *key, stored.get(key, ()), earlier.get(key, RowAttempts()), stored_case.problem)

    async def _finish_beside(self, work: _Work) -> None:
        try:
            await self._finish(work)
        finally:
            self._session.leave()

    async def _finish(self, work: _Work) -> None:
        context = self._context
        fields = added_fields(run=context.run_id, case=work.case.case_id, team=context.team)
        with fields, context.traces.of(work.case_index, work.repeat):
            await self._finish_row(work)

    async def _finish_row(self, work: _Work) -> None:
        try:
            answers, fresh = await self._converse(work)
            work.clock.start()  # of a row whose answer was stored earlier
            await self._journal(work)
            turns = scored_turns(work.case, answers, self._context.metrics, self._context.turn_score_of(work.case))
            evidence: list[_Evidence] | None = [({}, {})] * len(turns)
            calls_functions = self._context.functions is not None
            if calls_functions or any(turn.embeddings or turn.rubrics for turn in turns):  # most rows need no evidence
                has_evidence = self._context.judge is not None or any(turn.embeddings for turn in turns)
                if fresh is not None and (calls_functions or has_evidence):
                    # Durable before any further work is paid for the row.
                    await self._put(work, fresh, None)
                    fresh = None
                await self._order(work, turns)
                evidence = await self._evidence(work, turns)
            if evidence is None:
                self._unjudged += 1
                return
            self.has_judged |= any(verdicts for _, verdicts in evidence)
            # Last, so that no function is called for a row that still waits for its verdicts.
            outcomes = await self._outcomes(work, turns)
            result = await self._result(work, answers, turns, evidence, outcomes)
            if evidence[-1][1] and self._canaries is not None:
                result = await self._canaries.observed(result, _judged(work, turns[-1]))
            await self._put(work, fresh, result)
        except NotYetError as pending:
            self._pending += 1
            self.repoll_after_s = min(pending.after_s, self.repoll_after_s or pending.after_s)
        except NotAskedError:
            pass  # the run is being paused or has stopped early: stored parts of this row remain

    async def _put(self, work: _Work, answer: AnswerRecord | None, result: RowResult | None) -> None:
        await self._session.flusher.put(self._shard, answer, result)
        if self._context.host is not None:
            # The result contains the functions' outcomes for every turn.
            turns = range(len(work.case.turns)) if answer is None or result is not None else [answer.turn_index]
            self._context.host.stored([self._key(work, turn) for turn in turns])

    async def _converse(self, work: _Work) -> tuple[Sequence[AgentResponse], AnswerRecord | None]:
        """Return the answers, one per turn, and the record of the last if it is not stored yet.

        Turns are asked one after the other. A turn whose agent fails ends the conversation, and its error is the case's
        answer.

        Raises:
            NotAskedError: The run is being paused before all turns were asked, or has stopped before the first was.
        """
        turns, answers = work.case.turns, list(work.stored)
        if work.problem:
            return self._given_up(work, _unreadable_case(work.problem))
        if work.attempts.interrupted >= self._context.max_attempts:
            return self._given_up(work, _killed_too_often(work.attempts.interrupted))
        fresh: AnswerRecord | None = None
        while len(answers) < len(turns) and not (answers and answers[-1].is_failed):
            if fresh is not None:
                await self._put(work, fresh, None)
            async with self._session.asking:
                if self._context.pausing.is_set():
                    raise NotAskedError
                if not answers and not work.has_begun and await self._session.has_stopped_early():
                    raise NotAskedError
                await self._journal(work)
                work.clock.start()
                prefetch(self._context, work.case, len(answers))
                response = await self._ask(work, answers)
            fresh = AnswerRecord(work.case_index, work.repeat, len(answers), response)
            answers.append(response)
        return answers, fresh

    def _given_up(self, work: _Work, response: AgentResponse) -> tuple[Sequence[AgentResponse], AnswerRecord | None]:
        if len(work.stored) == len(work.case.turns):
            return [response], None
        return [response], AnswerRecord(work.case_index, work.repeat, len(work.stored), response)

    async def _journal(self, work: _Work) -> None:
        """Journal the start of a row, if a worker of the shard was lost."""
        key = (work.case_index, work.repeat)
        if (
            not self._shard.journaled
            or key in self._journaled
            or work.attempts.interrupted >= self._context.max_attempts
        ):
            return
        self._journaled.add(key)
        await self._session.flusher.journal(self._shard, (*key, work.attempts.retried + work.attempts.interrupted))

    def _row_key(self, work: _Work) -> str:
        row = f"{self._context.run_id}/{work.case_index}/{work.repeat}"
        # After a retry it is a new question to a server, or a host, that remembers its answers.
        return f"{row}@{work.attempts.retried}" if work.attempts.retried else row

    def _key(self, work: _Work, turn_index: int) -> str:
        """Return the idempotency key of a turn."""
        row = self._row_key(work)
        return row if len(work.case.turns) == 1 else f"{row}/{turn_index}"

    def _question(self, work: _Work, earlier: Sequence[AgentResponse]) -> AgentRequest:
        """Return the question of the turn after the earlier answers."""
        context, case, turn_index = self._context, work.case, len(earlier)
        key = self._key(work, turn_index)
        return AgentRequest(
            request_id=f"{key}#0",
            run_id=context.run_id,
            case_id=case.case_id,
            input=case.turns[turn_index].input,
            repeat=work.repeat,
            turn_index=turn_index,
            session_id=self._row_key(work),
            idempotency_key=key,
            history=history_before(case, earlier),
            variables=case.variables,
            parameters=case.parameters,
            timeout_s=context.timeout_s,
            turn_count=len(case.turns),
            traceparent=traceparent(),
            approvals=remaining_approvals(
                case.approvals or context.approvals, [stop for answer in earlier for stop in answer.interrupts]
            ),
        )

    async def _ask(self, work: _Work, earlier: Sequence[AgentResponse]) -> AgentResponse:
        context = self._context
        response = _measured(await context.agent.answer(self._question(work, earlier), work.case, self._may_ask))
        failpoint("agent.after_answer")
        context.observed.answered(response)
        attempt_count = work.attempts.retried + 1
        if response.error is not None and 1 < attempt_count >= context.max_attempts:
            return _dead_letter(response, attempt_count)
        return response

    async def _may_ask(self) -> None:
        await self._session.require(self._shard)
        failpoint("agent.before_call")

    async def _evidence(self, work: _Work, turns: Sequence[ScoredTurn]) -> list[_Evidence] | None:
        """Return embeddings and verdicts of each turn; None if the row must wait for verdicts."""
        # An evidence task that ends early leaves no other running unattended.
        gathering = (self._evidence_of(work, turn) for turn in turns)
        gathered = []
        for outcome in await asyncio.gather(*gathering, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
            gathered.append(outcome)
        complete = [outcome for outcome in gathered if outcome is not None]
        return complete if len(complete) == len(turns) else None

    async def _evidence_of(self, work: _Work, turn: ScoredTurn) -> _Evidence | None:
        embeddings, verdicts = await asyncio.gather(gather_embeddings(self._context, turn), self._judge(work, turn))
        return None if verdicts is None else (embeddings, verdicts)

    async def _order(self, work: _Work, turns: Sequence[ScoredTurn]) -> None:
        """Order all verdicts of a row if they come in batches; nothing else happens before they arrive.

        Raises:
            NotYetError: They have not arrived.
        """
        judge = self._context.judge
        if judge is None or not judge.batches or not turns[-1].rubrics:
            return
        if self._polling is not None:
            async with self._polling:
                if self._pending >= _MAX_PENDING_POLLS and not self.has_judged and self.repoll_after_s is not None:
                    raise NotYetError(self.repoll_after_s)
                await self._order_now(judge, work, turns)
        else:
            await self._order_now(judge, work, turns)

    async def _order_now(self, judge: RunJudges, work: _Work, turns: Sequence[ScoredTurn]) -> None:
        judged = [(_judged(work, turn), turn.response, turn.rubrics) for turn in turns if turn.rubrics]
        beside = self._canaries.beside(_judged(work, turns[-1])) if self._canaries is not None else []
        await self._session.require(self._shard)
        await judge.order([*judged, *beside])

    async def _judge(self, work: _Work, turn: ScoredTurn) -> Mapping[str, JudgeEvidence] | None:
        """Return the verdicts on an answer; None if it must wait for them."""
        judge = self._context.judge
        if not turn.rubrics or judge is None:
            return dict.fromkeys(turn.rubrics, _UNJUDGED)
        await self._session.require(self._shard)
        return await judge.gather(_judged(work, turn), turn.response, turn.rubrics)

    async def _outcomes(self, work: _Work, turns: Sequence[ScoredTurn]) -> Sequence[_Outcomes]:
        """Return the outcomes of the user's own metric functions for each turn."""
        if self._context.functions is None:
            return [{} for _ in turns]
        await self._session.require(self._shard)
        return await self._context.functions.outcomes(turns, lambda turn: self._question(work, turn.earlier))

    async def _result(
        self,
        work: _Work,
        answers: Sequence[AgentResponse],
        turns: Sequence[ScoredTurn],
        evidence: Sequence[_Evidence],
        outcomes: Sequence[_Outcomes],
    ) -> RowResult:
        turn_score = self._context.turn_score_of(work.case)
        row = scored_row(work.case, answers, turns, evidence, turn_score, outcomes)
        await self._context.turns.take()
        scores = made_advisory(await self._context.scorer.score(row), self._context.optional)
        # For watchers that receive answers; conversations contain more than that, so their watchers read the store.
        shown = _shown(work.case, row.response) if len(work.case.turns) == 1 else {}
        return RowResult(
            case_index=work.case_index,
            repeat=work.repeat,
            case_id=work.case.case_id,
            category=work.case.category,
            tags=work.case.tags,
            weight=work.case.weight,
            status=row.response.status,
            passed=row_verdict(row.response.status, scores),
            scores=scores,
            latency_ms=row.response.latency_ms,
            message=row_message(row.response, scores),
            answer_vector=_kept_vector(self._context.metrics, evidence[-1][0]),
            started_at=work.clock.started_at,
            duration_ms=work.clock.duration_ms,
            **shown,
        )


def _measured(response: AgentResponse) -> AgentResponse:
    """Return an answer; an answer too large for a message with its row fails only that row.

    Adapters limit the text. As JSON in a message, some texts are six times as long.
    """
    parts = (response.tool_calls, response.sources, response.retrieved, response.metadata, response.error, response.sql)
    is_plain = response.output is None and not any(parts)
    if is_plain and len(response.text) * MAX_BYTES_PER_CHAR <= MAX_ANSWER_BYTES:
        return response
    if response_to_wire(response).ByteSize() <= MAX_ANSWER_BYTES:
        return response
    message = f"the answer is larger than {MAX_ANSWER_BYTES // 1024**2} MiB as a message, with what JSON escapes"
    error = error_response(AgentErrorKind.TOO_LARGE, message)
    return dataclasses.replace(
        error, usage=response.usage, latency_ms=response.latency_ms, model=response.model, cold=response.cold
    )


def _shown(case: Case, response: AgentResponse) -> dict[str, Any]:
    """Return the fields of a row that its answer and its case fill, in the form read from the store."""
    (turn,) = case.turns
    return {
        "response": response,
        "input": turn.input or (json_text(case.variables) if case.variables else ""),
        "references": turn.references,
        "place": case.place,
        "expected": case.expects,
    }


def _judged(work: _Work, turn: ScoredTurn) -> JudgedRow:
    return JudgedRow(
        turn.case,
        turn.history,
        work.case_index,
        work.repeat,
        retries=work.attempts.retried,
        turn_index=turn.turn_index,
    )


def _kept_vector(metrics: Sequence[Metric], evidence: Mapping[EmbeddingSettings, EmbeddingEvidence]) -> bytes:
    """Return the answer's vector for the metric over rows that needs it; empty if none does or there is no vector."""
    for metric in metrics:
        embedding = evidence.get(metric.embedding) if metric.embedding is not None and keeps_vector(metric) else None
        if embedding is not None and embedding.answer is not None:
            return embedding.answer.astype("<f4").tobytes()
    return b""


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the error that ended the group: a known one if there is one, else the first."""
    leaves: list[BaseException] = []
    pending: list[BaseException] = [group]
    while pending:
        error = pending.pop()
        if isinstance(error, BaseExceptionGroup):
            pending.extend(reversed(error.exceptions))
        else:
            leaves.append(error)
    return next((leaf for leaf in leaves if isinstance(leaf, AssayError)), leaves[0])


def _killed_too_often(count: int) -> AgentResponse:
    """Return the answer of a row on which the orchestrator was killed in every allowed attempt."""
    return error_response(
        AgentErrorKind.DEAD_LETTER,
        f"the orchestrator was killed {count} times while it worked on this row, the last times on this row alone: it "
        "is not retried",
    )


def _dead_letter(response: AgentResponse, attempt_count: int) -> AgentResponse:
    """Return the failure of a row's last attempt as a dead letter."""
    error = response.error
    assert error is not None, "only failures are wrapped"
    last = error_response(
        AgentErrorKind.DEAD_LETTER,
        f"failed in {attempt_count} attempts; the last: {error.kind.value}: {error.message}",
        traceback=error.traceback,
    )
    return dataclasses.replace(response, error=last.error)


def _unreadable_case(problem: str) -> AgentResponse:
    """Return the answer of a row whose stored case cannot be read."""
    return error_response(
        AgentErrorKind.DEAD_LETTER,
        f"the stored case cannot be read ({problem[:500]}): the agent was not asked; upload the dataset again",
    )


def rescored_case(case: Case, run_id: str, answers: Sequence[Sequence[AgentResponse]]) -> Case:
    """Return a case with the stored answers of a run in place of those recorded in its dataset.

    A row without a stored answer gets an error: it is scored like a failed agent, never omitted.

    Args:
        case: The case in the dataset.
        run_id: The run.
        answers: By repeat, the answers to its turns; empty if the run has none.
    """
    missing = error_response(AgentErrorKind.NOT_RECORDED, f"run {run_id} has no answer for case {case.case_id}")
    rows = [tuple(row) or (missing,) for row in answers]
    if _are_stand_ins(case, rows):
        rows = [row[-1:] for row in rows]
    return replace(case, recordings=tuple(rows))


def _are_stand_ins(case: Case, rows: Sequence[Sequence[AgentResponse]]) -> bool:
    """Return whether the answers to earlier turns are references that replay used for lack of recorded answers."""
    if not case.recordings or case.has_recorded_turns:
        return False
    expected = [AgentResponse(text=next(iter(turn.references), "")) for turn in case.turns[:-1]]
    return all(answer == stand_in for row in rows for answer, stand_in in zip(row[:-1], expected, strict=False))
