"""Converts a row's questions to a judge, and the verdicts, between plain objects and the judge's messages."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.agent.v1 import agent_pb2
from assay.judge.v1 import judge_pb2
from assay.judging.rubric_file import read_rubric
from assay.metrics.checks.judged_checks import JUDGED_CHECKS, check_named, check_passages, criterion_of
from assay.metrics.core.score import JudgeEvidence, reference_text
from assay.metrics.jury.structured_verdict import PARTS
from assay.model.answers.agent_response import clean_text
from assay.model.judgement import Judgement, JudgementCall, JudgementStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.answers.agent_request import Message
    from assay.model.answers.agent_response import AgentResponse
    from assay.model.case import Case
    from assay.model.run import JudgeModel, MetricSpec

MAX_TEXT_CHARS = 400_000
"""The maximum size of a request to a judge."""
MAX_CONTEXTS = 200
MAX_TURNS = 1_000
_MAX_MESSAGE_CHARS = 500
_STATUSES = {
    judge_pb2.VERDICT_STATUS_VALID: JudgementStatus.VALID,
    judge_pb2.VERDICT_STATUS_INVALID: JudgementStatus.INVALID,
    judge_pb2.VERDICT_STATUS_UNAVAILABLE: JudgementStatus.UNAVAILABLE,
}


class NotYetError(Exception):
    """Some of a row's verdicts are ordered and have not arrived.

    Args:
        after_s: When to ask again, in seconds.
    """

    def __init__(self, after_s: float) -> None:
        super().__init__(f"not yet: again after {after_s:g} s")
        self.after_s = after_s


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """A row with a judged answer.

    Args:
        case: Its case; for the answer of an earlier turn, up to that turn.
        history: The messages before its last question.
        case_index: The case's place in the dataset.
        repeat: The repeat; each has its own verdicts.
        retries: How many times it was set aside for a retry.
        is_canary: Whether the judged answer is a canary of known quality beside the row's own.
        turn_index: The judged turn, if later turns are judged too; None for the last.
    """

    case: Case
    history: Sequence[Message]
    case_index: int
    repeat: int
    retries: int = 0
    is_canary: bool = False
    turn_index: int | None = None

    def name(self, place: int) -> str:
        """Return the name under which a judge keeps batch outcomes: the row or its turn, and the judge's place."""
        turn = "" if self.turn_index is None else f"/turn{self.turn_index}"
        return f"{self.case_index}/{self.repeat}/{place}{turn}{'/canary' if self.is_canary else ''}"


@dataclass(frozen=True, slots=True)
class MetricRubric:
    """The rubric of a metric.

    Args:
        name: Its name.
        text: Its YAML, if it is the user's own.
        is_default: Whether it is the rubric of the metric's kind, whose criteria the metric knows.
    """

    name: str
    text: str = ""
    is_default: bool = False

    @classmethod
    def of(cls, metric: MetricSpec, default: str) -> MetricRubric:
        """Return the rubric of a metric; `default` is that of its kind."""
        is_default = not metric.rubric_yaml and metric.rubric in ("", default)
        return cls(metric.rubric or default, metric.rubric_yaml, is_default)


@dataclass(frozen=True, slots=True)
class RubricUse:
    """A rubric as a metric uses it.

    Args:
        text: Its YAML, if it is the user's own.
        scale: Lowest and highest score, if its criteria are not the metric's own.
        criterion: The value of the judged check of the case, empty for none; None elsewhere.
        keeps_references: Whether the judge sees the case's references.
    """

    name: str
    text: str = ""
    scale: tuple[float, float] | None = None
    criterion: str | None = None
    keeps_references: bool = True


def own_rubric(rubric_yaml: str) -> RubricUse:
    """Return a user's own rubric."""
    rubric = read_rubric(rubric_yaml)
    names = [criterion.name for criterion in rubric.criteria]
    return RubricUse(rubric.name, rubric_yaml, _scale(names, rubric.minimum, rubric.maximum))


def check_use(case: Case, name: str) -> RubricUse | None:
    """Return the rubric of a judged check of a case; None if the name is that of a metric's rubric."""
    check = check_named(case, name)
    if check is None:
        return None
    kind = JUDGED_CHECKS[check.type]
    keeps_references = kind.takes_value and not kind.value_is_reference
    return RubricUse(kind.rubric, kind.rubric_yaml, criterion=criterion_of(check), keeps_references=keeps_references)


def rubric_use(rubric: judge_pb2.Rubric) -> RubricUse:
    """Return a rubric of the judge service."""
    return RubricUse(rubric.name, scale=_scale(rubric.criteria, rubric.minimum, rubric.maximum))


