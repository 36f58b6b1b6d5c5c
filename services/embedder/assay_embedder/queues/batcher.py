"""The batcher of one model: one queue for all callers, one tokenizing thread, and the workers."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from assay.errors import OverloadedError, UnavailableError
from assay_embedder.queues.admission import Admission, Load
from assay_embedder.queues.fair_queue import FairQueue
from assay_embedder.queues.jobs import Computed, Job, Phase
from assay_embedder.queues.observed_model import ObservedModel
from assay_embedder.queues.ready_queue import Piece, ReadyQueue
from assay_embedder.queues.tokenizing import pieces_of
from assay_embedder.queues.windows import averaged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from assay_embedder.models.encoder import Encoder, Tokens

logger = logging.getLogger(__name__)

_FLOAT32 = np.dtype("<f4")
_scope_of = attrgetter("scope")


@dataclass(frozen=True, slots=True)
class Worker:
    """One thread that runs the model.

    Args:
        encoder: The model, or its copy on one GPU.
        prepare: Called in the thread before its first run, e.g. to set its number of arithmetic threads.
    """

    encoder: Encoder
    prepare: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a batcher computes and keeps.

    Args:
        max_tokens: The model's window in word pieces.
        batch_tokens: Word pieces per run, padding included where the model pads; a longer single text runs alone.
        queue: What one scope may have waiting; more is refused.
        divides: Whether few texts are divided over idle workers; two workers of one GPU share its compute.
    """

    max_tokens: int
    batch_tokens: int
    queue: Load
    divides: bool = True


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What went into one run of the model.

    Args:
        requests: Requests that wait for a text of it.
        scopes: Their scopes, each once, in the order of the texts.
        lengths: Word pieces of each text, in order.
    """

    requests: int
    scopes: tuple[str, ...]
    lengths: tuple[int, ...]

    @property
    def texts(self) -> int:
        """Texts and windows in the run."""
        return len(self.lengths)


@dataclass(slots=True)
class Statistics:
    """What was done for one model since its start.

    Args:
        requests: Requests accepted.
        refused: Requests refused because the queue was full.
        dropped: Requests whose caller left before all their texts were computed.
        computed: Texts, or windows of texts, that the model computed.
        batches: Runs of the model.
    """

    requests: int = 0
    refused: int = 0
    dropped: int = 0
    computed: int = 0
    batches: int = 0


def stopping() -> UnavailableError:
    """Return the error of what is not computed any more."""
    return UnavailableError("The embedder is stopping; ask again.", reason="STOPPING")


class Batcher:
    """Computes the texts of many callers in threads, so that the event loop never waits.

    A thread takes texts from the queue, scope by scope in turn, and tokenizes them as far ahead as the workers need; a
    worker that is free takes what is ready, up to its budget of word pieces, and never waits for more. A text that no
    caller wants any more is dropped before it costs compute.

    Args:
        workers: The threads to run the model in; their encoders give equal vectors.
        limits: How much it computes and keeps.
        settle: Called by the threads with jobs that have their result or error.
        find_stored: Returns the results that are in the cache on disk, by key; None for no such cache.
        on_batch: Called by a worker before each run, e.g. to observe how requests share runs.
        observed: Takes what is measured; None for none.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        limits: Limits,
        *,
        settle: Callable[[list[Job]], None],
        find_stored: Callable[[Sequence[bytes]], Mapping[bytes, Computed]] | None = None,
        on_batch: Callable[[BatchReport], None] | None = None,
        observed: ObservedModel | None = None,
    ) -> None:
        self.statistics = Statistics()
        self._observed = observed or ObservedModel("")
        self._limits = limits
        self._settle = settle
        self._find_stored = find_stored
        self._on_batch = on_batch
        self._encoder = workers[0].encoder
        self._admission = Admission(limits.queue)
        self._queue = FairQueue(limits.batch_tokens)
        self._ready = ReadyQueue(
            budget_tokens=limits.batch_tokens, packed=self._encoder.packed, worker_count=len(workers)
        )
        self._idle_workers = 0
        self._tokens_per_s = 0.0
        self._closed = False
        self._lock = threading.Lock()
        self._tokenizable, self._computable = threading.Condition(self._lock), threading.Condition(self._lock)
        self._threads = [threading.Thread(target=self._tokenize, name="embedder-tokenizer", daemon=True)]
        for number, worker in enumerate(workers):
            name = f"embedder-worker-{number}"
            self._threads.append(threading.Thread(target=self._work, args=(worker,), name=name, daemon=True))
        for thread in self._threads:
            thread.start()

    def submit(self, jobs: Sequence[Job]) -> None:
        """Accept all jobs of one request of one scope, or none.

        Raises:
            OverloadedError: Too much waits already (reason QUEUE_FULL).
            UnavailableError: The batcher is closed.
        """
        with self._lock:
            if self._closed:
                raise stopping()
            if not jobs:
                return
            scope, load = jobs[0].scope, _load(jobs)
            if not self._admission.admits(scope, load):
                raise self.overloaded(scope)
            self._admission.add(scope, load)
            self._queue.add(jobs)
            self._tokenizable.notify()
            self._observed.queued.set(self._admission.total.texts)

    def abandon(self, jobs: Sequence[Job]) -> None:
        """Drop jobs that no request waits for, except those that a worker is computing."""
        with self._lock:
            for job in jobs:
                job.abandoned = True
            self._forget(job for job in jobs if self._queue.remove(job))

    def close(self) -> None:
        """Refuse waiting jobs, finish the running batches and end the threads; block until they have ended."""
        with self._lock:
            self._closed = True
            refused = [*self._queue.take_all(), *dict.fromkeys(piece.job for piece in self._ready.take_all())]
            self._tokenizable.notify_all()
            self._computable.notify_all()
        self._fail(refused, stopping())
        for thread in self._threads:
            thread.join()
        with suppress(AttributeError):  # closed before
            # Not left to the garbage collector: a thread that still lets go of this call would keep it from the model.
            del self._encoder

    def overloaded(self, scope: str) -> OverloadedError:
        waiting, rate = self._admission.waiting(scope), self._tokens_per_s * (len(self._threads) - 1)
        retry_after_s = min(max(self._admission.total.tokens / rate, 0.1), 30.0) if rate else 1.0
        message = f"{waiting.texts} texts are waiting already; try again in {retry_after_s:.1f} s."
        return OverloadedError(message, retry_after_s=retry_after_s, reason="QUEUE_FULL")

    def _fail(self, jobs: Iterable[Job], error: Exception) -> None:
        failed = list(jobs)
        for job in failed:
            job.error = job.error or error
        if failed:
            self._settle(failed)

    # The thread that tokenizes.

    def _tokenize(self) -> None:
        while jobs := self._next_jobs():
            pending: Sequence[Job] = jobs
            try:
                pending = self._not_stored(jobs)
                started = time.perf_counter()
                pieces = pieces_of(pending, self._encoder, self._limits.max_tokens)
            except Exception as error:  # the boundary of a task: the requests of the texts get it
                logger.exception("tokenizer failed: texts=%d", len(pending))
                self._refund(pending)
                self._fail(pending, error)
                continue
            tokenizing = Phase(started, time.perf_counter())
            for job in pending:
                job.tokenizing = tokenizing
            self._add_ready(pending, pieces)

    def _next_jobs(self) -> list[Job]:
        """Return the next jobs once the workers need more; none when the batcher is closed."""
        with self._lock:
            self._tokenizable.wait_for(lambda: self._closed or (self._queue and self._ready.has_room))
            return [] if self._closed else self._queue.take()

    def _not_stored(self, jobs: Sequence[Job]) -> list[Job]:
        """Settle the jobs whose results are on disk; return the others."""
        if self._find_stored is None:
            return list(jobs)
        started = time.perf_counter()
        results = self._find_stored([job.key for job in jobs])
        lookup = Phase(started, time.perf_counter())
        for job in jobs:
            job.lookup, job.result = lookup, results.get(job.key)
            job.is_stored = job.result is not None
        if results:
            stored = [job for job in jobs if job.is_stored]
            self._refund(stored)
            self._settle(stored)
        return [job for job in jobs if not job.is_stored]

    def _add_ready(self, jobs: Sequence[Job], pieces: Sequence[Piece]) -> None:
        failed = [job for job in jobs if job.error is not None]
        with self._lock:
            if self._closed:
                failed = list(jobs)
            elif jobs:
                extra = self._ready.add(pieces) - sum([job.estimated_tokens for job in jobs])
                self._queue.charge(jobs[0].scope, extra)
                self._computable.notify(len(pieces))
        self._release(failed)
        self._fail(failed, stopping())

    def _refund(self, jobs: Sequence[Job]) -> None:
        """Release jobs of one scope that are not computed, and charge the scope nothing for them."""
        with self._lock:
            self._forget(jobs)
            if jobs:
                self._queue.charge(jobs[0].scope, -sum([job.estimated_tokens for job in jobs]))

    def _release(self, jobs: Iterable[Job]) -> None:
        with self._lock:
            self._forget(jobs)

    def _forget(self, jobs: Iterable[Job]) -> None:
        """Count jobs that no longer wait; called with the lock held."""
        for scope, some in groupby(jobs, _scope_of):
            self._admission.release(scope, _load(list(some)))
        self._observed.queued.set(self._admission.total.texts)

    # The workers.

    def _work(self, worker: Worker) -> None:
        is_prepared = False
        while (run := self._next_run()) is not None:
            try:
                if not is_prepared:
                    worker.prepare()
                    is_prepared = True
                self._announce(run)
            except Exception as error:  # noqa: BLE001 - the boundary of a task: the requests of the texts get it
                self._fail_run(run, error)
                continue
            self._compute(run, worker.encoder)

    def _compute(self, run: Sequence[Piece], encoder: Encoder) -> None:
        """Run the model; if it fails on a batch, run each text alone so that one text fails no other."""
        started = time.perf_counter()
        try:
            vectors = _separate(encoder.encode([piece.tokens for piece in run]), len(run))
        except Exception as error:  # noqa: BLE001 - the boundary of a task, as above
            if len(run) == 1:
                self._fail_run(run, error)
                return
            for piece in run:
                if piece.job.is_wanted:
                    self._compute([piece], encoder)
            return
        self._finish(run, vectors, Phase(started, time.perf_counter()))

    def _fail_run(self, run: Sequence[Piece], error: Exception) -> None:
        logger.error("model failed: texts=%d", len(run), exc_info=error)
        self._fail(dict.fromkeys(piece.job for piece in run if piece.job.error is None), error)

    def _next_run(self) -> list[Piece] | None:
        """Return the next run once there is one; None when the batcher is closed."""
        with self._lock:
            self._idle_workers += 1
            try:
                run: list[Piece] = []
                while not run:
                    self._computable.wait_for(lambda: self._closed or self._ready)
                    if self._closed:
                        return None
                    run = self._take_run()
                    if not run:
                        self._settle([])  # texts that no request wanted any more have made room for others
                return run
            finally:
                self._idle_workers -= 1

    def _take_run(self) -> list[Piece]:
        """Take a run from the ready queue; called with the lock held."""
        taken = self._ready.take(self._idle_workers if self._limits.divides else 1)
        self._forget([piece.job for piece in taken if not piece.at])
        self._tokenizable.notify()
        return [piece for piece in taken if piece.job.is_wanted]

    def _announce(self, run: Sequence[Piece]) -> None:
        lengths = [len(piece.tokens.ids) for piece in run]
        self._observed.run(len(run), sum(lengths))
        if self._on_batch is not None:
            requests = {waiter for piece in run for waiter in piece.job.waiters}
            scopes = tuple(dict.fromkeys(piece.job.scope for piece in run))
            self._on_batch(BatchReport(len(requests), scopes, tuple(lengths)))

    def _finish(self, run: Sequence[Piece], vectors: Sequence[NDArray[np.float32] | None], phase: Phase) -> None:
        """Give the jobs of a run their vectors, and settle those that are complete."""
        with self._lock:
            self.statistics.batches += 1
            self.statistics.computed += len(run)
            rate = sum([piece.length for piece in run]) / max(phase.ended - phase.started, 1e-9)
            self._tokens_per_s = 0.8 * self._tokens_per_s + 0.2 * rate if self._tokens_per_s else rate
            outcomes, runs = zip(run, vectors, strict=True), (phase,)
            complete = [piece.job for piece, vector in outcomes if _completes(piece, vector, runs)]
        self._settle(complete)


