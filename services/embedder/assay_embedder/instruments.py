"""Counters and gauges of an embedder process for Prometheus; cache hits and misses are totals over all scopes."""

from __future__ import annotations

from assay.telemetry.instruments import COUNTS, FAST_S, Counter, Gauge, Histogram

TEXTS = Counter(
    "assay_embedder_texts_total",
    "Different texts of requests by the source of their vectors: computed, cache, or shared with a request in flight",
    ("model", "source"),
)
REQUESTS = Counter(
    "assay_embedder_requests_total",
    "Requests, by outcome: answered, refused because the queue was full, or dropped because the caller left",
    ("model", "outcome"),
)
PHASES = Histogram(
    "assay_embedder_phase_seconds",
    "Time of answered requests by phase: cache, queue, tokenize, inference",
    ("model", "phase"),
    buckets=FAST_S,
)
BATCH_TEXTS = Histogram("assay_embedder_batch_texts", "Texts in one run of the model", ("model",), buckets=COUNTS)
BATCH_TOKENS = Histogram(
    "assay_embedder_batch_tokens",
    "Word pieces in one run of the model",
    ("model",),
    buckets=tuple(16.0 * bound for bound in COUNTS),
)
QUEUED_TEXTS = Gauge("assay_embedder_queue_texts", "Texts that wait for a run of the model", ("model",))
MODELS = Gauge("assay_embedder_models", "Models in memory")
