"""Texts of all callers, computed together: a bounded queue and one worker thread per model."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from assay.errors import OverloadedError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

logger = logging.getLogger(__name__)

QUEUE_CHARS = 32 * 1024 * 1024
_GATHERED_BATCHES = 4  # enough texts to sort by length, few enough that a late small request waits little
_CHARS_PER_TOKEN = 4  # only a guess at how much to gather; batches are cut by the real counts


@dataclass(frozen=True, slots=True)
class Tokens:
    """One text as the model reads it.

    Args:
        ids: Word pieces, special ones included, at most the model's window.
        type_ids: One per id.
        truncated: Whether the text was longer than the window.
    """

    ids: Sequence[int]
    type_ids: Sequence[int]
    truncated: bool


class Encoder(Protocol):
    """A model that the worker thread runs."""

    def tokenize(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the word pieces of each text."""

    def encode(self, batch: Sequence[Tokens]) -> NDArray[np.float32]:
        """Return one vector per text, shape (texts, dimension)."""


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vectors of one request.

    Args:
        vectors: Shape (texts, dimension).
        truncated: Positions of texts that were cut to the model's window, ascending.
        queue_ms: Time until a worker took the request.
        tokenize_ms: Time to turn its texts, and those taken with it, into word pieces.
        inference_ms: Time of all batches that held a text of it.
    """

    vectors: NDArray[np.float32]
    truncated: list[int]
    queue_ms: float
    tokenize_ms: float
    inference_ms: float


@dataclass(frozen=True, slots=True)
class BatchReport:
    """What went into one run of the model.

    Args:
        requests: Requests with a text in it.
        texts: Different texts.
        padded_tokens: Word pieces, padding included.
    """

    requests: int
    texts: int
    padded_tokens: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a batcher has done since its start.

    Args:
        requests: Requests accepted.
        refused: Requests refused because the queue was full.
        dropped: Requests whose caller left before all their texts were computed.
        texts: Texts of the accepted requests.
        computed: Texts that the model computed.
        batches: Runs of the model.
        shared_batches: Runs with texts of more than one request.
    """

    requests: int = 0
    refused: int = 0
    dropped: int = 0
    texts: int = 0
    computed: int = 0
    batches: int = 0
    shared_batches: int = 0


@dataclass(slots=True, eq=False)
class _Request:
    """One caller's texts on their way through the worker."""

    texts: Sequence[str]
    future: asyncio.Future[Embedded]
    loop: asyncio.AbstractEventLoop
    chars: int
    entered: float = field(default_factory=time.perf_counter)
    queue_ms: float = 0.0
    tokenize_ms: float = 0.0
    inference_ms: float = 0.0
    missing: int = 0

    @property
    def abandoned(self) -> bool:
        """Whether no caller waits for the answer any more."""
        return self.future.done()

    def settle(self, outcome: Embedded | Exception) -> None:
        """Hand the outcome over to the caller's event loop."""

        def hand_over() -> None:
            if self.future.done():
                return
            if isinstance(outcome, Exception):
                self.future.set_exception(outcome)
            else:
                self.future.set_result(outcome)

        try:
            self.loop.call_soon_threadsafe(hand_over)
        except RuntimeError:
            logger.debug("answer dropped: its event loop is closed")


class _Group:
    """Requests that one worker took together: their different texts, and what is known of each."""

    def __init__(self, requests: Sequence[_Request]) -> None:
        self.requests = requests
        self.users: dict[str, list[_Request]] = {}
        for request in requests:
            different = dict.fromkeys(request.texts)
            request.missing = len(different)
            for text in different:
                self.users.setdefault(text, []).append(request)
        self.tokens: dict[str, Tokens] = {}
        self.vectors: dict[str, NDArray[np.float32]] = {}

    def wanted(self, texts: Iterable[str]) -> list[str]:
        """Return those texts that a caller still waits for."""
        return [text for text in texts if any(not request.abandoned for request in self.users[text])]

    def users_of(self, texts: Iterable[str]) -> list[_Request]:
        """Return the requests that hold any of these texts, each once."""
        return list(dict.fromkeys(request for text in texts for request in self.users[text]))

    def answer(self, request: _Request) -> Embedded:
        """Return the answer of a request all of whose texts are computed."""
        return Embedded(
            vectors=np.stack([self.vectors[text] for text in request.texts]),
            truncated=[at for at, text in enumerate(request.texts) if self.tokens[text].truncated],
            queue_ms=request.queue_ms,
            tokenize_ms=request.tokenize_ms,
            inference_ms=request.inference_ms,
        )