def _separate(vectors: NDArray[np.float32], count: int) -> list[NDArray[np.float32] | None]:
    """Split an array into read-only vectors, each in its own memory; None stands for one that is not finite.

    A view of a row would keep the whole array in memory.
    """
    if len(vectors) != count:
        raise ValueError(f"the model gave {len(vectors)} vectors for {count} texts")
    usable = np.atleast_1d(np.isfinite(vectors).all(axis=1)).tolist()
    return [
        np.frombuffer(vector.tobytes(), _FLOAT32) if ok else None
        for vector, ok in zip(vectors.astype(_FLOAT32, copy=False), usable, strict=True)
    ]


def _completes(piece: Piece, vector: NDArray[np.float32] | None, runs: tuple[Phase]) -> bool:
    """Record a run's vector of a text or window; return whether that completes its job."""
    job = piece.job
    if runs[0] not in job.runs:
        job.runs += runs
    if job.error is not None:
        return False
    if vector is None:
        job.error = ArithmeticError("the model gave a vector that is not finite")
    elif job.windows is None:
        job.result = Computed(vector, len(piece.tokens.ids), 1, piece.tokens.truncated)
    else:
        job.windows[piece.at] = (vector, piece.tokens)
        windows = [window for window in job.windows if window is not None]
        if len(windows) < len(job.windows):
            return False
        job.result = _joined(windows)
    return True


def _joined(windows: Sequence[tuple[NDArray[np.float32], Tokens]]) -> Computed:
    counts = [len(tokens.ids) for _, tokens in windows]
    vector = averaged([vector for vector, _ in windows], counts)
    vector.flags.writeable = False
    return Computed(vector, sum(counts), len(windows), any(tokens.truncated for _, tokens in windows))


def _load(jobs: Sequence[Job]) -> Load:
    return Load(len(jobs), sum([len(job.text) for job in jobs]), sum([job.estimated_tokens for job in jobs]))
