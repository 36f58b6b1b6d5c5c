"""The table of methods: what each needs of the server in front of it, and whether gRPC may call it again."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass

from assay.rpc.options import ChannelOptions


class Slots(enum.Enum):
    """Which of a server's slots a call takes while it runs."""

    NONE = "none"
    CALLS = "calls at once"
    STREAMS = "open streams"
    HEALTH_WATCHES = "watches of its health"


class Silence(enum.Enum):
    """When a client that sends nothing on its stream is idle; its first message is due in any case."""

    NEVER = "never"
    ALWAYS = "always"
    WHEN_ANSWERED = "when every message has its answer"


@dataclass(frozen=True, slots=True)
class MethodRule:
    """What one method needs.

    Args:
        slots: The slots that its calls take.
        client_streams: Whether the client sends a stream.
        server_streams: Whether the server sends a stream.
        idempotent: Whether gRPC may call it again when the server is unavailable; never for a stream, which
            its caller resumes with what it has seen.
        silence: When its client is idle; for streams of the client.
    """

    slots: Slots
    client_streams: bool = False
    server_streams: bool = False
    idempotent: bool = False
    silence: Silence = Silence.NEVER


_CALL = MethodRule(Slots.CALLS)
_IDEMPOTENT_CALL = MethodRule(Slots.CALLS, idempotent=True)
_SERVER_STREAM = MethodRule(Slots.STREAMS, server_streams=True)
_ANSWERED_STREAM = MethodRule(Slots.STREAMS, client_streams=True, server_streams=True, silence=Silence.WHEN_ANSWERED)

METHODS: Mapping[str, Mapping[str, MethodRule]] = {
    "assay.v1.RunService": {
        "UploadDataset": MethodRule(Slots.STREAMS, client_streams=True, silence=Silence.ALWAYS),
        "CreateRun": _IDEMPOTENT_CALL,
        "GetRun": _IDEMPOTENT_CALL,
        "ListRuns": _IDEMPOTENT_CALL,
        "CancelRun": _IDEMPOTENT_CALL,
        "PauseRun": _IDEMPOTENT_CALL,
        # A second attempt finds the run running, whose errors cannot be retried: the caller knows that it asked twice.
        "ResumeRun": _CALL,
        # A second attempt does not find what the first, whose answer was lost, has deleted: the caller decides.
        "DeleteRun": _CALL,
        "WatchRun": _SERVER_STREAM,
        "ListResults": _IDEMPOTENT_CALL,
        "GetCase": _SERVER_STREAM,
        "ListAttempts": _SERVER_STREAM,
        "SetBaseline": _IDEMPOTENT_CALL,
        "ListBaselines": _IDEMPOTENT_CALL,
        # A second attempt does not find what the first has deleted.
        "DeleteBaseline": _CALL,
        "CompareRuns": _IDEMPOTENT_CALL,
        "ListComparedCases": _IDEMPOTENT_CALL,
        # A host has nothing to send while its run asks nothing.
        "ServeAgent": MethodRule(Slots.STREAMS, client_streams=True, server_streams=True),
    },
    "assay.v1.EmbedderService": {
        "Embed": _IDEMPOTENT_CALL,
        "EmbedStream": _ANSWERED_STREAM,
        "Similarity": _IDEMPOTENT_CALL,
        "SimilarityStream": _ANSWERED_STREAM,
        "ListModels": _IDEMPOTENT_CALL,
    },
    "assay.v1.JudgeService": {
        # Each call may cost money: the caller decides about another one.
        "Grade": _CALL,
        "GradeStream": _ANSWERED_STREAM,
        "ComparePair": _CALL,
        "ListRubrics": _IDEMPOTENT_CALL,
    },
    "assay.v1.AgentService": {"Answer": _CALL, "AnswerStream": _SERVER_STREAM},
    "grpc.health.v1.Health": {
        # A busy process is not restarted for being busy.
        "Check": MethodRule(Slots.NONE),
        "List": MethodRule(Slots.NONE),
        "Watch": MethodRule(Slots.HEALTH_WATCHES, server_streams=True),
    },
    "grpc.reflection.v1alpha.ServerReflection": {"ServerReflectionInfo": _ANSWERED_STREAM},
}
"""Every method that a server of Assay may serve, by service; a server with any other does not start."""


def service_config(options: ChannelOptions, *, pool: bool) -> str:
    """Return the gRPC service config of a channel as JSON.

    Args:
        options: Attempts and pauses.
        pool: Whether the target names several servers: calls then go to them in turn, to healthy ones alone unless
            the options say otherwise.
    """
    config: dict[str, object] = {}
    if options.attempts > 1:
        config["methodConfig"] = [_retry(options)]
        config["retryThrottling"] = {"maxTokens": 100, "tokenRatio": 0.1}
    if pool:
        config["loadBalancingConfig"] = [{"round_robin": {}}]
        if options.pool_health:
            config["healthCheckConfig"] = {"serviceName": ""}
    return json.dumps(config)


def _retry(options: ChannelOptions) -> dict[str, object]:
    return {
        "name": [
            {"service": service, "method": method}
            for service, methods in METHODS.items()
            for method, rule in methods.items()
            if rule.idempotent
        ],
        "retryPolicy": {
            "maxAttempts": options.attempts,
            "initialBackoff": f"{options.retry_min_ms / 1000:.3f}s",
            "maxBackoff": f"{options.retry_max_ms / 1000:.3f}s",
            "backoffMultiplier": 2,
            "retryableStatusCodes": ["UNAVAILABLE"],
        },
    }
