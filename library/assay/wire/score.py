"""Conversion of scores and their judgements to protobuf messages and back.

Written by hand, because there are 100,000 of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.metrics.core.explanations import score_message
from assay.model.judgement import Judgement, JudgementCall, JudgementStatus
from assay.model.run import Score, ScoreStatus
from assay.v1 import row_pb2
from assay.wire.converter import EnumConverter
from assay.wire.json_text import mapping_from_text, mapping_to_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.message import Message

_SCORES = EnumConverter(ScoreStatus, row_pb2.ScoreStatus, unknown=ScoreStatus.ERROR)
_JUDGEMENTS = EnumConverter(JudgementStatus, row_pb2.JudgementStatus, unknown=JudgementStatus.INVALID)
_SAME = (
    "judge", "model", "rubric", "fingerprint", "reason", "message", "reasoning", "is_cached", "is_by_rule",
    "is_batched", "is_recorded", "key", "call_count", "is_estimated",
)  # fmt: skip
_OPTIONAL = (
    "value", "turn_index", "check_index", "temperature", "input_tokens", "output_tokens", "cost_usd", "saved_tokens",
    "saved_usd",
)  # fmt: skip
_OF_CALL = ("input_tokens", "output_tokens", "cost_usd", "latency_ms")


def score_to_wire(score: Score) -> row_pb2.Score:
    """Return the message for a score, with the sentence for its reason."""
    return row_pb2.Score(
        metric=score.metric,
        value=score.value,
        status=_SCORES.to_wire(score.status),
        passed=score.passed,
        reason=score.reason,
        message=score_message(score),
        detail_json=mapping_to_text(score.detail),
        judgements=map(_judgement_to_wire, score.judgements),
    )


def score_from_wire(score: row_pb2.Score) -> Score:
    """Return the score in a message."""
    return Score(
        metric=score.metric,
        status=_SCORES.from_wire(score.status),
        value=score.value if score.HasField("value") else None,
        passed=score.passed if score.HasField("passed") else None,
        reason=score.reason,
        detail=mapping_from_text(score.detail_json),
        message=score.message,
        judgements=tuple(map(_judgement_from_wire, score.judgements)),
    )


def _judgement_to_wire(judgement: Judgement) -> row_pb2.Judgement:
    return row_pb2.Judgement(
        **{name: getattr(judgement, name) for name in (*_SAME, *_OPTIONAL)},
        status=_JUDGEMENTS.to_wire(judgement.status),
        scores=judgement.scores,
        flags=judgement.flags,
        refused_parameters=judgement.refused_parameters,
        calls=map(_call_to_wire, judgement.calls),
    )


def _judgement_from_wire(judgement: row_pb2.Judgement) -> Judgement:
    return Judgement(
        **{name: getattr(judgement, name) for name in _SAME},
        **_given(judgement, _OPTIONAL),
        status=_JUDGEMENTS.from_wire(judgement.status),
        scores=dict(sorted(judgement.scores.items())),
        flags=tuple(judgement.flags),
        refused_parameters=tuple(judgement.refused_parameters),
        calls=tuple(map(_call_from_wire, judgement.calls)),
    )


def _call_to_wire(call: JudgementCall) -> row_pb2.JudgementCall:
    return row_pb2.JudgementCall(
        outcome=call.outcome, is_estimated=call.is_estimated, **{name: getattr(call, name) for name in _OF_CALL}
    )


def _call_from_wire(call: row_pb2.JudgementCall) -> JudgementCall:
    return JudgementCall(call.outcome, is_estimated=call.is_estimated, **_given(call, _OF_CALL))


def _given(message: Message, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(message, name) for name in names if message.HasField(name)}
