"""A model with predictable vectors that a test can pause."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from assay_embedder.caches.vector_cache import KeyMaker, ModelCache, VectorCache
from assay_embedder.embeddings import Embeddings
from assay_embedder.models.encoder import Tokens
from assay_embedder.models.loading import Description
from assay_embedder.queues.admission import Load
from assay_embedder.queues.batcher import BatchReport, Limits, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from assay_embedder.caches.disk_cache import DiskCache

WINDOW = 8


class WordCounter:
    """A model with one token per word; its vectors are (number of words, 1).

    It computes only while the test allows it to.

    Args:
        packed: Whether it reports that it needs no padding.
        window: The longest input, in words.
    """

    def __init__(self, *, packed: bool = False, window: int = WINDOW) -> None:
        self.packed = packed
        self.description = Description("words", "r1", 2, window, "cpu", "exact", "", True)
        self.window = window
        self.running = threading.Event()
        self.let_run = threading.Event()
        self.let_run.set()
        self.seen: list[list[int]] = []
        self.read_chars = 0
        self.failure: Exception | None = None

    def tokenize(self, texts: Sequence[str]) -> list[Tokens]:
        self.read_chars += sum(map(len, texts))
        window = self.window
        lengths = [len(text.split()) for text in texts]
        return [Tokens([0] * min(length, window), [0] * min(length, window), length > window) for length in lengths]

    def encode(self, batch: Sequence[Tokens]) -> NDArray[np.float32]:
        self.running.set()
        self.let_run.wait()
        self.seen.append([len(tokens.ids) for tokens in batch])
        if self.failure is not None:
            raise self.failure
        return np.array([[len(tokens.ids), 1] for tokens in batch], dtype=np.float32)


def embeddings_of(
    encoder: WordCounter,
    *,
    batch_tokens: int = 64,
    queue_limit: int = 100,
    worker_count: int = 1,
    cache_bytes: int = 0,
    disk: DiskCache | None = None,
    on_batch: Callable[[BatchReport], None] | None = None,
    divides: bool = True,
) -> Embeddings:
    """Return an embedding service over a word counter; the caller closes it."""
    limits = Limits(encoder.description.max_tokens, batch_tokens, Load(queue_limit, 10**9, 10**9), divides)
    return Embeddings(
        encoder.description,
        [Worker(encoder)] * worker_count,
        limits,
        cache=ModelCache(KeyMaker(("words",)), VectorCache(cache_bytes), disk),
        on_batch=on_batch,
    )
