"""Group commit: entries that many cases submit at the same time share one durable transaction."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections import deque
from functools import partial
from operator import attrgetter
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from assay.errors import StorageError
from assay.identity.quotas import nano_from_usd
from assay.model.answers.possible_usage import counted_tokens, possible_cost
from assay.model.run import RowResult
from assay.process.failpoints import failpoint
from assay_orchestrator.budgets.run_budget import RunBudget
from assay_orchestrator.store.rows import attempts, results
from assay_orchestrator.store.rows.results import AnswerRecord
from assay_orchestrator.store.teams import spending
from assay_orchestrator.store.teams.allotments import NOTHING
from assay_orchestrator.store.teams.spending import Spent
from assay_orchestrator.summary.judging import JudgingFold

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    import sqlalchemy as sa

    from assay.model.run import RowResult
    from assay_orchestrator.pipeline.storage_pauses import RunStore
    from assay_orchestrator.store.rows.attempts import AttemptKey
    from assay_orchestrator.store.rows.results import AnswerRecord, RowKey, Stored
    from assay_orchestrator.store.rows.stops import StopLook
    from assay_orchestrator.store.shards.shards import Shard

_MAX_BATCH = 500
_RELEASED_PER_ROUND = 32
_FIELDS = [field.name for field in dataclasses.fields(RowResult)]
_FIELDS_OF, _SEQUENCE = attrgetter(*_FIELDS), _FIELDS.index("sequence")


@dataclasses.dataclass(slots=True, eq=False)
class _Entry:
    """The entry of one case; `done` is set when it is stored."""

    shard: Shard
    answer: AnswerRecord | None
    result: RowResult | None
    begun: AttemptKey | None
    done: asyncio.Future[None]


class _Books(NamedTuple):
    """Knows the cost of stored entries: the run's budget, and the usage in answers and rows."""

    budget: RunBudget
    spent_on: Callable[..., Spent]


