"""What a row asks a judge, and what came of it: plain objects to the judge's messages and back."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.judging.rubric_file import read_rubric
from assay.metrics.checks.judged_checks import JUDGED_CHECKS, check_named, check_passages, criterion_of
from assay.metrics.core.score import JudgeEvidence, reference_text
from assay.metrics.jury.structured_verdict import PARTS
from assay.model.answers.agent_response import clean_text
from assay.v1 import agent_pb2, judge_pb2
from assay.wire.model_price import PRICE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.answers.agent_request import Message
    from assay.model.answers.agent_response import AgentResponse
    from assay.model.case import Case
    from assay.model.run import JudgeSettings

MAX_TEXT_CHARS = 400_000
"""What a judge takes in all."""
MAX_CONTEXTS = 200
MAX_TURNS = 1_000
_MAX_MESSAGE_CHARS = 500
_STATUSES = {
    judge_pb2.VERDICT_STATUS_VALID: "valid",
    judge_pb2.VERDICT_STATUS_INVALID: "invalid",
    judge_pb2.VERDICT_STATUS_UNAVAILABLE: "unavailable",
}


class NotYetError(Exception):
    """A row's verdicts are ordered and not all of them are there.

    Args:
        after_s: When to ask again, in seconds.
    """

    def __init__(self, after_s: float) -> None:
        super().__init__(f"not yet: again after {after_s:g} s")
        self.after_s = after_s


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """A row of which an answer is judged.

    Args:
        case: Its case; where an earlier turn's answer is judged, up to that turn.
        said: What was said before the last question of it.
        case_index: The case's place in the dataset.
        repeat_index: Which repeat: each has verdicts of its own.
        retries: How often it was set aside to be tried again.
        is_canary: Whether it is not the row's own answer that is judged, but one beside it whose worth is known.
        turn_index: Which turn's answer, where later ones are judged too; None for the last.
    """

    case: Case
    said: Sequence[Message]
    case_index: int
    repeat_index: int
    retries: int = 0
    is_canary: bool = False
    turn_index: int | None = None

    def name(self, place: int) -> str:
        """Return what a judge keeps the outcomes of batches for: the row, or a turn of it, at one judge of the jury."""
        turn = "" if self.turn_index is None else f"/turn{self.turn_index}"
        return f"{self.case_index}/{self.repeat_index}/{place}{turn}{'/canary' if self.is_canary else ''}"


@dataclass(frozen=True, slots=True)
class RubricUse:
    """A rubric as a metric uses it.

    Args:
        text: Its YAML, where it is the user's own.
        scale: Lowest and highest score, where its criteria are not the metric's own.
        criterion: The value of the check of the case that is judged, empty for none; None elsewhere.
        keeps_references: Whether the judge sees the case's references.
    """

    name: str
    text: str = ""
    scale: tuple[float, float] | None = None
    criterion: str | None = None
    keeps_references: bool = True


def own_rubric(judge: JudgeSettings) -> RubricUse:
    """Return the rubric that a run brings along."""
    rubric = read_rubric(judge.rubric_yaml)
    names = [criterion.name for criterion in rubric.criteria]
    return RubricUse(rubric.name, judge.rubric_yaml, _scale(names, rubric.minimum, rubric.maximum))


def check_use(case: Case, name: str) -> RubricUse | None:
    """Return the rubric of a judged check of a case; None where the name is that of a metric's rubric."""
    check = check_named(case, name)
    if check is None:
        return None
    kind = JUDGED_CHECKS[check.type]
    keeps_references = kind.takes_value and not kind.value_is_reference
    return RubricUse(kind.rubric, kind.rubric_yaml, criterion=criterion_of(check), keeps_references=keeps_references)


def rubric_use(rubric: judge_pb2.Rubric) -> RubricUse:
    """Return a rubric that the judge knows."""
    return RubricUse(rubric.name, scale=_scale(rubric.criteria, rubric.minimum, rubric.maximum))


def _scale(criteria: Sequence[str], minimum: float, maximum: float) -> tuple[float, float] | None:
    own = (minimum, maximum) == (0.0, 1.0) and {*PARTS} <= {*criteria} <= {*PARTS, "overall_score"}
    return None if own else (minimum, maximum)


