from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.embedder.word_counter import WordCounter, embeddings_of
from tests.support.processes.waiting import until

from assay.errors import InvalidInputError, OverloadedError, UnavailableError
from assay_embedder.embeddings import EmbedOptions
from assay_embedder.models.encoder import Tokens
from assay_embedder.models.loading import halving
from assay_embedder.queues.admission import Load
from assay_embedder.queues.batcher import BatchReport
from assay_embedder.queues.jobs import Job
from assay_embedder.queues.ready_queue import Piece
from assay_embedder.queues.windows import MAX_WINDOWS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from numpy.typing import NDArray

    from assay_embedder.embeddings import Embeddings


@pytest.fixture
def encoder() -> WordCounter:
    return WordCounter()


@pytest.fixture
async def make() -> AsyncIterator[Callable[..., Embeddings]]:
    made: list[tuple[WordCounter, Embeddings]] = []

    def maker(encoder: WordCounter, **options: Any) -> Embeddings:
        made.append((encoder, embeddings_of(encoder, **options)))
        return made[-1][1]

    yield maker
    for encoder, embeddings in made:
        encoder.let_run.set()
        await embeddings.aclose()


def counts(embedded: Any, texts: Sequence[str]) -> list[float]:
    """The words of each text, as the vectors have them."""
    return [float(embedded.vectors[text][0]) for text in texts]


async def held(encoder: WordCounter, embeddings: Embeddings, scope: str = "") -> asyncio.Task[Any]:
    """Keep a worker busy with one text until `let_run` is set."""
    encoder.let_run.clear()
    encoder.running.clear()
    task: asyncio.Task[Any] = asyncio.create_task(embeddings.embed(["busy"], EmbedOptions(scope)))
    await asyncio.to_thread(encoder.running.wait)
    return task


async def submit(embeddings: Embeddings, *requests: Sequence[str], **options: Any) -> list[asyncio.Task[Any]]:
    """Hand requests in and return when all of them wait in the queue."""
    tasks = [asyncio.create_task(embeddings.embed(texts, EmbedOptions(**options))) for texts in requests]
    await asyncio.sleep(0)  # each task runs until it waits for its answer
    return tasks


async def test_each_text_has_its_vector(make: Callable[..., Embeddings], encoder: WordCounter) -> None:
    """Sorting by length is invisible to callers; each text says how the model read it."""
    texts = ["a b c", "a", "a b " * 5, "a b"]
    embedded = await make(encoder).embed([*texts, "a"])
    assert counts(embedded, texts) == [3, 1, 8, 2]
    assert [embedded.computed[text].truncated for text in texts] == [False, False, True, False]
    assert [embedded.computed[text].token_count for text in texts] == [3, 1, 8, 2]
    assert embedded.timing.queue_ms >= 0
    assert embedded.timing.inference_ms > 0


async def test_waiting_callers_share_one_run(make: Callable[..., Embeddings], encoder: WordCounter) -> None:
    """Requests that arrive during a model run are computed together, equal texts of a scope once."""
    reports: list[BatchReport] = []
    embeddings = make(encoder, on_batch=reports.append)
    busy = await held(encoder, embeddings)
    tasks = await submit(embeddings, ["a", "b b"], ["a"], ["b b", "c c c"])
    await until(lambda: len(embeddings._batcher._ready._pieces), lambda ready: ready >= 3)
    encoder.let_run.set()
    _, first, second, third = await asyncio.gather(busy, *tasks)
    assert reports[1:] == [BatchReport(requests=3, scopes=("",), lengths=(3, 2, 1))]
    assert embeddings.statistics.computed == 4
    assert [each.timing.shared_texts for each in (first, second, third)] == [0, 1, 1]


async def test_padded_runs_keep_the_budget(make: Callable[..., Embeddings], encoder: WordCounter) -> None:
    """Padding counts for a model that pads; texts of similar length share a run."""
    embeddings = make(encoder, batch_tokens=8)
    busy = await held(encoder, embeddings)
    (task,) = await submit(embeddings, [*("w " * count for count in (1, 8, 2, 4, 3)), "v"])
    await until(lambda: len(embeddings._batcher._ready._pieces), lambda ready: ready >= 6)
    encoder.let_run.set()
    await asyncio.gather(busy, task)
    assert encoder.seen == [[1], [8], [4, 3], [2, 1, 1]]


async def test_text_over_the_budget_runs_alone(make: Callable[..., Embeddings], encoder: WordCounter) -> None:
    """A budget below a text's length slows it down but does not stop it."""
    texts = ["a b c", "d e f"]
    assert counts(await make(encoder, batch_tokens=1).embed(texts), texts) == [3, 3]


