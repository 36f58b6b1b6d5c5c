from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from assay.errors import OverloadedError, UnavailableError
from assay_embedder.batcher import Batcher, BatchReport, Tokens
from assay_embedder.models import halving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from numpy.typing import NDArray


class WordCounter:
    """A model of one number: how many words a text has. It runs only while it is let run."""

    def __init__(self) -> None:
        self.running = threading.Event()
        self.let_run = threading.Event()
        self.let_run.set()
        self.seen: list[list[int]] = []
        self.failure: Exception | None = None

    def tokenize(self, texts: Sequence[str]) -> list[Tokens]:
        lengths = [len(text.split()) for text in texts]
        return [Tokens([0] * min(length, 8), [0] * min(length, 8), length > 8) for length in lengths]

    def encode(self, batch: Sequence[Tokens]) -> NDArray[np.float32]:
        self.running.set()
        self.let_run.wait()
        self.seen.append([len(tokens.ids) for tokens in batch])
        if self.failure is not None:
            raise self.failure
        return np.array([[len(tokens.ids)] for tokens in batch], dtype=np.float32)


@pytest.fixture
def encoder() -> WordCounter:
    return WordCounter()


@pytest.fixture
async def make(encoder: WordCounter) -> AsyncIterator[Callable[..., Batcher]]:
    made: list[Batcher] = []

    def maker(**options: Any) -> Batcher:
        made.append(Batcher(encoder, **({"max_batch_tokens": 64, "queue_limit": 100} | options)))
        return made[-1]

    yield maker
    encoder.let_run.set()
    for batcher in made:
        await batcher.aclose()


async def held(encoder: WordCounter, batcher: Batcher) -> asyncio.Task[object]:
    """Keep the worker busy with one text until `let_run` is set."""
    encoder.let_run.clear()
    encoder.running.clear()
    task: asyncio.Task[object] = asyncio.create_task(batcher.embed(["busy"]))
    await asyncio.to_thread(encoder.running.wait)
    return task


async def submit(batcher: Batcher, *requests: Sequence[str]) -> list[asyncio.Task[object]]:
    """Hand requests in and return when all of them wait in the queue."""
    tasks: list[asyncio.Task[object]] = [asyncio.create_task(batcher.embed(texts)) for texts in requests]
    await asyncio.sleep(0)  # each task runs until it waits for its answer
    return tasks


async def test_vectors_come_in_the_order_of_the_texts(make: Callable[..., Batcher]) -> None:
    """Sorting by length inside is invisible outside; cut texts are named by position."""
    embedded = await make().embed(["a b c", "a", "a b " * 5, "a b", "a"])
    assert embedded.vectors.tolist() == [[3], [1], [8], [2], [1]]
    assert embedded.truncated == [2]
    assert embedded.queue_ms >= 0
    assert embedded.inference_ms >= 0


async def test_waiting_callers_share_one_run(make: Callable[..., Batcher], encoder: WordCounter) -> None:
    """What gathers while the model runs is computed together, identical texts once."""
    reports: list[BatchReport] = []
    batcher = make(on_batch=reports.append)
    busy = await held(encoder, batcher)
    tasks = await submit(batcher, ["a", "b b"], ["a"], ["b b", "c c c"])
    encoder.let_run.set()
    await asyncio.gather(busy, *tasks)
    assert reports[1:] == [BatchReport(requests=3, texts=3, padded_tokens=9)]
    assert encoder.seen[1] == [3, 2, 1]
    assert batcher.statistics.shared_batches == 1
    assert (batcher.statistics.texts, batcher.statistics.computed) == (6, 4)


async def test_runs_keep_the_budget_of_tokens(make: Callable[..., Batcher], encoder: WordCounter) -> None:
    """Padded word pieces of a run stay in the budget; texts of like length travel together."""
    reports: list[BatchReport] = []
    batcher = make(max_batch_tokens=8, on_batch=reports.append)
    texts = ["w " * count for count in (1, 8, 2, 4, 3, 1)]
    await batcher.embed([*texts[:5], "v"])
    assert encoder.seen == [[8], [4, 3], [2, 1, 1]]
    assert max(report.padded_tokens for report in reports) == 8


async def test_text_over_the_budget_runs_alone(make: Callable[..., Batcher]) -> None:
    """A budget below a text's length slows it down but does not stop it."""
    assert (await make(max_batch_tokens=1).embed(["a b c", "d e f"])).vectors.tolist() == [[3], [3]]


