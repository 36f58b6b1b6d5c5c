"""The vectors of one model for a request: cached, already being computed, or new."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

from assay.errors import InvalidInputError, OverloadedError, Problem
from assay_embedder.queues.batcher import Batcher
from assay_embedder.queues.jobs import Job, Timing
from assay_embedder.queues.observed_model import ObservedModel
from assay_embedder.queues.tokenizing import estimated_tokens
from assay_embedder.queues.windows import normalized

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from assay_embedder.caches.vector_cache import ModelCache
    from assay_embedder.models.loading import Description
    from assay_embedder.queues.batcher import BatchReport, Limits, Statistics, Worker
    from assay_embedder.queues.jobs import Computed, Phase


@dataclass(frozen=True, slots=True)
class EmbedOptions:
    """How texts are embedded, and for which tenant.

    Args:
        scope: The tenant; scopes are served in turn and share no cached vector.
        dimension: Values per vector; 0 for all.
        windowed: Whether long texts are embedded as windows instead of being cut.
        waits: Whether the request waits for room in a full queue instead of being refused.
    """

    scope: str = ""
    dimension: int = 0
    windowed: bool = False
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vectors of one request.

    Args:
        vectors: The vector of each different text, shape (dimension,) each.
        computed: How the model read each different text.
        timing: Where the time went.
    """

    vectors: dict[str, NDArray[np.float32]]
    computed: dict[str, Computed]
    timing: Timing


@dataclass(slots=True, eq=False)
class _Request:
    """One request and the jobs that it waits for."""

    complete: asyncio.Future[None]
    found: dict[str, Computed] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    shared_texts: int = 0
    missing: int = 0
    cache_ms: float = 0.0

    def note(self, job: Job) -> None:
        """Record that one of its jobs has a result or an error."""
        self.missing -= 1
        if self.complete.done():
            return
        if job.error is not None:
            self.complete.set_exception(job.error)
        elif not self.missing:
            self.complete.set_result(None)