async def test_lone_request_uses_all_idle_workers(make: Callable[..., Embeddings]) -> None:
    """Few texts are divided over the idle workers without waiting for more."""
    both = threading.Barrier(2, timeout=60)
    encoder = WordCounter(packed=True)
    run = encoder.encode

    def together(batch: Sequence[Tokens]) -> NDArray[np.float32]:
        both.wait()
        return run(batch)

    encoder.encode = together  # type: ignore[method-assign]
    embeddings = make(encoder, worker_count=2)
    await until(lambda: embeddings._batcher._idle_workers, lambda idle: idle >= 2)
    await embeddings.embed(["a b", "c d"])
    assert encoder.seen == [[2], [2]]


async def test_lone_request_is_one_run_where_workers_share_a_gpu(make: Callable[..., Embeddings]) -> None:
    """Workers that share a GPU do not divide few texts, because that is no faster."""
    encoder = WordCounter(packed=True)
    embeddings = make(encoder, worker_count=2, divides=False)
    await until(lambda: embeddings._batcher._idle_workers, lambda idle: idle >= 2)
    await embeddings.embed(["a b", "c d"])
    assert encoder.seen == [[2, 2]]


async def test_flood_of_one_scope_does_not_hold_up_another(make: Callable[..., Embeddings]) -> None:
    """Ten texts of one scope are computed within about as many texts of a scope that has thousands waiting."""
    order: list[str] = []
    encoder = WordCounter(packed=True)
    embeddings = make(encoder, batch_tokens=8, queue_limit=10_000, on_batch=lambda report: order.extend(report.scopes))
    busy = await held(encoder, embeddings, "flood")
    (flood,) = await submit(embeddings, [f"{number} a b c" for number in range(4_000)], scope="flood")
    (small,) = await submit(embeddings, [f"{number} a b c" for number in range(10)], scope="small")
    encoder.let_run.set()
    await small
    assert not flood.done()
    flood.cancel()
    await asyncio.gather(busy, flood, return_exceptions=True)
    last = max(at for at, scope in enumerate(order) if scope == "small")
    assert last < 24  # runs of about two texts: five of the small scope, as many of the other, and what was ready


async def test_caller_that_left_costs_no_compute(make: Callable[..., Embeddings], encoder: WordCounter) -> None:
    """A request cancelled while it waits is dropped; texts of other callers stay."""
    embeddings = make(encoder, batch_tokens=3)
    busy = await held(encoder, embeddings)
    leaving, staying, queued = await submit(
        embeddings, ["only one wants this", "shared"], ["shared"], [f"{number} x y z" for number in range(40)]
    )
    for task in (leaving, queued):
        task.cancel()
    await asyncio.gather(leaving, queued, return_exceptions=True)
    encoder.let_run.set()
    await asyncio.gather(busy, staying)
    await embeddings.embed(["last"])
    assert encoder.seen == [[1], [1], [1]]
    assert embeddings.statistics.dropped == 2
    batcher = embeddings._batcher
    assert not embeddings._flights
    assert (batcher._admission.total.texts, bool(batcher._queue), bool(batcher._ready)) == (0, False, False)


async def test_caller_that_leaves_between_runs(make: Callable[..., Embeddings], encoder: WordCounter) -> None:
    """The later runs of a request are not computed once its caller has left during the first."""
    embeddings = make(encoder, batch_tokens=3)
    encoder.let_run.clear()
    task = asyncio.create_task(embeddings.embed(["a b c", "a b", "a"]))
    await asyncio.to_thread(encoder.running.wait)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    encoder.let_run.set()
    await embeddings.embed(["d"])
    assert encoder.seen == [[3], [1]]
    assert embeddings.statistics.dropped == 1


async def test_full_queue_refuses_and_recovers(make: Callable[..., Embeddings], encoder: WordCounter) -> None:
    """A full queue refuses with a retry delay; accepted texts are not lost."""
    embeddings = make(encoder, queue_limit=3)
    busy = await held(encoder, embeddings)
    waiting = await submit(embeddings, ["a", "b"], ["c"])
    with pytest.raises(OverloadedError, match="3 texts are waiting already") as caught:
        await embeddings.embed(["d"])
    assert caught.value.reason == "QUEUE_FULL"
    assert 0.1 <= caught.value.retry_after_s <= 30
    other = await submit(embeddings, ["d"], scope="other")
    encoder.let_run.set()
    await asyncio.gather(busy, *waiting, *other)
    await embeddings.embed(["d"])
    assert embeddings.statistics.refused == 1


