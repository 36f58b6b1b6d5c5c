"""The table of methods: slots, rights, names and audit of each, and whether gRPC may retry it."""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from assay.identity.rights import Right
from assay.rpc.options import ChannelOptions


class Slots(enum.Enum):
    """The kind of slot that a call takes while it runs."""

    NONE = "none"
    CALLS = "calls at once"
    STREAMS = "open streams"
    HEALTH_WATCHES = "watches of its health"


class Silence(enum.Enum):
    """When a silent client stream counts as idle; its first message is always due."""

    NEVER = "never"
    ALWAYS = "always"
    WHEN_ANSWERED = "when every message has its answer"


class Name(enum.Enum):
    """The kind of resource that a request's field names, and where access to it is checked."""

    SCOPED = "something of a team: the handler looks it up within the caller's scope, or makes it there"
    TEAM = "a team: the interceptor refuses another one than the caller's, but to operators"
    OWN_TEAM = "a team: the interceptor refuses every other one than the caller's"
    LABEL = "nothing that is stored by this name: a text for people, an id within the request, a condition of a list"


class Audit(enum.Enum):
    """The audit entries of a method's calls; the action is derived from its name: "delete-run" for DeleteRun."""

    CHANGE = "each call that changes something; an entry is stored with the change"
    EXPORT = "that the results of a run or the cases of a dataset were read as a whole: the handler records it"
    NONE = "nothing but what is refused"


CHANGING_RIGHTS = frozenset({Right.RUN, Right.ADMINISTER, Right.OPERATE})
"""Rights of methods that may change something: each says what the audit has of it."""


@dataclass(frozen=True, slots=True)
class MethodRule:
    """The rule of one method.

    Args:
        slots: The slots that its calls take.
        client_streams: Whether the client sends a stream.
        server_streams: Whether the server sends a stream.
        idempotent: Whether gRPC may retry it if the server is unavailable; never for a stream, which its caller
            resumes.
        silence: When its client counts as idle, for client streams.
        right: The right that its caller needs; None for a method without a contract, which identified callers cannot
            call.
        names: The fields of its request that name a resource, by path, e.g. "attach.run_id".
        audit: The audit entries of its calls; None for a method that only reads.
    """

    slots: Slots
    client_streams: bool = False
    server_streams: bool = False
    idempotent: bool = False
    silence: Silence = Silence.NEVER
    right: Right | None = None
    names: Mapping[str, Name] = field(default_factory=dict)
    audit: Audit | None = None


_READ, _RUN, _ADMINISTER, _OPERATE = Right.READ, Right.RUN, Right.ADMINISTER, Right.OPERATE
_RUN_ID = {"run_id": Name.SCOPED}
_DATASET_ID = {"dataset_id": Name.SCOPED}
_CASE = {**_RUN_ID, "case_id": Name.SCOPED}
_PAGE = {"page_token": Name.SCOPED}
# An agent is asked by the orchestrator, about names of its run.
_AGENT_REQUEST = {f"request.{part}_id": Name.LABEL for part in ("request", "run", "case", "session")}


def _call(
    right: Right, names: Mapping[str, Name] | None = None, audit: Audit | None = None, *, idempotent: bool = False
) -> MethodRule:
    return MethodRule(Slots.CALLS, idempotent=idempotent, right=right, names=names or {}, audit=audit)


def _idempotent(right: Right, names: Mapping[str, Name] | None = None, audit: Audit | None = None) -> MethodRule:
    return _call(right, names, audit, idempotent=True)


def _server_stream(right: Right, names: Mapping[str, Name], audit: Audit | None = None) -> MethodRule:
    return MethodRule(Slots.STREAMS, server_streams=True, right=right, names=names, audit=audit)


def _answered_stream(right: Right, names: Mapping[str, Name], audit: Audit | None = None) -> MethodRule:
    return MethodRule(
        Slots.STREAMS,
        client_streams=True,
        server_streams=True,
        silence=Silence.WHEN_ANSWERED,
        right=right,
        names=names,
        audit=audit,
    )


