"""Conversion of run comparisons to protobuf messages and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from assay.comparison.allowed_drop import AllowedDrop
from assay.comparison.case_list import CaseChange, CaseOrder, CaseValue, CaseVariant, ComparedCase
from assay.comparison.decision import ComparisonDecision, DecisionOutcome, DecisionRules
from assay.comparison.mismatch import Mismatch, MismatchReason
from assay.comparison.model import (
    Adjustment,
    Change,
    ClassicalTest,
    Comparison,
    ComparisonSettings,
    ComparisonVerdict,
    ErrorComparison,
    Estimate,
    FailOn,
    FlippedCase,
    Matching,
    MetricComparison,
    NoiseFloor,
    OmnibusTest,
    PairComparison,
    PassTable,
    RandomDraws,
    RunRef,
    Side,
    Variant,
    WorstCase,
)
from assay.comparison.recommendation import Confidence, RankedVariant, VariantRecommendation
from assay.comparison.stopping_outcome import StoppingOutcome
from assay.errors import InvalidInputError, Problem
from assay.model.stopping import StoppingRule
from assay.parsing.names import unknown_name
from assay.v1 import comparison_figures_pb2, comparison_pb2, spec_pb2
from assay.wire.converter import Converter, EnumConverter, Spread
from assay.wire.interval import INTERVAL
from assay.wire.json_text import value_from_text

if TYPE_CHECKING:
    from collections.abc import Mapping

_ADJUSTMENTS = EnumConverter(Adjustment, comparison_figures_pb2.PValueAdjustment, unknown=Adjustment.HOLM)
_CHANGES = EnumConverter(CaseChange, comparison_pb2.CaseChange, unknown=None)


_ESTIMATE = Converter(
    Estimate,
    comparison_figures_pb2.Estimate,
    spread={  # not a part: the plain field has no default, and an absent one is not (0, 0)
        "interval": Spread(
            ("interval",),
            lambda interval: {"interval": None if interval is None else INTERVAL.to_wire(interval)},
            lambda message: INTERVAL.from_wire(message.interval) if message.HasField("interval") else None,
        )
    },
)
_TEST_NAMES = ("test", "statistic", "p", "case_count", "note")


def _estimates_to_wire(estimates: Mapping[str, Estimate]) -> dict[str, Any]:
    return {
        "metrics": [
            comparison_figures_pb2.NamedEstimate(metric=name, estimate=_ESTIMATE.to_wire(estimate))
            for name, estimate in estimates.items()
        ]
    }


def _estimates_from_wire(message: comparison_figures_pb2.ComparedVariant) -> dict[str, Estimate]:
    return {entry.metric: _ESTIMATE.from_wire(entry.estimate) for entry in message.metrics}


def _omnibus_to_wire(tests: Mapping[str, OmnibusTest]) -> dict[str, Any]:
    return {
        "omnibus": [
            comparison_figures_pb2.OmnibusTest(metric=metric, **{name: getattr(test, name) for name in _TEST_NAMES})
            for metric, test in tests.items()
        ]
    }


def _omnibus_from_wire(message: comparison_figures_pb2.RunComparison) -> dict[str, OmnibusTest]:
    return {
        entry.metric: OmnibusTest(
            entry.test,
            entry.statistic if entry.HasField("statistic") else None,
            entry.p if entry.HasField("p") else None,
            entry.case_count,
            entry.note,
        )
        for entry in message.omnibus
    }


def _values_to_wire(values: tuple[Any, ...]) -> dict[str, Any]:
    return {"values_json": [json.dumps(value, ensure_ascii=False) for value in values]}


def _values_from_wire(message: comparison_figures_pb2.SettingChange) -> tuple[Any, ...]:
    return tuple(map(value_from_text, message.values_json))


_VERDICTS = EnumConverter(ComparisonVerdict, comparison_figures_pb2.PairVerdict, unknown=ComparisonVerdict.NO_DATA)
_CONFIDENCES = EnumConverter(Confidence, comparison_figures_pb2.RecommendationConfidence, unknown=Confidence.LOW)
_MISMATCHES = EnumConverter(
    MismatchReason, comparison_figures_pb2.MismatchReason, unknown=MismatchReason.METRIC_VERSION
)
_SIDES = EnumConverter(Side, comparison_figures_pb2.PairSide, unknown=Side.NEITHER)
_ERRORS = Converter(ErrorComparison, comparison_figures_pb2.ErrorComparison, parts={"worse": _SIDES})
_REF = Converter(RunRef, comparison_figures_pb2.RunRef)
_PAIR = Converter(
    PairComparison,
    comparison_figures_pb2.PairComparison,
    parts={
        "a": _REF,
        "b": _REF,
        "classical_winner": _SIDES,
        "matched_by": EnumConverter(Matching, comparison_figures_pb2.CaseMatching, unknown=Matching.ID),
        "flipped_cases": Converter(FlippedCase, comparison_figures_pb2.FlippedCase),
        "metrics": Converter(
            MetricComparison,
            comparison_figures_pb2.MetricComparison,
            parts={
                "verdict": _VERDICTS,
                "a": _ESTIMATE,
                "b": _ESTIMATE,
                "interval": INTERVAL,
                "equivalence_interval": INTERVAL,
                "one_sided": INTERVAL,
                "noise_floor": Converter(NoiseFloor, comparison_figures_pb2.NoiseFloor),
                "table": Converter(PassTable, comparison_figures_pb2.PassTable),
                "classical": Converter(ClassicalTest, comparison_figures_pb2.ClassicalTest, parts={"winner": _SIDES}),
                "errors": _ERRORS,
                "worst_case": Converter(WorstCase, comparison_figures_pb2.WorstCase, parts={"interval": INTERVAL}),
            },
        ),
        "errors": _ERRORS,
    },
)
COMPARISON_SETTINGS = Converter(
    ComparisonSettings,
    comparison_figures_pb2.ComparisonSettings,
    parts={"adjust": _ADJUSTMENTS},
    renamed={"where": "filter"},
)
COMPARISON = Converter(
    Comparison,
    comparison_figures_pb2.RunComparison,
    parts={
        "settings": COMPARISON_SETTINGS,
        "variants": Converter(
            Variant,
            comparison_figures_pb2.ComparedVariant,
            spread={"metrics": Spread(("metrics",), _estimates_to_wire, _estimates_from_wire)},
        ),
        "pairs": _PAIR,
        "mismatches": Converter(Mismatch, comparison_figures_pb2.ComparisonMismatch, parts={"reason": _MISMATCHES}),
        "changes": Converter(
            Change,
            comparison_figures_pb2.SettingChange,
            spread={"values": Spread(("values_json",), _values_to_wire, _values_from_wire)},
        ),
        "ranking": Converter(RankedVariant, comparison_figures_pb2.RankedVariant),
        "not_worse_than_best": _REF,
        "recommendation": Converter(
            VariantRecommendation, comparison_figures_pb2.VariantRecommendation, parts={"confidence": _CONFIDENCES}
        ),
        "random_draws": Converter(RandomDraws, comparison_figures_pb2.RandomDraws),
        "stopping": Converter(
            StoppingOutcome,
            comparison_figures_pb2.StoppingOutcome,
            parts={
                "rule": EnumConverter(StoppingRule, spec_pb2.StoppingRule, unknown=StoppingRule.ALWAYS_VALID),
                "verdict": _VERDICTS,
            },
        ),
    },
    spread={
        "omnibus": Spread(("omnibus",), _omnibus_to_wire, _omnibus_from_wire),
    },
)
COMPARED_CASE = Converter(
    ComparedCase,
    comparison_pb2.ComparedCase,
    parts={
        "variants": Converter(
            CaseVariant,
            comparison_pb2.CaseVariant,
            parts={"values": Converter(CaseValue, comparison_pb2.CaseValue), "change": _CHANGES},
        )
    },
)


DECISION_RULES = Converter(
    DecisionRules,
    comparison_pb2.DecisionRules,
    parts={"fail_on": EnumConverter(FailOn, comparison_pb2.FailOn, unknown=FailOn.REGRESSION)},
)
DECISION = Converter(
    ComparisonDecision,
    comparison_pb2.ComparisonDecision,
    parts={
        "outcome": EnumConverter(
            DecisionOutcome, comparison_pb2.DecisionOutcome, unknown=DecisionOutcome.NOT_COMPARABLE
        ),
        "drops": Converter(AllowedDrop, comparison_pb2.AllowedDrop),
    },
)


def change_to_wire(change: CaseChange | None) -> Any:
    """Return the number of a condition; None for any."""
    return None if change is None else _CHANGES.to_wire(change)


def case_conditions_from_wire(request: comparison_pb2.ListComparedCasesRequest) -> tuple[CaseChange | None, CaseOrder]:
    """Return the conditions and the order of the cases that a request asks for.

    Raises:
        InvalidInputError: The order is unknown.
    """
    order = request.order_by.strip() or CaseOrder.DATASET
    known = [known.value for known in CaseOrder]
    if order not in known:
        raise InvalidInputError([Problem(unknown_name("order", order, known), "order_by")])
    return _CHANGES.from_wire(request.change), CaseOrder(order)