async def test_request_of_a_stream_waits_for_room(make: Callable[..., Embeddings], encoder: WordCounter) -> None:
    """A stream waits for room in a full queue and is admitted in order."""
    embeddings = make(encoder, queue_limit=2)
    busy = await held(encoder, embeddings)
    waiting = await submit(embeddings, ["a a", "b b"], ["c c c", "d d d"], ["e e e e"], waits=True)
    leaving = await submit(embeddings, ["f"], waits=True)
    leaving[0].cancel()
    with pytest.raises(OverloadedError):
        await embeddings.embed(["g"])
    encoder.let_run.set()
    await asyncio.gather(busy, *waiting)
    assert encoder.seen == [[1], [2, 2], [3, 3], [4]]


async def test_failing_model_fails_its_callers_only(make: Callable[..., Embeddings], encoder: WordCounter) -> None:
    """A defect ends the requests in its run and is not cached; the worker survives."""
    embeddings = make(encoder, cache_bytes=10_000)
    encoder.failure = RuntimeError("the device is gone")
    with pytest.raises(RuntimeError, match="the device is gone"):
        await embeddings.embed(["a", "b c"])
    encoder.failure = None
    assert counts(await embeddings.embed(["a"]), ["a"]) == [1]


async def test_text_that_the_model_fails_on_fails_alone(make: Callable[..., Embeddings], encoder: WordCounter) -> None:
    """Texts of other callers in the same run have their vectors."""
    embeddings = make(encoder)
    encode = encoder.encode

    def fails_on_three(batch: Sequence[Tokens]) -> NDArray[np.float32]:
        if any(len(tokens.ids) == 3 for tokens in batch):
            raise IndexError("index out of range")
        return encode(batch)

    busy = await held(encoder, embeddings)
    encoder.encode = fails_on_three  # type: ignore[method-assign]
    good, bad, last = await submit(embeddings, ["a"], ["a b c"], ["a b"])
    encoder.let_run.set()
    assert counts(await good, ["a"]) == [1]
    assert counts(await last, ["a b"]) == [2]
    with pytest.raises(IndexError):
        await bad
    await busy


async def test_room_that_an_abandoned_text_leaves_is_given_away(make: Callable[..., Embeddings]) -> None:
    """A text that is dropped when a worker takes it makes room for a request that waits, though nothing is computed."""
    encoder = WordCounter(packed=True)
    embeddings = make(encoder, queue_limit=1)
    batcher = embeddings._batcher
    told: list[list[Any]] = []
    batcher._settle = lambda jobs: told.append(jobs)
    dropped = job("s", "a b")
    dropped.abandoned = True
    with batcher._lock:
        batcher._admission.add("s", Load(1, 3, 2))
        batcher._ready.add([Piece(dropped, Tokens([0, 0], [], False))])
        batcher._computable.notify()
    await until(lambda: told, bool)
    assert told == [[]]
    assert batcher._admission.total == Load()


def job(scope: str, text: str) -> Job:
    return Job(text.encode(), text, scope, windowed=False, estimated_tokens=2, entered=0.0)


async def test_failing_tokenizer_fails_its_callers_only(make: Callable[..., Embeddings], encoder: WordCounter) -> None:
    """A text on which the tokenizer fails ends its request, and leaves nothing waiting."""
    embeddings = make(encoder)
    tokenize = encoder.tokenize

    def failing(texts: Sequence[str]) -> list[Tokens]:
        if "bad" in texts:
            raise ValueError("cannot be read")
        return tokenize(texts)

    encoder.tokenize = failing  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="cannot be read"):
        await embeddings.embed(["bad"])
    assert counts(await embeddings.embed(["a"]), ["a"]) == [1]
    assert embeddings._batcher._admission.total.texts == 0


async def test_vector_that_is_not_finite_is_an_error(make: Callable[..., Embeddings], encoder: WordCounter) -> None:
    """NaN never becomes a number in a report; texts of the same run that have a vector get it."""

    def encode(batch: Sequence[Tokens]) -> NDArray[np.float32]:
        return np.array([[np.nan if len(tokens.ids) == 1 else 1.0, 1.0] for tokens in batch], dtype=np.float32)

    encoder.encode = encode  # type: ignore[method-assign]  # a model gone wrong
    embeddings = make(encoder)
    bad, good = await asyncio.gather(embeddings.embed(["a"]), embeddings.embed(["b b"]), return_exceptions=True)
    assert isinstance(bad, ArithmeticError)
    assert "not finite" in str(bad)
    assert counts(good, ["b b"]) == [1]


async def test_vector_keeps_no_other_in_memory(make: Callable[..., Embeddings], encoder: WordCounter) -> None:
    """A cached vector holds its own memory alone, not that of its whole run."""
    embeddings = await make(encoder).embed(["a", "b b", "c c c"])
    for vector in embeddings.vectors.values():
        holder: Any = vector if vector.base is None else vector.base
        assert memoryview(holder).nbytes == vector.nbytes