class Batcher:
    """Computes the texts of many callers together in one thread, so that the event loop never waits.

    While the model runs, requests gather; then they are taken together, identical texts once, sorted by
    length and cut into runs of the model by a budget of word pieces. A request whose caller has left is
    dropped before it costs compute.

    Args:
        encoder: The model; used by the worker thread alone.
        max_batch_tokens: Word pieces per run, padding included; a longer single text runs alone.
        queue_limit: Texts that may wait; more are refused.
        on_batch: Called by the worker before each run, e.g. to observe how requests share runs.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        max_batch_tokens: int,
        queue_limit: int,
        on_batch: Callable[[BatchReport], None] | None = None,
    ) -> None:
        self._encoder = encoder
        self._max_batch_tokens = max_batch_tokens
        self._queue_limit = queue_limit
        self._on_batch = on_batch
        self._waiting: deque[_Request] = deque()
        self._waiting_texts = 0
        self._waiting_chars = 0
        self._texts_per_s = 0.0
        self._closed = False
        self._statistics = Statistics()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="embedder-worker", daemon=True)
        self._thread.start()

    @property
    def statistics(self) -> Statistics:
        """What was done so far."""
        return self._statistics

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return the vectors of some texts, in order.

        Args:
            texts: At least one text.

        Raises:
            OverloadedError: Too many texts wait already (reason QUEUE_FULL).
            UnavailableError: The batcher is closed.
        """
        loop = asyncio.get_running_loop()
        request = _Request(texts, loop.create_future(), loop, sum(map(len, texts)))
        with self._changed:
            self._admit(request)
            self._changed.notify()
        return await request.future

    async def aclose(self) -> None:
        """Refuse what waits, let the running group end, and end the worker."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join)

    def _admit(self, request: _Request) -> None:
        if self._closed:
            raise UnavailableError("The embedder is stopping; ask again.", reason="STOPPING")
        full = self._waiting_texts + len(request.texts) > self._queue_limit
        if full or (self._waiting and self._waiting_chars + request.chars > QUEUE_CHARS):
            self._count(refused=1)
            retry_after_s = min(max(self._waiting_texts / self._texts_per_s, 0.1), 30) if self._texts_per_s else 1.0
            message = f"{self._waiting_texts} texts are waiting already; try again in {retry_after_s:.1f} s."
            raise OverloadedError(message, retry_after_s=retry_after_s, reason="QUEUE_FULL")
        self._waiting.append(request)
        self._waiting_texts += len(request.texts)
        self._waiting_chars += request.chars
        self._count(requests=1, texts=len(request.texts))

    def _count(self, **added: int) -> None:
        """Add to the statistics; called with the condition held."""
        now = self._statistics
        self._statistics = replace(now, **{name: getattr(now, name) + more for name, more in added.items()})

    def _work(self) -> None:
        while requests := self._take():
            started = time.perf_counter()
            try:
                self._compute(_Group(requests))
            except Exception as error:  # the boundary of a task: every waiting request gets it
                logger.exception("model failed: requests=%d", len(requests))
                for request in requests:
                    request.settle(error)
            self._texts_per_s = sum(len(request.texts) for request in requests) / (time.perf_counter() - started)

    def _take(self) -> list[_Request]:
        """Wait for requests and take some; return none when the batcher is closed."""
        taken: list[_Request] = []
        enough_chars = self._max_batch_tokens * _GATHERED_BATCHES * _CHARS_PER_TOKEN
        with self._changed:
            while not taken:
                self._changed.wait_for(lambda: self._closed or self._waiting)
                if self._closed:
                    self._refuse_waiting()
                    return []
                chars = 0
                while self._waiting and (not taken or chars < enough_chars):
                    request = self._waiting.popleft()
                    self._waiting_texts -= len(request.texts)
                    self._waiting_chars -= request.chars
                    if request.abandoned:
                        self._count(dropped=1)
                        continue
                    request.queue_ms = (time.perf_counter() - request.entered) * 1000
                    chars += request.chars
                    taken.append(request)
        return taken

    def _refuse_waiting(self) -> None:
        for request in self._waiting:
            request.settle(UnavailableError("The embedder is stopping; ask again.", reason="STOPPING"))
        self._waiting.clear()

    def _compute(self, group: _Group) -> None:
        started = time.perf_counter()
        texts = list(group.users)
        group.tokens = dict(zip(texts, self._encoder.tokenize(texts), strict=True))
        tokenize_ms = (time.perf_counter() - started) * 1000
        for request in group.requests:
            request.tokenize_ms = tokenize_ms
        # The longest first: what takes most memory fails at once, not after the rest was computed.
        texts.sort(key=lambda text: len(group.tokens[text].ids), reverse=True)
        while texts := group.wanted(texts):
            batch = self._cut(texts, group)
            self._run(batch, group)
            texts = texts[len(batch) :]
        with self._changed:
            self._count(dropped=sum(request.missing > 0 for request in group.requests))

    def _cut(self, texts: Sequence[str], group: _Group) -> Sequence[str]:
        """Return the first texts that fit into one run; they are sorted, so the first is the longest."""
        longest = len(group.tokens[texts[0]].ids)
        return texts[: max(1, self._max_batch_tokens // max(1, longest))]

    def _run(self, batch: Sequence[str], group: _Group) -> None:
        users = group.users_of(batch)
        width = max(len(group.tokens[text].ids) for text in batch)
        if self._on_batch is not None:
            self._on_batch(BatchReport(len(users), len(batch), width * len(batch)))
        started = time.perf_counter()
        vectors = self._encoder.encode([group.tokens[text] for text in batch])
        inference_ms = (time.perf_counter() - started) * 1000
        if not np.isfinite(vectors).all():
            raise ArithmeticError("the model gave a vector that is not finite")
        group.vectors.update(zip(batch, vectors, strict=True))
        with self._changed:
            self._count(batches=1, computed=len(batch), shared_batches=int(len(users) > 1))
        for text in batch:
            for request in group.users[text]:
                request.missing -= 1
        for request in users:
            request.inference_ms += inference_ms
            if not request.missing:
                request.settle(group.answer(request))
