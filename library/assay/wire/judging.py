"""Conversion of judge settings and judging summaries to protobuf messages and back."""

from __future__ import annotations

from assay.model.canary_summary import CanaryKind, CanaryRate, CanarySummary, CanaryTally
from assay.model.judging_summary import JudgingSummary, JurorSummary, JuryAgreement
from assay.model.model_price import ModelPrice
from assay.model.run import JudgeModel, JudgeSpec
from assay.v1 import judge_spec_pb2, price_pb2, summary_pb2
from assay.wire.converter import Converter, EnumConverter
from assay.wire.interval import INTERVAL

PRICE = Converter(ModelPrice, price_pb2.ModelPrice)
JUDGE_MODEL = Converter(JudgeModel, judge_spec_pb2.JudgeModel, parts={"prices": PRICE})
JUDGE = Converter(JudgeSpec, judge_spec_pb2.JudgeSpec, parts={"members": JUDGE_MODEL})
_CANARY_TALLY = Converter(
    CanaryTally,
    summary_pb2.CanaryTally,
    parts={"kind": EnumConverter(CanaryKind, summary_pb2.CanaryKind, unknown=CanaryKind.KNOWN_BAD)},
)
_CANARY_RATE = Converter(CanaryRate, summary_pb2.CanaryRate, parts={"interval": INTERVAL})
JUDGING = Converter(
    JudgingSummary,
    summary_pb2.JudgingSummary,
    parts={
        "canaries": Converter(
            CanarySummary,
            summary_pb2.CanarySummary,
            parts={"kinds": _CANARY_TALLY, "false_pass": _CANARY_RATE, "false_fail": _CANARY_RATE},
        ),
        "jurors": Converter(JurorSummary, summary_pb2.JurorSummary),
        "agreement": Converter(JuryAgreement, summary_pb2.JuryAgreement),
    },
)
