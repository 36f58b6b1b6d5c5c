"""The Prometheus instruments of a judge process; cache hits and misses are summed over all teams."""

from __future__ import annotations

from assay.telemetry.instruments import SLOW_S, Counter, Gauge, Histogram

VERDICTS = Counter(
    "assay_judge_verdicts_total",
    "Requests for a verdict that were answered, by status and by the reason of a missing verdict",
    ("status", "reason"),
)
CACHE = Counter(
    "assay_judge_cache_requests_total",
    "Looks into the cache of verdicts: hit, miss, or joined to an identical request in flight",
    ("result",),
)
IN_FLIGHT = Gauge("assay_judge_verdicts_in_flight", "Requests for a verdict that are worked on")
CALLS = Counter(
    "assay_judge_calls_total",
    "Calls of a judge's provider by outcome (replied, http_429, unreachable, malformed, broken_off, …), direct or in a"
    " batch",
    ("model", "via", "outcome"),
)
CALL_SECONDS = Histogram("assay_judge_call_seconds", "Duration of direct calls of a judge", ("model",), buckets=SLOW_S)
RETRIES = Counter("assay_judge_retries_total", "Calls that were repeated after a failure", ("model",))
TOKENS = Counter("assay_judge_tokens_total", "Tokens of a judge's calls, input and output", ("model", "direction"))
COST = Counter("assay_judge_cost_dollars_total", "What a judge's calls have cost, in US dollars", ("model",))
BATCH_ORDERS = Gauge(
    "assay_judge_batch_orders",
    "Verdicts that are ordered through a provider's batch API and not there yet, of all replicas of a database",
    ("provider",),
)
BATCH_OLDEST = Gauge(
    "assay_judge_batch_oldest_seconds",
    "Age of a provider's oldest batch that has not ended, 0 without one, of all replicas of a database",
    ("provider",),
)
BREAKER_OPEN = Gauge("assay_judge_breaker_open", "1 while the circuit breaker of a judge is open, else 0", ("model",))