class Embeddings:
    """The vectors of one model's texts, each computed once for all requests of a scope that want it at the same time.

    Belongs to the event loop in which it was made.

    Args:
        description: The model.
        workers: The threads to run it in.
        limits: How much is computed and kept.
        cache: Where vectors are kept.
        on_batch: Called before each run of the model.
    """

    def __init__(
        self,
        description: Description,
        workers: Sequence[Worker],
        limits: Limits,
        *,
        cache: ModelCache,
        on_batch: Callable[[BatchReport], None] | None = None,
    ) -> None:
        self._description = description
        self._limits = limits
        self._cache = cache
        self._loop = asyncio.get_running_loop()
        self._flights: dict[bytes, Job] = {}
        self._room = asyncio.Event()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._observed = ObservedModel(description.name)
        find_stored = cache.disk.find if cache.disk else None
        self._batcher = Batcher(
            workers,
            limits,
            settle=self._settle,
            find_stored=find_stored,
            on_batch=on_batch,
            observed=self._observed,
        )

    @property
    def statistics(self) -> Statistics:
        """Counts of requests and runs since the start."""
        return self._batcher.statistics

    async def embed(self, texts: Sequence[str], options: EmbedOptions = EmbedOptions()) -> Embedded:
        """Return the vectors of some texts.

        Args:
            texts: At least one text.
            options: How, and for which tenant.

        Raises:
            InvalidInputError: The model has no vectors of the dimension.
            OverloadedError: Too much waits already (reason QUEUE_FULL).
            UnavailableError: The model is being closed.
        """
        self._check_dimension(options.dimension)
        started = time.perf_counter()
        keys = self._cache.keys.keys(texts, scope=options.scope, windowed=options.windowed)
        hashing_ms = (time.perf_counter() - started) * 1000
        request = await self._admitted(keys, options)
        request.cache_ms += hashing_ms
        try:
            await request.complete
        finally:
            self._leave(request)
        computed = request.found | {text: job.result for text, job in request.jobs.items() if job.result is not None}
        vectors = {text: each.vector for text, each in computed.items()}
        if options.dimension not in (0, self._description.dimension):
            vectors = {text: normalized(vector[: options.dimension]) for text, vector in vectors.items()}
        timing = _timing(request)
        self._observed.answered(timing, len(computed))
        return Embedded(vectors, computed, timing)

    async def aclose(self) -> None:
        """Refuse waiting jobs, finish the running batches and end the threads."""
        await asyncio.to_thread(self._batcher.close)
        self._room.set()

    def _check_dimension(self, dimension: int) -> None:
        offered = offered_dimensions(self._description)
        if dimension and dimension not in offered:
            shown = ", ".join(map(str, offered))
            message = (
                f"the model {self._description.name} has no vectors of {dimension} values; give 0 or one of: {shown}"
            )
            raise InvalidInputError([Problem(message, field="dimension")])

    async def _admitted(self, keys: dict[str, bytes], options: EmbedOptions) -> _Request:
        """Return the request once its jobs are in the queue; requests of a scope that wait are admitted in order."""
        turn = self._turns.setdefault(options.scope, asyncio.Lock())
        if not turn.locked():
            try:
                return self._join(keys, options)
            except OverloadedError:
                if not options.waits:
                    raise
        elif not options.waits:
            self._refuse()
            raise self._batcher.overloaded(options.scope)
        async with turn:
            while True:
                self._room.clear()
                try:
                    return self._join(keys, options)
                except OverloadedError:
                    await self._room.wait()

    def _join(self, keys: dict[str, bytes], options: EmbedOptions) -> _Request:
        """Take known vectors, join running jobs, and submit the rest."""
        started = time.perf_counter()
        request = _Request(self._loop.create_future())
        new: list[Job] = []
        for text, key in keys.items():
            if (known := self._cache.memory.get(key)) is not None:
                request.found[text] = known
            elif (flight := self._flights.get(key)) is not None:
                request.jobs[text] = flight
            else:
                tokens = estimated_tokens(text, self._limits.max_tokens, windowed=options.windowed)
                request.jobs[text] = job = Job(key, text, options.scope, options.windowed, tokens, started)
                new.append(job)
        request.cache_ms = (time.perf_counter() - started) * 1000
        self._submit(new, options)
        waiter = (request,)
        for job in request.jobs.values():
            job.waiters += waiter
        request.missing = len(request.jobs)
        request.shared_texts = request.missing - len(new)
        if not request.missing:
            request.complete.set_result(None)
        return request

    def _submit(self, jobs: Sequence[Job], options: EmbedOptions) -> None:
        try:
            self._batcher.submit(jobs)
        except OverloadedError:
            if not options.waits:
                self._refuse()
            raise
        self.statistics.requests += 1
        self._flights.update({job.key: job for job in jobs})

    def _refuse(self) -> None:
        self.statistics.refused += 1
        self._observed.refused.inc()

    def _settle(self, jobs: list[Job]) -> None:
        """Hand finished jobs over to the event loop; called by the batcher's threads."""
        try:
            self._loop.call_soon_threadsafe(self._settled, jobs)
        except RuntimeError:  # the event loop is closed, and with it every request
            return

    def _settled(self, jobs: Sequence[Job]) -> None:
        computed: list[tuple[bytes, Computed]] = []
        for job in jobs:
            if self._flights.get(job.key) is job:
                del self._flights[job.key]
            if job.result is not None:
                self._cache.memory.put(job.key, job.result)
                if not job.is_stored:
                    computed.append((job.key, job.result))
            for request in job.waiters:
                request.note(job)
            job.waiters = ()
        if self._cache.disk is not None and computed:
            self._cache.disk.store(computed)
        self._room.set()

    def _leave(self, request: _Request) -> None:
        """Detach a request from its unfinished jobs; abandon jobs that no other request waits for."""
        if request.complete.cancelled():
            self.statistics.dropped += 1
            self._observed.dropped.inc()
        if not request.missing:
            return
        waited = [job for job in request.jobs.values() if request in job.waiters]
        for job in waited:
            job.waiters = tuple(waiter for waiter in job.waiters if waiter is not request)
        abandoned = [job for job in waited if not job.waiters]
        for job in abandoned:
            if self._flights.get(job.key) is job:
                del self._flights[job.key]
        self._batcher.abandon(abandoned)
        self._room.set()


def offered_dimensions(description: Description) -> list[int]:
    """Return the dimensions that a request may ask of a model, ascending, the full one last."""
    return sorted({*description.dimensions, description.dimension})


def _timing(request: _Request) -> Timing:
    jobs = request.jobs.values()
    # Jobs that were taken together have the same times.
    different = {(job.entered, job.lookup, job.tokenizing, job.runs): job for job in jobs}.values()
    return Timing(
        queue_ms=max((job.queued_ms for job in different), default=0.0),
        tokenize_ms=_total_ms(job.tokenizing for job in different),
        inference_ms=_total_ms(run for job in different for run in job.runs),
        cache_ms=request.cache_ms + _total_ms(job.lookup for job in different),
        cache_hits=len(request.found) + sum([job.is_stored for job in jobs]),
        shared_texts=request.shared_texts,
    )


def _total_ms(phases: Iterable[Phase | None]) -> float:
    return sum(phase.ms for phase in set(phases) if phase is not None)
