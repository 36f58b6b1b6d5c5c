"""Rows that are ready together: the event loop takes a few of them a round, so that other calls wait for few."""

from __future__ import annotations

import asyncio
import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.services.ended_runs import await_end

from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import RunState
from assay.model.run_spec import DatasetReading
from assay_orchestrator.agents.replay import ReplayAgent
from assay_orchestrator.pipeline.flusher import Flusher
from assay_orchestrator.pipeline.session import Session
from assay_orchestrator.pipeline.storage_pauses import StoragePauses
from assay_orchestrator.pipeline.turns import Turns
from assay_orchestrator.scorers import row_scorer
from assay_orchestrator.store.rows.results import AnswerRecord, Stored
from assay_orchestrator.store.runs import datasets
from assay_orchestrator.store.shards.shards import Shard

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.run import RunSpec

_ROWS = 400
_MOST_PER_ROUND = 32


class Rounds:
    """Counts, for each round of the event loop, the calls of functions."""

    def __init__(self) -> None:
        self.number = 0
        self.calls: dict[str, Counter[int]] = {}
        self._handle: asyncio.Handle | None = None

    def count(self) -> None:
        """Count this round, and each that follows."""
        self.number += 1
        self._handle = asyncio.get_running_loop().call_soon(self.count)

    def stop(self) -> None:
        """Count no more rounds."""
        assert self._handle is not None
        self._handle.cancel()

    def noting(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does the same and notes the round of each call."""
        calls = self.calls[name] = Counter()

        def noted(*args: Any, **kwargs: Any) -> Any:
            calls[self.number] += 1
            return function(*args, **kwargs)

        return noted


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
async def test_rows_that_are_ready_together_share_rounds(
    serve: Callable[..., AbstractAsyncContextManager[Client]],
    settings_of: Callable[..., RunSpec],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of hundreds of recorded answers, each round decodes, asks, scores and releases a few and then serves others."""
    rounds = Rounds()
    for owner, name in (
        (datasets, "stored_case"),
        (ReplayAgent, "answer"),
        (row_scorer, "score_row"),
        (Session, "leave"),
    ):
        monkeypatch.setattr(owner, name, rounds.noting(name, getattr(owner, name)))
    cases = [
        Case(f"c{index}", (Turn("q", references=("right",)),), recordings=((AgentResponse(text="right"),),))
        for index in range(_ROWS)
    ]
    async with serve() as client:
        dataset = await client.upload_dataset(cases, name="d")
        rounds.count()
        try:
            reading = DatasetReading("d.jsonl", "plain/jsonl", "")  # without copies, which the summary would look for
            run = await client.create_run(dataclasses.replace(settings_of(), dataset=reading), dataset.dataset_id)
            await await_end(client, run.run_id)
        finally:
            rounds.stop()
        run = await client.get_run(run.run_id)
    assert run.state is RunState.COMPLETED
    assert {name: calls.total() for name, calls in rounds.calls.items()} == dict.fromkeys(rounds.calls, _ROWS)
    most = {name: max(calls.values()) for name, calls in rounds.calls.items()}
    assert max(most.values()) <= _MOST_PER_ROUND, most


async def test_turns_come_in_order_and_a_few_a_round() -> None:
    """A cancelled call takes no turn; the others return in the order in which they were made."""
    turns, rounds, order = Turns(per_round=3), Rounds(), list[tuple[int, int]]()

    async def take(index: int) -> None:
        await turns.take()
        order.append((rounds.number, index))

    rounds.count()
    tasks = [asyncio.create_task(take(index)) for index in range(20)]
    await asyncio.sleep(0)
    for index in (5, 6, 7):
        tasks[index].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    rounds.stop()
    assert [index for _, index in order] == [*range(5), *range(8, 20)]
    assert max(Counter(number for number, _ in order).values()) <= 3


class StoresAtOnce:
    """A database that keeps nothing and takes no time."""

    async def read(self, query: Callable[[Any], Any]) -> Any:
        """Refuse: a flusher only writes."""
        raise AssertionError("a flusher only writes")

    async def write(self, change: Callable[[Any], Any]) -> Any:
        """Say that a batch is stored."""
        return Stored(1, {0: 1})


async def test_rows_of_several_batches_that_are_stored_together_share_rounds() -> None:
    """Batches that are stored in the same rounds let no more rows proceed than one does."""
    rounds, shard = Rounds(), Shard("r", 0, 0, _ROWS * 2, 1, 0)
    pauses = StoragePauses(StoresAtOnce(), lambda _: None, lambda _: asyncio.sleep(0))
    flusher = Flusher(pauses.of("r"), "r", lambda _: None, lambda since, slots: None)
    ended: Counter[int] = Counter()

    async def put(index: int) -> None:
        await flusher.put(shard, AnswerRecord(index, 1, 0, AgentResponse(text="a")), None)
        ended[rounds.number] += 1

    rounds.count()
    async with asyncio.TaskGroup() as tasks:
        for index in range(_ROWS * 2):  # more than one batch
            tasks.create_task(put(index))
    rounds.stop()
    await flusher.aclose()
    assert ended.total() == _ROWS * 2
    assert max(ended.values()) <= _MOST_PER_ROUND