def judge_model(judge: JudgeSettings) -> judge_pb2.JudgeModel:
    """Return the message of who is asked."""
    return judge_pb2.JudgeModel(
        provider=judge.provider,
        model=judge.model,
        base_url=judge.base_url,
        key_variable=judge.key_variable,
        temperature=judge.temperature,
        max_tokens=judge.max_tokens,
        prices=None if judge.prices is None else PRICE.to_wire(judge.prices),
    )


def grade_request(
    row: JudgedRow, response: AgentResponse, use: RubricUse, sample_offset: int = 0
) -> judge_pb2.GradeRequest | None:
    """Return the request for a verdict, without who is asked and who pays; None where there is too much to judge.

    Args:
        response: The answer that is judged.
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
        sample_index=row.repeat_index + sample_offset,
        history=[agent_pb2.Message(role=message.role, content=clean_text(message.content)) for message in row.said],
    )
    said_before = (message.content for message in request.history)
    parts = (request.question, request.answer, request.reference, request.criterion, *request.contexts, *said_before)
    is_too_large = (
        sum(map(len, parts)) > MAX_TEXT_CHARS
        or len(request.contexts) > MAX_CONTEXTS
        or len(request.history) > MAX_TURNS
    )
    return None if is_too_large else request


def evidence_of(verdict: judge_pb2.Verdict, judge: JudgeSettings, use: RubricUse) -> JudgeEvidence:
    """Return what a metric makes its score of; where the verdict is not valid, its reason stands for it."""
    evidence = failed_evidence(verdict.reason or "no_verdict", verdict.message)
    if verdict.status == judge_pb2.VERDICT_STATUS_VALID:
        given = {"reasoning": verdict.reasoning, **verdict.scores}
        evidence = JudgeEvidence(given, scale=use.scale, detail={"reasoning": verdict.reasoning})
    return dataclasses.replace(evidence, detail={**evidence.detail, "verdict": _provenance(verdict, judge, use)})


def failed_evidence(reason: str, message: str) -> JudgeEvidence:
    """Return what stands for a verdict that could not be had."""
    return JudgeEvidence(None, error=reason, detail={"message": message[:_MAX_MESSAGE_CHARS]} if message else {})


def _provenance(verdict: judge_pb2.Verdict, judge: JudgeSettings, use: RubricUse) -> dict[str, Any]:
    """Return who gave a verdict, on what grounds, and what it took."""
    found: dict[str, Any] = {
        "status": _STATUSES.get(verdict.status, "unavailable"),
        "judge": judge.identity,
        "model": verdict.model,
        "rubric": use.name,
        "fingerprint": verdict.fingerprint,
        "key": verdict.key,
        "temperature": verdict.temperature if verdict.HasField("temperature") else None,
        "cached": verdict.cached,
        "by_rule": verdict.by_rule,
        "flags": list(verdict.flags),
        "scores": dict(sorted(verdict.scores.items())),
        "attempts": verdict.attempts,
        **_taken(verdict.usage),
    }
    if verdict.batched:
        found["batched"] = True
    if verdict.usage.estimated:
        found["estimated"] = True
    if verdict.refused_parameters:
        found["refused_parameters"] = list(verdict.refused_parameters)
    if verdict.tries:
        found["tries"] = [_attempt(one) for one in verdict.tries]
    if verdict.cached:
        saved = _taken(verdict.saved)
        found["saved_tokens"] = (
            None if saved["input_tokens"] is None else saved["input_tokens"] + saved["output_tokens"]
        )
        found["saved_usd"] = saved["cost_usd"]
    return found


def _attempt(one: judge_pb2.JudgeAttempt) -> dict[str, Any]:
    latency = {"latency_ms": round(one.latency_ms, 1)} if one.HasField("latency_ms") else {}
    estimated = {"estimated": True} if one.estimated else {}
    return {"outcome": one.outcome, **_taken(one), **estimated, **latency}


def _taken(usage: agent_pb2.Usage | judge_pb2.JudgeAttempt) -> dict[str, Any]:
    return {
        name: getattr(usage, name) if usage.HasField(name) else None
        for name in ("input_tokens", "output_tokens", "cost_usd")
    }
