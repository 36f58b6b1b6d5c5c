"""Conversion of judge settings and judging summaries to protobuf messages and back."""

from __future__ import annotations

from assay.model.canary_summary import CanarySummary, CanaryTally
from assay.model.judging_summary import JudgingSummary, JurorSummary, JuryAgreement
from assay.model.model_price import ModelPrice
from assay.model.run import JudgeSettings, SpendCap
from assay.v1 import agent_pb2
from assay.v1 import orchestrator_pb2 as pb
from assay.wire.converter import Converter

PRICE = Converter(ModelPrice, agent_pb2.ModelPrice)
JUDGE = Converter(JudgeSettings, pb.JudgeSpec, parts={"prices": PRICE})
JUDGE.part("others", JUDGE)
SPEND_CAP = Converter(SpendCap, pb.SpendCap)
JUDGING = Converter(
    JudgingSummary,
    pb.JudgingSummary,
    renamed={
        "verdicts": "verdict_count",
        "flags": "flag_counts",
        "refused_parameters": "refused_parameter_counts",
    },
    parts={
        "canaries": Converter(CanarySummary, pb.CanarySummary, parts={"kinds": Converter(CanaryTally, pb.CanaryTally)}),
        "jurors": Converter(JurorSummary, pb.JurorSummary, renamed={"verdicts": "verdict_count"}),
        "agreement": Converter(JuryAgreement, pb.JuryAgreement),
    },
)
