"""Which methods gRPC may call again by itself, and the service config that says so."""

from __future__ import annotations

import json
from collections.abc import Mapping

from assay.rpc.options import ChannelOptions

__all__ = ["NOT_RETRIED", "RETRIED", "service_config"]

RETRIED: Mapping[str, frozenset[str]] = {
    "assay.v1.RunService": frozenset(
        {"CreateRun", "GetRun", "ListRuns", "CancelRun", "PauseRun", "ResumeRun", "ListResults"}
    ),
    "assay.v1.EmbedderService": frozenset({"Embed", "Similarity", "ListModels"}),
    "assay.v1.JudgeService": frozenset({"ListRubrics"}),
}
"""Methods that are idempotent: called again when the server is unavailable."""

NOT_RETRIED: Mapping[str, frozenset[str]] = {
    # Streams resume with what their caller has seen; an upload is started again by its caller.
    # What a call that broke off has deleted is not found by another: whoever deletes decides what that means.
    "assay.v1.RunService": frozenset({"UploadDataset", "DeleteRun", "WatchRun", "ListAttempts", "ServeAgent"}),
    "assay.v1.EmbedderService": frozenset({"EmbedStream", "SimilarityStream"}),
    # Each call may cost money: whoever pays decides about another one.
    "assay.v1.JudgeService": frozenset({"Grade", "GradeStream", "ComparePair"}),
    "assay.v1.AgentService": frozenset({"Answer"}),
}
"""Every other method: called once."""


def service_config(options: ChannelOptions, *, pool: bool) -> str:
    """Return the gRPC service config of a channel as JSON.

    Args:
        options: Attempts and pauses.
        pool: Whether the target names several servers: calls then go to the healthy ones in turn.
    """
    config: dict[str, object] = {}
    if options.attempts > 1:
        config["methodConfig"] = [_retry(options)]
        config["retryThrottling"] = {"maxTokens": 100, "tokenRatio": 0.1}
    if pool:
        config["loadBalancingConfig"] = [{"round_robin": {}}]
        config["healthCheckConfig"] = {"serviceName": ""}
    return json.dumps(config)


def _retry(options: ChannelOptions) -> dict[str, object]:
    return {
        "name": [
            {"service": service, "method": method} for service, methods in RETRIED.items() for method in sorted(methods)
        ],
        "retryPolicy": {
            "maxAttempts": options.attempts,
            "initialBackoff": f"{options.retry_min_ms / 1000:.3f}s",
            "maxBackoff": f"{options.retry_max_ms / 1000:.3f}s",
            "backoffMultiplier": 2,
            "retryableStatusCodes": ["UNAVAILABLE"],
        },
    }