class Flusher:
    """Stores the answers and results of one run's shards in this process.

    One transaction is open at a time; entries that arrive meanwhile go into the next. It runs in a task of its own,
    which a case's cancellation does not reach, so a batch is stored whole or not at all.

    Args:
        store: The store; it keeps in memory what it cannot store yet, and stores it later.
        on_results: Called with the results of a transaction, in the order of their sequence, once they are durable.
        on_held: Called with a time (`monotonic`) at which the shards of a transaction still belonged to this process,
            and how many of each shard's questions may be in flight.
        is_replay: Whether answers are recorded: their usage was paid for earlier.
        budget: Knows the usage of agent calls, if it is reserved.
        is_judged: Whether rows may have verdicts, which may have cost something.
        stop_look: Checks in every transaction whether the run stops early; None if it asks all cases.
        on_stopped: Called after the transaction that stops the run.
    """

    def __init__(
        self,
        store: RunStore,
        run_id: str,
        on_results: Callable[[Sequence[RowResult]], None],
        on_held: Callable[[float, Mapping[Shard, int]], None],
        *,
        is_replay: bool = False,
        is_judged: bool = False,
        budget: RunBudget | None = None,
        stop_look: StopLook | None = None,
        on_stopped: Callable[[StopLook], Awaitable[None]] | None = None,
    ) -> None:
        self._store = store
        budget = budget if budget is not None else RunBudget()
        counts_answers = not is_replay and not budget.is_metered
        self._books = _Books(budget, partial(spent_on, counts_answers=counts_answers, is_judged=is_judged))
        self._run_id = run_id
        self._on_results = on_results
        self._on_held = on_held
        self._stop_look = stop_look
        self._on_stopped = on_stopped
        self._waiting: list[_Entry] = []
        self._open: dict[tuple[int, int], AttemptKey] = {}
        self._task: asyncio.Task[None] | None = None
        self._stored: deque[asyncio.Future[None]] = deque()
        self._is_releasing = False

    async def put(self, shard: Shard, answer: AnswerRecord | None, result: RowResult | None) -> None:
        """Store an answer, a result, or both together; they are durable when this returns.

        Raises:
            StorageError: They could not be stored, and the process stops or the run was cancelled.
            FencedError: Another worker has the shard, or a shard in the same transaction.
        """
        await self._put(shard, answer, result, None)

    async def journal(self, shard: Shard, attempt: AttemptKey) -> None:
        """Journal the start of an attempt; if the process is killed before the row's result, the entry remains.

        Raises:
            StorageError: It could not be stored.
            FencedError: As in `put`.
        """
        await self._put(shard, None, None, attempt)

    async def aclose(self) -> None:
        """Wait until all submitted entries are stored; cancelled attempts leave no entry in the journal."""
        while self._task is not None:
            await asyncio.shield(self._task)
        if self._open:
            with contextlib.suppress(StorageError):
                await self._store.write_once(lambda c: attempts.clear_journal(c, self._run_id, self._open.values()))

    async def _put(
        self, shard: Shard, answer: AnswerRecord | None, result: RowResult | None, begun: AttemptKey | None
    ) -> None:
        entry = _Entry(shard, answer, result, begun, asyncio.get_running_loop().create_future())
        self._waiting.append(entry)
        if self._task is None:
            self._task = asyncio.create_task(self._flush_all())
        await entry.done

    async def _flush_all(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:_MAX_BATCH], self._waiting[_MAX_BATCH:]
                write = _Batch(self._store, self._run_id, batch, self._open, self._stop_look, self._books)
                try:
                    stored = await self._store.outlast(write)
                except Exception as problem:  # noqa: BLE001 - the boundary of a task: every waiting case gets it
                    if isinstance(problem, StorageError):  # given up for the whole run
                        batch, self._waiting = [*batch, *self._waiting], []
                    for entry in batch:
                        if not entry.done.done():
                            entry.done.set_exception(problem)
                else:
                    self._release(batch)
                    self._on_held(write.begun, {entry.shard: stored.slots[entry.shard.shard_index] for entry in batch})
                    if write.rows:
                        self._on_results(_numbered(write.rows, stored.first_sequence))
                    if self._stop_look is not None and self._stop_look.is_stopped and self._on_stopped is not None:
                        await self._on_stopped(self._stop_look)
        finally:
            self._task = None

    def _release(self, entries: Sequence[_Entry]) -> None:
        """Let the rows of stored entries proceed, a few per round of the event loop, which serves others too."""
        self._stored.extend(entry.done for entry in entries)
        if not self._is_releasing:
            self._release_some()

    def _release_some(self) -> None:
        self._is_releasing = bool(self._stored)
        for _ in range(min(len(self._stored), _RELEASED_PER_ROUND)):
            done = self._stored.popleft()
            if not done.done():
                done.set_result(None)
        if self._is_releasing:  # even if none is left: a batch stored in this round waits for the next
            asyncio.get_running_loop().call_soon(self._release_some)


