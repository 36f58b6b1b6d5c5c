"""Group commit: what many cases want stored in the same moment goes into one durable transaction."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

from assay_orchestrator.store import results
from assay_orchestrator.store.results import AnswerRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import sqlalchemy as sa

    from assay.results import CaseResult
    from assay_orchestrator.store.database import Database
    from assay_orchestrator.store.shards import Shard

__all__ = ["Flusher"]

_MAX_BATCH = 500


@dataclasses.dataclass(frozen=True, slots=True)
class _Entry:
    shard: Shard
    answer: AnswerRecord | None
    result: CaseResult | None
    done: asyncio.Future[None]


class Flusher:
    """Stores the answers and results of one run's shards in this process.

    One transaction is under way at a time; whatever arrives meanwhile goes into the next. It runs in a
    task of its own that no case's cancellation reaches, so a batch is stored whole or not at all.

    Args:
        database: Where to store.
        run_id: The run.
        on_results: Called with the results of a transaction, in the order of their sequence, after they have
            become durable.
    """

    def __init__(self, database: Database, run_id: str, on_results: Callable[[Sequence[CaseResult]], None]) -> None:
        self._database = database
        self._run_id = run_id
        self._on_results = on_results
        self._waiting: list[_Entry] = []
        self._task: asyncio.Task[None] | None = None

    async def put(self, shard: Shard, answer: AnswerRecord | None, result: CaseResult | None) -> None:
        """Store an answer, a result, or both together; when this returns they are durable.

        Raises:
            StorageError: They could not be stored.
            FencedError: Somebody else has the shard, or one that was stored with it.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Entry(shard, answer, result, done))
        if self._task is None:
            self._task = asyncio.create_task(self._flush_all())
        await done

    async def aclose(self) -> None:
        """Wait until everything handed over is stored."""
        while self._task is not None:
            await asyncio.shield(self._task)

    async def _flush_all(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:_MAX_BATCH], self._waiting[_MAX_BATCH:]
                answers = [entry.answer for entry in batch if entry.answer is not None]
                rows = [entry.result for entry in batch if entry.result is not None]
                epochs = {entry.shard.shard_index: entry.shard.epoch for entry in batch}

                def change(
                    connection: sa.Connection,
                    answers: list[AnswerRecord] = answers,
                    rows: list[CaseResult] = rows,
                    epochs: dict[int, int] = epochs,
                ) -> int:
                    return results.put(connection, self._run_id, answers, rows, epochs)

                try:
                    first = await self._database.write(change)
                except Exception as problem:  # noqa: BLE001 - handed to every case that waits for it
                    for entry in batch:
                        if not entry.done.done():
                            entry.done.set_exception(problem)
                else:
                    for entry in batch:
                        if not entry.done.done():
                            entry.done.set_result(None)
                    if rows:
                        self._on_results(_numbered(rows, first))
        finally:
            self._task = None


def _numbered(rows: Sequence[CaseResult], first: int) -> list[CaseResult]:
    return [dataclasses.replace(row, sequence=first + offset) for offset, row in enumerate(rows)]
