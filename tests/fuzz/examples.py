"""Messages as users send them, of which others are varied: random ones alone rarely get past the first checks."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp

from assay.admin.v1 import admin_pb2
from assay.embedder.v1 import embedder_pb2
from assay.judge.v1 import judge_pb2
from assay.metrics import complete_parameters
from assay.model.answers.agent_response import AgentResponse, Source, ToolCall, Usage
from assay.model.answers.approvals import Approval, Decision
from assay.model.answers.interrupts import DecisionKind
from assay.model.case import Assertion, Case, ExpectedTool, Turn
from assay.model.metric_call import MetricOutcome
from assay.model.run import AgentSpec, MetricSpec, RunSpec
from assay.model.stopping import StoppingSettings
from assay.v1 import (
    calibration_pb2,
    comparison_figures_pb2,
    comparison_pb2,
    dataset_pb2,
    host_pb2,
    row_pb2,
    run_pb2,
    server_pb2,
    summary_pb2,
)
from assay.wire.agent import response_to_wire
from assay.wire.case import case_to_wire
from assay.wire.metric_call import outcomes_to_wire
from assay.wire.run import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from google.protobuf.message import Message

_OUTCOMES = {
    "m": MetricOutcome(0.5, reasoning="why"),
    "n": MetricOutcome(error="function_raised", message="m", traceback="t"),
}
_ANSWER = AgentResponse(
    text="a",
    output={"a": [1, {"b": None}]},
    tool_calls=(ToolCall("search", arguments_json='{"q": "a"}'),),
    sources=(Source(uri="doc/1", title="t", score=0.5),),
    usage=Usage(input_tokens=3, output_tokens=1, cost_usd=0.01),
    latency_ms=1.0,
    metadata={"m": "1"},
)
_EXACT: Mapping[str, Mapping[str, object]] = MappingProxyType({"exact_match": {}})
CASES = [
    Case(
        f"c{number}",
        (
            Turn(
                "q",
                references=("a",),
                expected_sources=("doc/1",),
                expected_tools=(ExpectedTool("search", {"q": "a"}),),
            ),
        ),
        variables={"v": 1},
        contexts=("context",),
        tags=("t",),
        expected={"category": "x"},
        metadata={"m": [1]},
        recordings=((_ANSWER,),),
        assertions=(Assertion("contains", "a", threshold=0.5, weight=1.0),),
        thresholds={"exact_match": 0.5},
        weight=1.0,
        approvals=(Approval(Decision(DecisionKind.EDIT, arguments={"amount": 1}), "refund", 1),),
        place=number,
    )
    for number in range(3)
]


def run_spec(adapter: str, metrics: Mapping[str, Mapping[str, object]] = _EXACT) -> RunSpec:
    """Return settings of a run over CASES."""
    target = {"python": "a:b", "http": "http://127.0.0.1:1/", "grpc": "127.0.0.1:1", "openai": "gpt"}.get(adapter, "")
    chosen = [MetricSpec(name, complete_parameters(name, given, where=name)) for name, given in metrics.items()]
    return RunSpec("fuzzed", AgentSpec(adapter, target), tuple(chosen), gates=("pass_rate >= 0.5",))


def _requests() -> Sequence[Message]:
    everything: Mapping[str, Mapping[str, object]] = {
        "exact_match": {}, "contains": {"values": ["a"]}, "regex": {"pattern": "a+"}, "assertions": {}, "rouge": {},
        "json_schema": {"schema": {"type": "object"}}, "hit_rate": {}, "mrr": {}, "latency": {}, "tokens": {},
        "tool_calls": {}, "cost": {}, "formula": {"formula": "exact_match"},
    }  # fmt: skip
    stopping = StoppingSettings("always-valid", "exact_match", ("a", "b"), len(CASES), low=0.0, high=1.0)
    variant = replace(run_spec("replay"), group_id="g", labels={"variant": "a"}, stopping=stopping)
    runs = [run_spec(adapter) for adapter in ("replay", "python", "http", "grpc")]
    runs += [run_spec("replay", everything), variant]
    return [run_pb2.CreateRunRequest(request_id="1", dataset_id="d", spec=SETTINGS.to_wire(run)) for run in runs]


_TEXTS = embedder_pb2.EmbedRequest(texts=["one", "two"], model="all-MiniLM-L6-v2")
_PAIRS = embedder_pb2.SimilarityRequest(
    pairs=[embedder_pb2.TextPair(first="one", second="two")], model="all-MiniLM-L6-v2"
)
_GRADE = judge_pb2.GradeRequest(rubric="answer", question="q", reference="a", answer="b")
_PAIR = judge_pb2.ComparePairRequest(rubric="pairwise", question="q", answer_a="a", answer_b="b")

_FILTER = "passed,failed category:a tag:t case:c0 repeat:0 text~a exact_match>0.5 latency>=1ms"
_ORDER = "-exact_match"
_COMPARISON = comparison_figures_pb2.ComparisonSettings(
    primary="exact_match", margin=0.1, cluster="category", adjust=comparison_figures_pb2.P_VALUE_ADJUSTMENT_BH,
    alpha=0.1, power=0.9, seed=1, filter="failed",
)  # fmt: skip

_QUOTAS = admin_pb2.Quotas(active_runs=3, money_per_month_nano_usd=10**9)
_QUOTA_MASK = FieldMask(paths=["active_runs", "money_per_month_nano_usd", "stored_bytes"])

EXAMPLES: Mapping[str, Sequence[Message]] = {
    "assay.v1.UploadDatasetRequest": [
        dataset_pb2.UploadDatasetRequest(header=dataset_pb2.DatasetHeader(name="d", note="n", parent_ids=["p"])),
        dataset_pb2.UploadDatasetRequest(cases=dataset_pb2.CaseBatch(cases=map(case_to_wire, CASES))),
    ],
    "assay.v1.GetDatasetRequest": [dataset_pb2.GetDatasetRequest(dataset_id="d")],
    "assay.v1.ListDatasetsRequest": [dataset_pb2.ListDatasetsRequest(name="d", page_size=1)],
    "assay.v1.ListCasesRequest": [dataset_pb2.ListCasesRequest(dataset_id="d", page_size=1)],
    "assay.v1.DeleteDatasetRequest": [dataset_pb2.DeleteDatasetRequest(dataset_id="d", validate_only=True)],
    "assay.v1.HostRequest": [
        host_pb2.HostRequest(attach=host_pb2.AttachAgent(run_id="r", concurrency=2)),
        host_pb2.HostRequest(attach=host_pb2.AttachAgent(run_id="r", concurrency=2, computes_metrics=True)),
        host_pb2.HostRequest(responses=host_pb2.AgentResponses(responses=[response_to_wire(_ANSWER)])),
        host_pb2.HostRequest(metric_responses=host_pb2.MetricResponses(responses=[outcomes_to_wire("r", _OUTCOMES)])),
    ],
    "assay.embedder.v1.EmbedRequest": [_TEXTS],
    "assay.embedder.v1.EmbedStreamRequest": [embedder_pb2.EmbedStreamRequest(request_id="1", embed=_TEXTS)],
    "assay.embedder.v1.SimilarityRequest": [_PAIRS],
    "assay.embedder.v1.SimilarityStreamRequest": [
        embedder_pb2.SimilarityStreamRequest(request_id="1", similarity=_PAIRS)
    ],
    "assay.judge.v1.GradeRequest": [_GRADE],
    "assay.judge.v1.GradeStreamRequest": [judge_pb2.GradeStreamRequest(request_id="1", grade=_GRADE)],
    "assay.judge.v1.ComparePairRequest": [_PAIR],
    **{f"assay.v1.{each.DESCRIPTOR.name}": [each(run_id="r")] for each in (
        run_pb2.GetRunRequest, run_pb2.CancelRunRequest, run_pb2.PauseRunRequest, run_pb2.ResumeRunRequest,
        run_pb2.RetryRunRequest,
        run_pb2.DeleteRunRequest, run_pb2.WatchRunRequest,
    )},
    "assay.v1.UpdateRunRequest": [
        run_pb2.UpdateRunRequest(
            run_id="r", labels={"k": "v"}, note="n", weight=2.0, spend_cap_nano_usd=1,
            update_mask=FieldMask(paths=["labels", "note", "weight", "spend_cap_nano_usd"]),
        )
    ],
    "assay.v1.ListRowsRequest": [
        row_pb2.ListRowsRequest(run_id="r"),
        row_pb2.ListRowsRequest(
            run_id="r", filter=_FILTER, order_by=_ORDER, include_total_count=True, include_facets=True
        ),
    ],
    "assay.v1.GetCaseRequest": [row_pb2.GetCaseRequest(run_id="r", case_id="c0", filter=_FILTER, order_by=_ORDER)],
    "assay.v1.ListRunsRequest": [
        run_pb2.ListRunsRequest(
            filter="state:completed team:t since:2026-01-01 verdict:PASS exact_match>=0.5", order_by="-pass_rate",
            view=run_pb2.RUN_VIEW_FULL, include_total_count=True,
        )
    ],
    "assay.v1.ListAttemptsRequest": [
        row_pb2.ListAttemptsRequest(run_id="r", case_id="c0", page_size=2, page_token="x")
    ],
    "assay.v1.SetBaselineRequest": [comparison_pb2.SetBaselineRequest(name="main", run_id="r")],
    "assay.v1.SetCalibrationRequest": [
        calibration_pb2.SetCalibrationRequest(
            calibration=calibration_pb2.JudgeCalibration(
                rubric="quality", fingerprints=["sha256:1"], judge="openai:m", answer_count=60,
                measure=calibration_pb2.AGREEMENT_MEASURE_ALPHA_INTERVAL, alpha=0.8,
                interval=summary_pb2.Interval(low=0.7, high=0.9),
                trust=calibration_pb2.JUDGE_TRUST_TRUSTED, threshold=4, rule=summary_pb2.THRESHOLD_RULE_AT_LEAST,
                sensitivity=0.9, passed_count=40, specificity=0.8, failed_count=20,
                drawing=calibration_pb2.LABEL_DRAWING_RANDOM,
            )
        )
    ],
    "assay.v1.DeleteCalibrationRequest": [calibration_pb2.DeleteCalibrationRequest(calibration_id="3f2a9c41d07b")],
    "assay.v1.DeleteBaselineRequest": [comparison_pb2.DeleteBaselineRequest(name="main")],
    "assay.v1.CompareRunsRequest": [comparison_pb2.CompareRunsRequest(run_ids=["r", "s"], settings=_COMPARISON)],
    "assay.v1.ListComparedCasesRequest": [
        comparison_pb2.ListComparedCasesRequest(
            run_ids=["r", "s"], settings=_COMPARISON, metrics=["exact_match"], change_by="latency",
            change=comparison_pb2.CASE_CHANGE_WORSE, order_by="-loss",
            page_size=2, page_token="x", view=row_pb2.ROW_VIEW_FULL,
        )
    ],
    "assay.v1.CreateRunRequest": _requests(),
    "assay.admin.v1.UpdateTeamRequest": [
        admin_pb2.UpdateTeamRequest(
            team=admin_pb2.Team(team="search", keep_runs_days=30, state=admin_pb2.TEAM_STATE_DISABLED),
            update_mask=FieldMask(paths=["state", "keep_runs_days"]),
        )
    ],
    "assay.admin.v1.CreateTokenRequest": [
        admin_pb2.CreateTokenRequest(team="search", role=server_pb2.ROLE_VIEWER, name="ci", lifetime_ms=60_000),
        admin_pb2.CreateTokenRequest(team="search", role=server_pb2.ROLE_RUNNER, never_expires=True),
    ],
    "assay.admin.v1.ListAuditEventsRequest": [
        admin_pb2.ListAuditEventsRequest(
            team="search", action="CreateTeam", event_time_from=Timestamp(seconds=1_767_225_600), page_size=2
        )
    ],
    "assay.admin.v1.UpdateQuotasRequest": [
        admin_pb2.UpdateQuotasRequest(team="search", quotas=_QUOTAS, update_mask=_QUOTA_MASK)
    ],
    "assay.admin.v1.UpdateDefaultQuotasRequest": [
        admin_pb2.UpdateDefaultQuotasRequest(quotas=_QUOTAS, update_mask=_QUOTA_MASK)
    ],
}  # fmt: skip