class _Batch:
    """A transaction of a flusher; called again until it is stored.

    Attributes:
        rows: The results that the last call stores, without those that an earlier call stored unnoticed.
        begun: A time (`monotonic`) before the last call's transaction.
    """

    def __init__(
        self,
        store: RunStore,
        run_id: str,
        entries: Sequence[_Entry],
        open_attempts: dict[RowKey, AttemptKey],
        stop_look: StopLook | None,
        books: _Books,
    ) -> None:
        self._store = store
        self._budget, self._spent_on = books
        self._run_id = run_id
        self._entries = entries
        self._open = open_attempts
        self._stop_look = stop_look
        self._answers = [entry.answer for entry in entries if entry.answer is not None]
        self._attempts = [entry.begun for entry in entries if entry.begun is not None]
        self._call_count = 0
        self.rows: Sequence[RowResult] = [entry.result for entry in entries if entry.result is not None]
        self._keys = [(row.case_index, row.repeat) for row in self.rows]
        # The cost of an answer is stored with the answer, and so is that of calls without one; never with the journal
        # alone, which does not show whether the cost is already stored.
        self._used = self._budget.used if self._answers or self.rows else self._budget.recorded
        self.begun = monotonic()

    async def __call__(self) -> Stored:
        self.begun = monotonic()
        stored = await self._store.write_once(self._change)
        self._budget.recorded = self._used
        if self._stop_look is not None:
            self._stop_look.committed()
            if self._stop_look.is_new:
                failpoint("early_stop.after_commit")
        if self._answers:
            failpoint("answer.after_commit")
        if self.rows:
            failpoint("result.after_commit")
        self._open.update(((attempt[0], attempt[1]), attempt) for attempt in self._attempts)
        for key in self._keys:
            self._open.pop(key, None)
        return stored

    def _change(self, connection: sa.Connection) -> Stored:
        answers: Sequence[AnswerRecord] = self._answers
        paid = self._used - self._budget.recorded
        self._call_count += 1
        if self._call_count > 1:  # pragma: no mutate: asking about a batch that was never written finds nothing
            before = len(answers) + len(self.rows)
            answers, self.rows = results.without_stored(connection, self._run_id, answers, self.rows)
            if len(answers) + len(self.rows) < before:
                paid = NOTHING  # already stored with them
            attempts.clear_journal(connection, self._run_id, self._attempts)
        if self._stop_look is not None:
            self._stop_look.lock(connection)
        epochs = {entry.shard.shard_index: entry.shard.epoch for entry in self._entries}
        stored = results.put_rows(connection, self._run_id, answers, self.rows, epochs)
        judged = self._budget.record(connection, self._used)
        in_rows = not self._budget.meters_verdict_tokens
        spent = self._spent_on(answers, self.rows, counts_verdicts=judged is None, counts_verdict_tokens=in_rows)
        money = spent.nano_usd + paid.nano_usd + (judged or 0)
        total = Spent(spent.tokens + paid.tokens, money, stored.size_bytes)
        spending.add_spent(connection, self._run_id, total)
        if answers:
            failpoint("answer.before_commit")
        if self.rows:
            failpoint("result.before_commit")
            if self._stop_look is not None:
                self._stop_look.look(connection)
        attempts.journal_attempts(connection, self._run_id, self._attempts)
        attempts.clear_journal(connection, self._run_id, [self._open[key] for key in self._keys if key in self._open])
        return stored


def _numbered(rows: Sequence[RowResult], first: int) -> list[RowResult]:
    """Return the rows with their sequence; by position, which takes a fifth of the time of `dataclasses.replace`."""
    numbered = []
    for sequence, row in enumerate(rows, first):
        values = [*_FIELDS_OF(row)]
        values[_SEQUENCE] = sequence
        numbered.append(RowResult(*values))
    return numbered


def spent_on(
    answers: Sequence[AnswerRecord],
    rows: Sequence[RowResult],
    *,
    counts_answers: bool,
    is_judged: bool,
    counts_verdicts: bool = True,
    counts_verdict_tokens: bool = True,
) -> Spent:
    """Return the reported usage of some agent answers, and of the verdicts behind some rows.

    Usage that no answer can have counts as not reported.

    Args:
        answers: The answers.
        rows: The rows.
        counts_answers: Whether to count the usage of answers; False for recorded answers, and if the run's budget
            counts them.
        is_judged: Whether rows may have verdicts.
        counts_verdicts: Whether to count the cost of verdicts; False if the judge's account counts them.
        counts_verdict_tokens: Whether to count their tokens; False if the run's budget counts them.
    """
    used = [answer.response.usage for answer in answers if answer.response.usage is not None and counts_answers]
    tokens = sum(map(counted_tokens, used))
    dollars = sum(possible_cost(usage.cost_usd) or 0.0 for usage in used)
    if is_judged:
        fold = JudgingFold()
        for row in rows:
            fold.add(row)
        judging = fold.result()
        if judging is not None:
            tokens += judging.input_tokens + judging.output_tokens if counts_verdict_tokens else 0
            dollars += (judging.cost_usd or 0.0) if counts_verdicts else 0.0
            if counts_verdicts:
                dollars += sum(canaries.cost_usd or 0.0 for canaries in judging.canaries)
    return Spent(tokens, nano_from_usd(dollars))
