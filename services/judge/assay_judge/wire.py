"""Conversion between the judge's protobuf messages and its own values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from assay.agent.v1 import agent_pb2
from assay.errors import InvalidInputError, Problem
from assay.judge.v1 import judge_pb2
from assay.model.answers.agent_response import clean_text
from assay.model.scope import LOCAL, Scope
from assay.parsing.secret_references import SCHEME, parse_path
from assay.wire.judging import PRICE
from assay_judge.calls.prices import MOST_NANO, usd_from_nano
from assay_judge.judges import DEFAULT_MAX_TOKENS, DEFAULT_TEMPERATURE, JudgeChoice
from assay_judge.model import Asker, Grading, Material
from assay_judge.verdicts.outcome import Status

if TYPE_CHECKING:
    from assay.judging.rubric import Rubric
    from assay_judge.calls.usage import CallAttempt, CallUsage
    from assay_judge.grading.grader import Statistics
    from assay_judge.state.accounts import Account
    from assay_judge.verdicts.outcome import Outcome

MAX_TEXT_CHARS = 400_000
MAX_CONTEXTS = 200
MAX_TURNS = 1_000
_ROLES = ("system", "user", "assistant", "tool")
_STATUSES = {
    Status.VALID: judge_pb2.VERDICT_STATUS_VALID,
    Status.INVALID: judge_pb2.VERDICT_STATUS_INVALID,
    Status.UNAVAILABLE: judge_pb2.VERDICT_STATUS_UNAVAILABLE,
}
_CHOICES = {
    "": judge_pb2.PAIR_CHOICE_UNSPECIFIED,
    "first": judge_pb2.PAIR_CHOICE_FIRST,
    "second": judge_pb2.PAIR_CHOICE_SECOND,
    "tie": judge_pb2.PAIR_CHOICE_TIE,
}
_MAX_RUN_ID_CHARS = 200
_MAX_ROW_CHARS = 200
_MAX_SCOPE_CHARS = 64


def requested_judge(request: Any, own: JudgeChoice) -> JudgeChoice | None:
    """Return the judge that a request names; the server's own if it sets only parameters; None if it names none."""
    if not request.HasField("judge"):
        return None
    asked = request.judge
    temperature = asked.temperature + 0.0 if asked.HasField("temperature") else None  # turns -0.0 into 0.0
    if not asked.provider:
        if asked.model or asked.base_url or asked.key_variable or asked.HasField("prices"):
            raise InvalidInputError([Problem("is empty: name the provider too", "judge.provider")])
        return JudgeChoice(
            own.provider,
            own.model,
            own.base_url,
            own.key_variable,
            own.temperature if temperature is None else temperature,
            asked.max_tokens or own.max_tokens,
        )
    return JudgeChoice(
        asked.provider,
        asked.model,
        asked.base_url.rstrip("/"),
        _with_team(asked.key_variable),
        DEFAULT_TEMPERATURE if temperature is None else temperature,
        asked.max_tokens or DEFAULT_MAX_TOKENS,
        PRICE.from_wire(asked.prices) if asked.HasField("prices") else None,
    )


def grading_from_request(
    request: Any, rubric: Rubric, judge: JudgeChoice, *, timeout_s: float, cap: int | None
) -> Grading:
    """Return the request for a verdict in a message.

    Args:
        request: A GradeRequest or a ComparePairRequest.
        rubric: The rubric of the request.
        judge: The judge of the request.
        timeout_s: Timeout in seconds, which the caller derives from the request.
        cap: The server's own spend cap in billionths of a dollar; None for none.

    Raises:
        InvalidInputError: The request is invalid; lists all problems.
    """
    compares = isinstance(request, judge_pb2.ComparePairRequest)
    material = Material(
        clean_text(request.question),
        clean_text(request.answer_a if compares else request.answer),
        clean_text(request.answer_b) if compares else None,
        clean_text(request.reference) if request.HasField("reference") else None,
        () if compares else tuple(map(clean_text, request.contexts)),
        () if compares else tuple((_role(message), clean_text(message.content)) for message in request.history),
        clean_text(request.criterion) if not compares and request.HasField("criterion") else None,
    )
    problems = _problems(request, material)
    if cap is not None and not request.run_id:
        problems.append(Problem("is required: this server caps the spending of runs", "run_id"))
    if problems:
        raise InvalidInputError(problems)
    caps = [cap] if cap is not None else []
    if request.HasField("spend_cap_nano_usd"):
        caps.append(min(request.spend_cap_nano_usd, MOST_NANO))
    return Grading(
        Scope(request.scope) if request.scope else LOCAL,
        rubric,
        material,
        judge,
        min(timeout_s, request.timeout_ms / 1000) if request.timeout_ms else timeout_s,
        request.run_id,
        min(caps, default=None),
        min(request.allowance_nano_usd, MOST_NANO) if not compares and request.HasField("allowance_nano_usd") else None,
        request.token_allowance if not compares and request.HasField("token_allowance") else None,
        request.sample_index,
        batch=not compares and request.batch,
        asker=Asker() if compares else Asker(request.row, request.round),
    )


def _with_team(key: str) -> str:
    """Return the name of a key; a secret without a team belongs to the local team, as orchestrators name teams."""
    reference = parse_path(key.removeprefix(SCHEME)) if key.startswith(SCHEME) else None
    return key if reference is None else str(reference.of(LOCAL.team))