METHODS: Mapping[str, Mapping[str, MethodRule]] = {
    "assay.v1.DatasetService": {
        "UploadDataset": MethodRule(
            Slots.STREAMS,
            client_streams=True,
            silence=Silence.ALWAYS,
            right=_RUN,
            names={"header.name": Name.LABEL, "header.parent_ids": Name.LABEL},
            audit=Audit.CHANGE,
        ),
        "GetDataset": _idempotent(_READ, _DATASET_ID),
        "ListDatasets": _idempotent(_READ, {**_PAGE, "name": Name.LABEL}),
        "ListCases": _idempotent(_READ, {**_DATASET_ID, **_PAGE}, Audit.EXPORT),
        # A second attempt does not find what the first, whose answer was lost, has deleted: the caller decides.
        "DeleteDataset": _call(_RUN, _DATASET_ID, Audit.CHANGE),
    },
    "assay.v1.RunService": {
        "CreateRun": _idempotent(
            _RUN,
            {
                "request_id": Name.SCOPED,
                "dataset_id": Name.SCOPED,
                "spec.group_id": Name.SCOPED,
                "spec.team": Name.OWN_TEAM,
                "spec.name": Name.LABEL,
                "spec.spec_name": Name.LABEL,
                "spec.source_run_id": Name.SCOPED,
            },
            Audit.CHANGE,
        ),
        "GetRun": _idempotent(_READ, _RUN_ID),
        "ListRuns": _idempotent(_READ, _PAGE),
        "CancelRun": _idempotent(_RUN, _RUN_ID, Audit.CHANGE),
        "PauseRun": _idempotent(_RUN, _RUN_ID, Audit.CHANGE),
        "ResumeRun": _idempotent(_RUN, _RUN_ID, Audit.CHANGE),
        # A second attempt finds the run running, whose errors cannot be retried: the caller knows that it asked twice.
        "RetryRun": _call(_RUN, _RUN_ID, Audit.CHANGE),
        "UpdateRun": _idempotent(_RUN, _RUN_ID, Audit.CHANGE),
        # A second attempt does not find what the first, whose answer was lost, has deleted: the caller decides.
        "DeleteRun": _call(_RUN, _RUN_ID, Audit.CHANGE),
        "WatchRun": _server_stream(_READ, _RUN_ID, Audit.EXPORT),
        "ListRows": _idempotent(_READ, {**_RUN_ID, **_PAGE}, Audit.EXPORT),
        "GetCase": _idempotent(_READ, _CASE),
        "ListAttempts": _idempotent(_READ, {**_CASE, **_PAGE}),
    },
    "assay.v1.ComparisonService": {
        "CompareRuns": _idempotent(_READ, {"run_ids": Name.SCOPED}),
        "ListComparedCases": _idempotent(_READ, {"run_ids": Name.SCOPED, **_PAGE}),
        "SetBaseline": _idempotent(_RUN, {"name": Name.SCOPED, **_RUN_ID}, Audit.CHANGE),
        "ListBaselines": _idempotent(_READ, _PAGE),
        # A second attempt does not find what the first has deleted.
        "DeleteBaseline": _call(_RUN, {"name": Name.SCOPED}, Audit.CHANGE),
    },
    "assay.v1.CalibrationService": {
        "SetCalibration": _idempotent(_RUN, {"calibration.calibration_id": Name.LABEL}, Audit.CHANGE),
        "ListCalibrations": _idempotent(_READ, _PAGE),
        # A second attempt does not find what the first has deleted.
        "DeleteCalibration": _call(_RUN, {"calibration_id": Name.SCOPED}, Audit.CHANGE),
    },
    "assay.v1.HostService": {
        # A host has nothing to send while its run asks nothing.
        "Host": MethodRule(
            Slots.STREAMS,
            client_streams=True,
            server_streams=True,
            right=_RUN,
            names={"attach.run_id": Name.SCOPED},
            audit=Audit.NONE,  # it answers for a run whose creation is
        ),
    },
    "assay.v1.ServerService": {
        # A client learns from it whether it needs a token.
        "GetServerInfo": _idempotent(Right.NONE),
        "GetIdentity": _idempotent(_READ),
        "ListMetrics": _idempotent(_READ),
    },
    "assay.admin.v1.AdminService": {
        # A second attempt finds what the first has made, or makes another one.
        "CreateTeam": _call(_OPERATE, {"team": Name.TEAM}, Audit.CHANGE),
        "GetTeam": _idempotent(_READ, {"team": Name.TEAM}),
        "ListTeams": _idempotent(_OPERATE, _PAGE, Audit.NONE),
        "UpdateTeam": _idempotent(_OPERATE, {"team.team": Name.TEAM}, Audit.CHANGE),
        "DeleteTeam": _idempotent(_OPERATE, {"team": Name.TEAM}, Audit.CHANGE),
        "CreateToken": _call(_ADMINISTER, {"team": Name.TEAM, "name": Name.LABEL}, Audit.CHANGE),
        "ListTokens": _idempotent(_ADMINISTER, {"team": Name.TEAM, **_PAGE}, Audit.NONE),
        "ListAuditEvents": _idempotent(_ADMINISTER, {"team": Name.TEAM, **_PAGE}, Audit.NONE),
        "RevokeToken": _idempotent(_ADMINISTER, {"token_id": Name.SCOPED}, Audit.CHANGE),
        # A second attempt finds what the first has made, or removed.
        "CreateDestination": _call(_ADMINISTER, {"team": Name.TEAM, "name": Name.SCOPED}, Audit.CHANGE),
        "ListDestinations": _idempotent(_READ, {"team": Name.TEAM, **_PAGE}),
        "DeleteDestination": _call(_ADMINISTER, {"team": Name.TEAM, "name": Name.SCOPED}, Audit.CHANGE),
        "UpdateQuotas": _idempotent(_OPERATE, {"team": Name.TEAM}, Audit.CHANGE),
        "GetQuotas": _idempotent(_READ, {"team": Name.TEAM}),
        "UpdateDefaultQuotas": _idempotent(_OPERATE, audit=Audit.CHANGE),
        "GetDefaultQuotas": _idempotent(_OPERATE, audit=Audit.NONE),
        "ListTeamUsage": _idempotent(_READ, {"team": Name.TEAM, **_PAGE}),
    },
    "assay.embedder.v1.EmbedderService": {
        "Embed": _idempotent(_RUN, audit=Audit.NONE),
        "EmbedStream": _answered_stream(_RUN, {"request_id": Name.LABEL}, Audit.NONE),
        "Similarity": _idempotent(_RUN, audit=Audit.NONE),
        "SimilarityStream": _answered_stream(_RUN, {"request_id": Name.LABEL}, Audit.NONE),
        "ListModels": _idempotent(_READ),
        "DeleteScope": _idempotent(_OPERATE, audit=Audit.NONE),
    },
    "assay.judge.v1.JudgeService": {
        # Each call may cost money: the caller decides about another one.
        "Grade": _call(_RUN, _RUN_ID, Audit.NONE),
        "GradeStream": _answered_stream(_RUN, {"request_id": Name.LABEL, "grade.run_id": Name.SCOPED}, Audit.NONE),
        "ComparePair": _call(_RUN, _RUN_ID, Audit.NONE),
        "ListRubrics": _idempotent(_READ, _PAGE),
        "DeleteScope": _idempotent(_OPERATE, audit=Audit.NONE),
    },
    "assay.agent.v1.AgentService": {
        "Answer": _call(_RUN, _AGENT_REQUEST, Audit.NONE),
        "AnswerStream": _server_stream(_RUN, _AGENT_REQUEST, Audit.NONE),
    },
    "grpc.health.v1.Health": {
        # A busy process is not restarted for being busy, and probes have no token.
        "Check": MethodRule(Slots.NONE, right=Right.NONE),
        "List": MethodRule(Slots.NONE, right=Right.NONE),
        "Watch": MethodRule(Slots.HEALTH_WATCHES, server_streams=True, right=Right.NONE),
    },
    "grpc.reflection.v1alpha.ServerReflection": {"ServerReflectionInfo": _answered_stream(_READ, {})},
}
"""Every method that a server of Assay may serve, by service; a server with any other does not start."""


def service_config(options: ChannelOptions, *, pool: bool) -> str:
    """Return the gRPC service config of a channel as JSON.

    Args:
        options: Attempts and backoff.
        pool: Whether the target names several servers: calls then rotate among the healthy ones, or among all if the
            options say so.
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