async def test_closing_refuses_what_waits(make: Callable[..., Embeddings], encoder: WordCounter) -> None:
    """Closing ends the threads: what runs is finished, what waits is refused as UNAVAILABLE."""
    embeddings = make(encoder, queue_limit=1)
    busy = await held(encoder, embeddings)
    waiting = await submit(embeddings, ["a"], ["b"], waits=True)
    closing = asyncio.create_task(embeddings.aclose())
    await until(lambda: embeddings._batcher._closed)
    encoder.let_run.set()
    await asyncio.gather(busy, closing)
    for task in waiting:
        with pytest.raises(UnavailableError, match="stopping"):
            await task
    with pytest.raises(UnavailableError, match="stopping"):
        await embeddings.embed(["b"])


async def test_long_text_is_embedded_as_windows(make: Callable[..., Embeddings], encoder: WordCounter) -> None:
    """Asked for, all of a long text counts; a text that fits has the vector that it has otherwise, bit for bit."""
    embeddings = make(encoder)
    text = " ".join(f"w{number}" for number in range(50))
    short = await embeddings.embed(["a b"])
    cut = (await embeddings.embed([text])).computed[text]
    windowed = await embeddings.embed([text, "a b"], EmbedOptions(windowed=True))
    pieces = windowed.computed[text]
    assert (cut.truncated, cut.window_count, cut.token_count) == (True, 1, 8)
    assert not pieces.truncated
    assert pieces.window_count >= 50 / 8
    assert pieces.token_count >= 50
    assert float(np.linalg.norm(pieces.vector)) == pytest.approx(1)
    assert windowed.vectors["a b"].tobytes() == short.vectors["a b"].tobytes()
    assert windowed.computed["a b"].window_count == 1


async def test_text_with_too_many_windows_is_cut(make: Callable[..., Embeddings], encoder: WordCounter) -> None:
    """One text cannot occupy the model for minutes: what follows after the last window is cut, which is said."""
    long = "many words " * 8 * MAX_WINDOWS
    embedded = (await make(encoder).embed(["a", long], EmbedOptions(windowed=True))).computed
    assert (embedded[long].window_count, embedded[long].truncated) == (MAX_WINDOWS, True)
    assert not embedded["a"].truncated


async def test_shorter_dimension_only_where_the_model_has_it(make: Callable[..., Embeddings]) -> None:
    """A shorter vector is the beginning of the full one, of length 1; other dimensions are refused with a list."""
    encoder = WordCounter()
    embeddings = make(encoder)
    with pytest.raises(InvalidInputError, match="has no vectors of 1 values; give 0 or one of: 2"):
        await embeddings.embed(["a b c"], EmbedOptions(dimension=1))
    object.__setattr__(encoder.description, "dimensions", (2, 1))
    assert (await embeddings.embed(["a b c"], EmbedOptions(dimension=1))).vectors["a b c"].tolist() == [1]
    assert (await embeddings.embed(["a b c"], EmbedOptions(dimension=2))).vectors["a b c"].tolist() == [3, 1]


WORDS = st.integers(min_value=1, max_value=12)


@given(
    requests=st.lists(st.tuples(st.sampled_from("abc"), st.lists(WORDS, min_size=1, max_size=8)), max_size=12),
    batch_tokens=st.integers(min_value=1, max_value=40),
    worker_count=st.integers(min_value=1, max_value=3),
    packed=st.booleans(),
)
def test_every_text_is_computed_once_within_the_budget(
    requests: list[tuple[str, list[int]]], batch_tokens: int, worker_count: int, packed: bool
) -> None:
    """Whatever is asked at once: each text of a scope once, no run over the budget, each answer of its own text."""
    encoder = WordCounter(packed=packed)
    reports: list[BatchReport] = []

    async def ask() -> list[Any]:
        embeddings = embeddings_of(
            encoder, batch_tokens=batch_tokens, worker_count=worker_count, cache_bytes=10**6, on_batch=reports.append
        )
        asked = [
            embeddings.embed([("w " * count).strip() for count in words], EmbedOptions(scope))
            for scope, words in requests
        ]
        answers = await asyncio.gather(*asked)
        await embeddings.aclose()
        return answers

    answers = asyncio.run(ask())
    for (_, words), answer in zip(requests, answers, strict=True):
        assert counts(answer, [("w " * count).strip() for count in words]) == [min(count, 8) for count in words]
    different = {(scope, count) for scope, words in requests for count in words}
    computed = sorted(length for run in encoder.seen for length in run)
    assert computed == sorted(min(count, 8) for _, count in different)
    for report in reports:
        cost = sum(report.lengths) if packed else max(report.lengths) * report.texts
        assert cost <= batch_tokens or report.texts == 1


def test_batch_too_large_for_the_device_is_halved() -> None:
    """Running out of device memory halves the batch; one text that does not fit is an error."""
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
