"""One run's pipeline: dataset, agent, (answer stored), evidence, metrics, result stored."""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.answers import AgentRequest, AgentResponse
from assay.errors import AssayError
from assay.metrics.row_verdict import row_reason, row_verdict
from assay.metrics.score import Metric, Row, wants_embedding
from assay.results import CaseResult, Score, ScoreStatus
from assay_orchestrator.flusher import Flusher
from assay_orchestrator.store import datasets, results
from assay_orchestrator.store.results import AnswerRecord

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from assay.cases import Case
    from assay.metrics.score import EmbeddingEvidence
    from assay_orchestrator.agents import Agent
    from assay_orchestrator.embedding import EmbeddingClient
    from assay_orchestrator.store.database import Database

__all__ = ["Plan", "Runner"]

_PAGE_CASES = 200
_SCORING_SLOTS = 256

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run needs: decided once, from its spec.

    Args:
        run_id: The run.
        dataset_id: The dataset.
        case_count: Cases in the dataset.
        repeats: How often each case is run.
        concurrency: Most questions in flight at the agent.
        timeout_s: Longest wait for one attempt.
        agent: How to ask; already retrying.
        metrics: In report order.
        embedders: A client per model that the metrics need; empty where none needs any.
    """

    run_id: str
    dataset_id: str
    case_count: int
    repeats: int
    concurrency: int
    timeout_s: float
    agent: Agent
    metrics: Sequence[Metric]
    embedders: Mapping[str, EmbeddingClient]


@dataclass(frozen=True, slots=True)
class _Work:
    case: Case
    case_index: int
    repeat_index: int
    stored: AgentResponse | None


class Runner:
    """Takes every row of a run that has no result yet to its result.

    Memory is O(concurrency): a row enters only when a slot is free, and cases are read in pages.

    Args:
        database: Where datasets, answers and results are.
        plan: What to do.
        on_results: Called after results have become durable.
    """

    def __init__(self, database: Database, plan: Plan, on_results: Callable[[], None]) -> None:
        self._database = database
        self._plan = plan
        self._flusher = Flusher(database, plan.run_id, on_results)
        self._asking = asyncio.Semaphore(plan.concurrency)
        self._slots = asyncio.Semaphore(plan.concurrency + _SCORING_SLOTS)

    async def run(self) -> None:
        """Finish every row.

        Raises:
            StorageError: The store cannot be read or written; what is stored stays.
        """
        try:
            async with asyncio.TaskGroup() as rows:
                async for work in self._unfinished():
                    await self._slots.acquire()
                    rows.create_task(self._finish(work))
        except BaseExceptionGroup as group:
            raise _first(group) from group
        finally:
            await self._flusher.aclose()
            for client in self._plan.embedders.values():
                await client.aclose()

    async def _unfinished(self) -> AsyncIterator[_Work]:
        plan = self._plan
        for first in range(0, plan.case_count, _PAGE_CASES):
            cases, finished, stored = await self._database.read(
                lambda connection, first=first: (  # type: ignore[misc]  # mypy cannot type a default in a lambda
                    datasets.read_cases(connection, plan.dataset_id, first, _PAGE_CASES),
                    results.finished_keys(connection, plan.run_id, first, _PAGE_CASES),
                    results.stored_answers(connection, plan.run_id, first, _PAGE_CASES),
                )
            )
            for offset, case in enumerate(cases):
                for repeat in range(plan.repeats):
                    key = (first + offset, repeat)
                    if key not in finished:
                        yield _Work(case, *key, stored.get(key))

    async def _finish(self, work: _Work) -> None:
        try:
            response, answer = work.stored, None
            if response is None:
                async with self._asking:
                    response = await self._ask(work)
                answer = AnswerRecord(work.case_index, work.repeat_index, response)
            models = self._models(work.case, response)
            if models and answer is not None:
                # Durable before any further work is paid for it.
                await self._flusher.put(answer, None)
                answer = None
            evidence = await self._gather(models, work.case, response)
            await self._flusher.put(answer, self._result(work, response, evidence))
        finally:
            self._slots.release()

    async def _ask(self, work: _Work) -> AgentResponse:
        plan, case = self._plan, work.case
        key = f"{plan.run_id}/{work.case_index}/{work.repeat_index}"
        request = AgentRequest(
            request_id=key,
            run_id=plan.run_id,
            case_id=case.case_id,
            input=case.input,
            repeat_index=work.repeat_index,
            turn_index=len(case.turns) - 1,
            session_id=str(uuid.uuid5(uuid.NAMESPACE_URL, key)),
            idempotency_key=key,
            history=case.turns[-1].history,
            variables=case.variables,
            parameters=case.parameters,
            timeout_s=plan.timeout_s,
        )
        return await plan.agent.answer(request, case)

    def _models(self, case: Case, response: AgentResponse) -> Sequence[str]:
        if not self._plan.embedders or not wants_embedding(case, response):
            return ()
        return tuple(self._plan.embedders)

    async def _gather(self, models: Sequence[str], case: Case, response: AgentResponse) -> dict[str, EmbeddingEvidence]:
        if not models:
            return {}
        gathered = await asyncio.gather(*(self._plan.embedders[model].gather(case, response) for model in models))
        return dict(zip(models, gathered, strict=True))

    def _result(self, work: _Work, response: AgentResponse, evidence: dict[str, EmbeddingEvidence]) -> CaseResult:
        row = Row(case=work.case, response=response, embeddings=evidence)
        scores = tuple(_score(metric, row) for metric in self._plan.metrics)
        return CaseResult(
            case_index=work.case_index,
            repeat_index=work.repeat_index,
            case_id=work.case.case_id,
            category=work.case.category,
            status=response.status,
            passed=row_verdict(response.status, scores),
            scores=scores,
            latency_ms=response.latency_ms,
            reason=row_reason(response, scores),
        )


def _score(metric: Metric, row: Row) -> Score:
    try:
        return metric.score(row)
    except Exception:  # noqa: BLE001 - a defect in one metric costs one score, not the run
        _log.exception("metric %s failed on case %s", metric.name, row.case.case_id)
        return Score(metric=metric.name, status=ScoreStatus.ERROR, reason="metric_failed")


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
