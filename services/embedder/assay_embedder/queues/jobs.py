"""A text's job, from submission to its vector, and the timing of its steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from assay_embedder.models.encoder import Tokens


class Computed(NamedTuple):
    """The vector of one text, and how the model read the text.

    Args:
        vector: All values that the model gives, shape (dimension,), little-endian; read-only.
        token_count: Word pieces that the model read, special ones and the prefix included.
        window_count: Windows that the text was embedded as.
        truncated: Whether the text was longer than the model's window and was cut.
    """

    vector: NDArray[np.float32]
    token_count: int
    window_count: int
    truncated: bool


@dataclass(frozen=True, slots=True, eq=False)
class Phase:
    """One step of work that several texts may share.

    Args:
        started: When it began, by `time.perf_counter`.
        ended: When it was done.
    """

    started: float
    ended: float

    @property
    def ms(self) -> float:
        """Its duration in milliseconds."""
        return (self.ended - self.started) * 1000


@dataclass(slots=True, eq=False)
class Job:
    """One text of one scope, computed once for all requests that wait for it.

    Args:
        key: Its key in the cache.
        text: The text.
        scope: The tenant in whose turn it is computed.
        windowed: Whether a text longer than the model's window is embedded as windows.
        estimated_tokens: Its word pieces, before they are counted.
        entered: When it was submitted, by `time.perf_counter`.
        waiters: Requests that wait for it; set by the event loop alone.
        abandoned: Whether no request waits any more.
        result: Its vector, once known.
        error: Why it has none.
        is_stored: Whether the result comes from the cache on disk.
        lookup: Its search in the cache on disk.
        tokenizing: Its way into word pieces.
        windows: The vector of each window, shape (dimension,), with its word pieces, None until it is known; None for a
            text that is one window.
        runs: The runs of the model that it was part of.
    """

    key: bytes
    text: str
    scope: str
    windowed: bool
    estimated_tokens: int
    entered: float
    waiters: tuple[Any, ...] = ()
    abandoned: bool = False
    result: Computed | None = None
    error: Exception | None = None
    is_stored: bool = False
    lookup: Phase | None = None
    tokenizing: Phase | None = None
    windows: list[tuple[NDArray[np.float32], Tokens] | None] | None = None
    runs: tuple[Phase, ...] = ()

    @property
    def is_wanted(self) -> bool:
        """Whether it is still worth computing: a request waits for it, and no part of it has failed."""
        return not self.abandoned and self.error is None

    @property
    def queued_ms(self) -> float:
        """How long it waited for its word pieces to be made, and then for a run of the model."""
        if self.tokenizing is None:
            return (self.lookup.started - self.entered) * 1000 if self.lookup else 0.0
        began = self.lookup.started if self.lookup else self.tokenizing.started
        waited = self.runs[0].started - self.tokenizing.ended if self.runs else 0.0
        return (began - self.entered + waited) * 1000


@dataclass(frozen=True, slots=True)
class Timing:
    """Where the time of one request went; what was shared with other requests is counted whole.

    Args:
        queue_ms: Longest wait of a text for its word pieces to be made, and then for a run of the model.
        tokenize_ms: Making word pieces of its texts and those taken with them.
        inference_ms: All runs of the model that held a text of it.
        cache_ms: Looking its texts up in the cache.
        cache_hits: Different texts whose vectors were in the cache.
        shared_texts: Different texts that another request was having computed already.
    """

    queue_ms: float
    tokenize_ms: float
    inference_ms: float
    cache_ms: float
    cache_hits: int
    shared_texts: int