def _role(message: agent_pb2.Message) -> str:
    """Return the role for a marker: one of the known roles, or else "other"."""
    return message.role if message.role in _ROLES else "other"


def _problems(request: Any, material: Material) -> list[Problem]:
    problems = []
    size = sum(len(text) for _, text in material.parts)
    if size > MAX_TEXT_CHARS:
        what = "question, answer, criterion, reference, contexts and history"
        message = f"{what} have {size:,} characters; at most {MAX_TEXT_CHARS:,} are taken"
        problems.append(Problem(message))
    if len(material.contexts) > MAX_CONTEXTS:
        problems.append(Problem(f"{len(material.contexts)} are given; at most {MAX_CONTEXTS} are taken", "contexts"))
    if len(material.history) > MAX_TURNS:
        problems.append(Problem(f"{len(material.history)} are given; at most {MAX_TURNS} are taken", "history"))
    if len(request.run_id) > _MAX_RUN_ID_CHARS:
        problems.append(Problem(f"is longer than {_MAX_RUN_ID_CHARS} characters", "run_id"))
    if len(getattr(request, "row", "")) > _MAX_ROW_CHARS:
        problems.append(Problem(f"is longer than {_MAX_ROW_CHARS} characters", "row"))
    if len(request.scope) > _MAX_SCOPE_CHARS:
        problems.append(Problem(f"is longer than {_MAX_SCOPE_CHARS} characters", "scope"))
    if request.HasField("spend_cap_nano_usd") and not request.run_id:
        problems.append(Problem("needs run_id: a cap is for all calls of a run", "spend_cap_nano_usd"))
    is_allowed = not isinstance(request, judge_pb2.ComparePairRequest) and request.HasField("allowance_nano_usd")
    if is_allowed and not request.run_id:
        problems.append(Problem("needs run_id: an allowance is for all calls of a run", "allowance_nano_usd"))
    return problems


def verdict_message(outcome: Outcome) -> judge_pb2.Verdict:
    """Return an outcome as a message."""
    verdict = outcome.verdict
    message = judge_pb2.Verdict(
        status=_STATUSES[outcome.status],
        scores=dict(verdict.scores) if verdict else {},
        reasoning=verdict.reasoning if verdict else "",
        reason=outcome.reason,
        fingerprint=outcome.fingerprint,
        usage=_usage_message(outcome.usage),
        cached=outcome.cached,
        message=clean_text(outcome.message),
        call_count=outcome.usage.calls,
        model=outcome.model,
        flags=outcome.flags,
        by_rule=outcome.by_rule,
        key=outcome.key,
        choice=_CHOICES[verdict.winner if verdict else ""],
        batched=outcome.batched,
        retry_after_ms=math.ceil(outcome.retry_after_s * 1000),
        calls=map(_call_message, outcome.usage.attempts),
        needed_nano_usd=outcome.needed,
        needed_tokens=outcome.needed_tokens,
        charged_tokens=outcome.usage.charged,
        refused_parameters=outcome.usage.changes,
    )
    if outcome.temperature is not None:
        message.temperature = outcome.temperature
    if outcome.cached:
        message.saved.CopyFrom(_usage_message(outcome.saved))
    return message


def cache_message(statistics: Statistics, entries: int) -> judge_pb2.CacheStatistics:
    """Return the cache statistics as a message."""
    return judge_pb2.CacheStatistics(
        hits=statistics.hits, misses=statistics.misses, joined=statistics.joined, entries=entries
    )


def spending_message(account: Account, cap: int | None) -> judge_pb2.Spending:
    """Return the spending of a run as a message."""
    return judge_pb2.Spending(
        spent_nano_usd=account.spent,
        reserved_nano_usd=account.reserved,
        unknown_nano_usd=account.unknown,
        cap_nano_usd=cap,
    )


def rubric_message(rubric: Rubric) -> judge_pb2.Rubric:
    """Return a rubric as a message."""
    return judge_pb2.Rubric(
        name=rubric.name,
        description=rubric.description,
        criteria=[criterion.name for criterion in rubric.criteria],
        minimum=0.0 if rubric.compares else rubric.minimum,
        maximum=0.0 if rubric.compares else rubric.maximum,
        whole=rubric.whole,
        compares=rubric.compares,
    )


def _call_message(attempt: CallAttempt) -> judge_pb2.JudgeCall:
    return judge_pb2.JudgeCall(
        outcome=attempt.outcome,
        input_tokens=attempt.input,
        output_tokens=attempt.output,
        cost_usd=usd_from_nano(attempt.cost) if attempt.cost is not None else None,
        latency_ms=attempt.latency_ms,
        estimated=attempt.estimated,
    )


def _usage_message(usage: CallUsage) -> agent_pb2.Usage:
    message = agent_pb2.Usage(requests=usage.calls)
    if usage.tokens:
        message.input_tokens = sum(tokens.input for tokens in usage.tokens)
        message.output_tokens = sum(tokens.output for tokens in usage.tokens)
        message.total_tokens = message.input_tokens + message.output_tokens
        message.cache_read_tokens = sum(tokens.cache_read for tokens in usage.tokens)
        message.cache_write_tokens = sum(tokens.cache_write for tokens in usage.tokens)
        message.reasoning_tokens = sum(tokens.reasoning for tokens in usage.tokens)
        message.estimated = any(tokens.estimated for tokens in usage.tokens)
    if usage.cost is not None:
        message.cost_usd = usd_from_nano(usage.cost)
    return message
