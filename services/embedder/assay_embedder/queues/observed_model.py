"""The instruments of one model, looked up once because runs are frequent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.telemetry.instruments import bounded_label
from assay_embedder import instruments

if TYPE_CHECKING:
    from assay_embedder.queues.jobs import Timing


class ObservedModel:
    """Counts and measures the work for one model.

    Args:
        name: The model's name.
    """

    def __init__(self, name: str) -> None:
        name = bounded_label("model", name)
        self.queued = instruments.QUEUED_TEXTS.series(name)
        self.refused = instruments.REQUESTS.series(name, "refused")
        self.dropped = instruments.REQUESTS.series(name, "dropped")
        self._answered = instruments.REQUESTS.series(name, "answered")
        self._batch_texts = instruments.BATCH_TEXTS.series(name)
        self._batch_tokens = instruments.BATCH_TOKENS.series(name)
        self._computed, self._cached, self._shared = (
            instruments.TEXTS.series(name, source) for source in ("computed", "cache", "shared")
        )
        self._phases = {
            phase: instruments.PHASES.series(name, phase) for phase in ("cache", "queue", "tokenize", "inference")
        }

    def answered(self, timing: Timing, text_count: int) -> None:
        """Count an answered request.

        Args:
            timing: Where its time went.
            text_count: Its different texts.
        """
        self._answered.inc()
        self._cached.inc(timing.cache_hits)
        self._shared.inc(timing.shared_texts)
        # A shared text may turn out to be on disk, and is then counted as both.
        self._computed.inc(max(0, text_count - timing.cache_hits - timing.shared_texts))
        phases = self._phases
        phases["cache"].observe(timing.cache_ms / 1000)
        phases["queue"].observe(timing.queue_ms / 1000)
        phases["tokenize"].observe(timing.tokenize_ms / 1000)
        phases["inference"].observe(timing.inference_ms / 1000)

    def run(self, texts: int, tokens: int) -> None:
        """Count a run of the model over some texts with some word pieces."""
        self._batch_texts.observe(texts)
        self._batch_tokens.observe(tokens)