async def test_caller_that_left_costs_no_compute(make: Callable[..., Batcher], encoder: WordCounter) -> None:
    """A request that is cancelled while it waits is dropped; texts that others want too are kept."""
    batcher = make()
    busy = await held(encoder, batcher)
    leaving, staying = await submit(batcher, ["only one wants this", "shared"], ["shared"])
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    encoder.let_run.set()
    await asyncio.gather(busy, staying)
    assert encoder.seen == [[1], [1]]
    assert batcher.statistics.dropped == 1


async def test_caller_that_leaves_between_runs(make: Callable[..., Batcher], encoder: WordCounter) -> None:
    """The later runs of a request are not computed once its caller has left during the first."""
    batcher = make(max_batch_tokens=3)
    encoder.let_run.clear()
    task = asyncio.create_task(batcher.embed(["a b c", "a b", "a"]))
    await asyncio.to_thread(encoder.running.wait)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    encoder.let_run.set()
    await batcher.embed(["d"])
    assert encoder.seen == [[3], [1]]
    assert batcher.statistics.dropped == 1


async def test_full_queue_refuses_and_recovers(make: Callable[..., Batcher], encoder: WordCounter) -> None:
    """Over the limit is refused with a time to come back; what was accepted is not lost."""
    batcher = make(queue_limit=3)
    busy = await held(encoder, batcher)
    waiting = await submit(batcher, ["a", "b"], ["c"])
    with pytest.raises(OverloadedError, match="3 texts are waiting already") as caught:
        await batcher.embed(["d"])
    assert caught.value.reason == "QUEUE_FULL"
    assert 0.1 <= caught.value.retry_after_s <= 30
    encoder.let_run.set()
    await asyncio.gather(busy, *waiting)
    await batcher.embed(["d"])
    assert batcher.statistics.refused == 1


async def test_failing_model_fails_its_callers_only(make: Callable[..., Batcher], encoder: WordCounter) -> None:
    """A defect ends the requests it hit; the worker lives on."""
    batcher = make()
    encoder.failure = RuntimeError("the device is gone")
    with pytest.raises(RuntimeError, match="the device is gone"):
        await batcher.embed(["a"])
    encoder.failure = None
    assert (await batcher.embed(["a"])).vectors.tolist() == [[1]]


async def test_vector_that_is_not_finite_is_an_error(make: Callable[..., Batcher], encoder: WordCounter) -> None:
    """NaN never becomes a number in a report."""

    def encode(batch: Sequence[Tokens]) -> NDArray[np.float32]:
        return np.full((len(batch), 1), np.nan, dtype=np.float32)

    encoder.encode = encode  # type: ignore[method-assign]  # a model gone wrong
    with pytest.raises(ArithmeticError, match="not finite"):
        await make().embed(["a"])


async def test_closing_refuses_what_waits(make: Callable[..., Batcher], encoder: WordCounter) -> None:
    """Closing ends the worker: what runs is finished, what waits is told to ask again."""
    batcher = make()
    busy = await held(encoder, batcher)
    (waiting,) = await submit(batcher, ["a"])
    closing = asyncio.create_task(batcher.aclose())
    await asyncio.sleep(0)
    encoder.let_run.set()
    await asyncio.gather(busy, closing)
    with pytest.raises(UnavailableError, match="stopping"):
        await waiting
    with pytest.raises(UnavailableError, match="stopping"):
        await batcher.embed(["b"])


def test_batch_too_large_for_the_device_is_halved() -> None:
    """Running out of device memory costs time, not the request; one text that does not fit is an error."""
    freed: list[bool] = []

    def run(batch: Sequence[Tokens]) -> NDArray[np.float32]:
        if len(batch) > 2:
            raise MemoryError
        return np.array([[len(tokens.ids)] for tokens in batch], dtype=np.float32)

    batch = [Tokens([0] * size, [0] * size, False) for size in (5, 4, 3, 2, 1)]
    vectors = halving(run, batch, MemoryError, lambda: freed.append(True))
    assert vectors.tolist() == [[5], [4], [3], [2], [1]]
    assert freed

    def never(batch: Sequence[Tokens]) -> NDArray[np.float32]:
        raise MemoryError

    with pytest.raises(MemoryError):
        halving(never, batch[:1], MemoryError, lambda: None)