def _scale(criteria: Sequence[str], minimum: float, maximum: float) -> tuple[float, float] | None:
    own = (minimum, maximum) == (0.0, 1.0) and {*PARTS} <= {*criteria} <= {*PARTS, "overall_score"}
    return None if own else (minimum, maximum)


def grade_request(
    row: JudgedRow, response: AgentResponse, use: RubricUse, sample_offset: int = 0
) -> judge_pb2.GradeRequest | None:
    """Return the request for a verdict, without judge and account; None if there is too much to judge.

    Args:
        row: The row.
        response: The judged answer.
        use: The rubric.
        sample_offset: Added to the number of the repeat.
    """
    case = row.case
    reference = reference_text(case.references) if use.keeps_references else use.criterion
    criterion = use.criterion if use.keeps_references else None
    passages = case.contexts if use.criterion is None else check_passages(case)
    request = judge_pb2.GradeRequest(
        rubric=use.name,
        rubric_yaml=use.text,
        question=clean_text(case.question),
        answer=clean_text(response.text),
        reference=clean_text(reference) if reference else None,
        criterion=clean_text(criterion) if criterion else None,
        contexts=map(clean_text, passages),
        sample_index=row.repeat - 1 + sample_offset,
        history=[agent_pb2.Message(role=message.role, content=clean_text(message.content)) for message in row.history],
    )
    said_before = (message.content for message in request.history)
    parts = (request.question, request.answer, request.reference, request.criterion, *request.contexts, *said_before)
    is_too_large = (
        sum(map(len, parts)) > MAX_TEXT_CHARS
        or len(request.contexts) > MAX_CONTEXTS
        or len(request.history) > MAX_TURNS
    )
    return None if is_too_large else request


def evidence_of(verdict: judge_pb2.Verdict, judge: JudgeModel, use: RubricUse) -> JudgeEvidence:
    """Return the evidence that a metric scores; an invalid verdict is replaced by its reason."""
    if verdict.status == judge_pb2.VERDICT_STATUS_VALID:
        scores = {"reasoning": verdict.reasoning, **verdict.scores}
        return JudgeEvidence(scores, scale=use.scale, judgement=_judgement(verdict, judge, use))
    failed = failed_evidence(verdict.reason or "no_verdict", verdict.message, judge, use)
    judgement = dataclasses.replace(_judgement(verdict, judge, use), reason=failed.error, message=failed.message)
    return dataclasses.replace(failed, judgement=judgement)


def failed_evidence(reason: str, message: str, judge: JudgeModel, use: RubricUse) -> JudgeEvidence:
    """Return the placeholder for an unavailable verdict."""
    message = message[:_MAX_MESSAGE_CHARS]
    judgement = Judgement(judge.identity, use.name, JudgementStatus.UNAVAILABLE, reason=reason, message=message)
    return JudgeEvidence(None, error=reason, message=message, judgement=judgement)


def _judgement(verdict: judge_pb2.Verdict, judge: JudgeModel, use: RubricUse) -> Judgement:
    """Return the judgement in a verdict: its judge, its inputs, and its usage."""
    saved = verdict.saved if verdict.cached else agent_pb2.Usage()
    return Judgement(
        judge=judge.identity,
        rubric=use.name,
        status=_STATUSES.get(verdict.status, JudgementStatus.UNAVAILABLE),
        model=verdict.model,
        fingerprint=verdict.fingerprint,
        reasoning=verdict.reasoning,
        scores=dict(sorted(verdict.scores.items())),
        is_cached=verdict.cached,
        is_by_rule=verdict.by_rule,
        is_batched=verdict.batched,
        flags=tuple(verdict.flags),
        key=verdict.key,
        temperature=verdict.temperature if verdict.HasField("temperature") else None,
        call_count=verdict.call_count,
        **_taken(verdict.usage),
        is_estimated=verdict.usage.estimated,
        saved_tokens=saved.input_tokens + saved.output_tokens if saved.HasField("input_tokens") else None,
        saved_usd=saved.cost_usd if saved.HasField("cost_usd") else None,
        refused_parameters=tuple(verdict.refused_parameters),
        calls=tuple(map(_call, verdict.calls)),
    )


def _call(call: judge_pb2.JudgeCall) -> JudgementCall:
    latency_ms = round(call.latency_ms, 1) if call.HasField("latency_ms") else None
    return JudgementCall(call.outcome, **_taken(call), latency_ms=latency_ms, is_estimated=call.estimated)


def _taken(usage: agent_pb2.Usage | judge_pb2.JudgeCall) -> dict[str, Any]:
    return {
        name: getattr(usage, name) if usage.HasField(name) else None
        for name in ("input_tokens", "output_tokens", "cost_usd")
    }
