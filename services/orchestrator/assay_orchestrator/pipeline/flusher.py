"""Group commit: what many cases want stored in the same moment goes into one durable transaction."""

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
from assay.model.run import CaseResult
from assay.process.failpoints import failpoint
from assay_orchestrator.budgets.run_budget import RunBudget
from assay_orchestrator.store.rows import attempts, results
from assay_orchestrator.store.rows.results import AnswerRecord
from assay_orchestrator.store.teams import spending
from assay_orchestrator.store.teams.allotments import NOTHING
from assay_orchestrator.store.teams.spending import Spent
from assay_orchestrator.summary.spent import spent_on

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    import sqlalchemy as sa

    from assay_orchestrator.pipeline.storage_pauses import RunStore
    from assay_orchestrator.store.rows.attempts import AttemptKey
    from assay_orchestrator.store.rows.results import RowKey, Stored
    from assay_orchestrator.store.rows.stops import StopLook
    from assay_orchestrator.store.shards.shards import Shard

_MAX_BATCH = 500
_RELEASED_PER_ROUND = 32
_FIELDS = [field.name for field in dataclasses.fields(CaseResult)]
_FIELDS_OF, _SEQUENCE = attrgetter(*_FIELDS), _FIELDS.index("sequence")


@dataclasses.dataclass(slots=True, eq=False)
class _Entry:
    """What one case wants stored; `done` when it is."""

    shard: Shard
    answer: AnswerRecord | None
    result: CaseResult | None
    begun: AttemptKey | None
    done: asyncio.Future[None]


class _Books(NamedTuple):
    """What knows the cost of what is stored: the run's budget, and what answers and rows say."""

    budget: RunBudget
    spent_on: Callable[..., Spent]


class Flusher:
    """Stores the answers and results of one run's shards in this process.

    One transaction is open at a time; whatever arrives meanwhile goes into the next. It runs in a
    task of its own that no case's cancellation reaches, so a batch is stored whole or not at all.

    Args:
        store: Where to store; what it cannot store now it keeps in memory and stores later.
        on_results: Called with the results of a transaction, in the order of their sequence, after they have
            become durable.
        on_held: Called with a moment (`monotonic`) since which the shards of a transaction were seen to be this
            process's, and how many questions of each may be in flight by now.
        is_replay: Whether answers are recorded ones: what they used was paid for before.
        budget: Knows what calls of the agent have used, where these are reserved.
        is_judged: Whether rows may have verdicts, which may have cost something.
        stop_look: Looks with every transaction whether the run stops early; None where it asks all cases.
        on_stopped: Called once that is so, after a transaction.
    """

    def __init__(
        self,
        store: RunStore,
        run_id: str,
        on_results: Callable[[Sequence[CaseResult]], None],
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

    async def put(self, shard: Shard, answer: AnswerRecord | None, result: CaseResult | None) -> None:
        """Store an answer, a result, or both together; when this returns they are durable.

        Raises:
            StorageError: They could not be stored, and the process stops or the run was cancelled.
            FencedError: Another worker has the shard, or one that was stored with it.
        """
        await self._put(shard, answer, result, None)

    async def journal(self, shard: Shard, attempt: AttemptKey) -> None:
        """Journal that an attempt begins: a kill before the row's result is stored then leaves its entry.

        Raises:
            StorageError: It could not be stored.
            FencedError: As above.
        """
        await self._put(shard, None, None, attempt)

    async def aclose(self) -> None:
        """Wait until everything handed over is stored; cancelled attempts leave no entry in the journal."""
        while self._task is not None:
            await asyncio.shield(self._task)
        if self._open:
            with contextlib.suppress(StorageError):
                await self._store.write_once(lambda c: attempts.clear_journal(c, self._run_id, self._open.values()))

    async def _put(
        self, shard: Shard, answer: AnswerRecord | None, result: CaseResult | None, begun: AttemptKey | None
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
                    if isinstance(problem, StorageError):  # given up for all of the run
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
        """Let the rows of stored entries proceed, a few in each round of the event loop, which serves others too."""
        self._stored.extend(entry.done for entry in entries)
        if not self._is_releasing:
            self._release_some()

    def _release_some(self) -> None:
        self._is_releasing = bool(self._stored)
        for _ in range(min(len(self._stored), _RELEASED_PER_ROUND)):
            done = self._stored.popleft()
            if not done.done():
                done.set_result(None)
        if self._is_releasing:  # also where none is left: a batch that is stored in this round waits for the next
            asyncio.get_running_loop().call_soon(self._release_some)


class _Batch:
    """One transaction of a flusher; called again until it is stored.

    Attributes:
        rows: The results that the last call stores: those that an earlier one has stored unnoticed are left out.
        begun: A moment (`monotonic`) before the last call's transaction.
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
        self.rows: Sequence[CaseResult] = [entry.result for entry in entries if entry.result is not None]
        self._keys = [(row.case_index, row.repeat_index) for row in self.rows]
        # The cost of an answer is stored with it, and that of calls that brought none; not with the journal alone, of
        # which nothing shows whether it is stored already.
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
                paid = NOTHING  # it was stored with them
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


def _numbered(rows: Sequence[CaseResult], first: int) -> list[CaseResult]:
    """Return the rows with their sequence; by position, which takes a fifth of the time of `dataclasses.replace`."""
    found = []
    for sequence, row in enumerate(rows, first):
        values = [*_FIELDS_OF(row)]
        values[_SEQUENCE] = sequence
        found.append(CaseResult(*values))
    return found
