"""Who judges a run, and what that came to: plain objects to protobuf messages and back."""

from __future__ import annotations

from assay.model.canary_summary import CanarySummary, CanaryTally
from assay.model.run import JudgeSettings, JudgingSummary, JurorSummary, JuryAgreement, SpendCap
from assay.v1 import orchestrator_pb2 as pb

_DEFAULTS = JudgeSettings("")


def judge_to_wire(judge: JudgeSettings) -> pb.JudgeSpec:
    """Return the message of who judges."""
    return pb.JudgeSpec(
        provider=judge.provider,
        model=judge.model,
        base_url=judge.base_url,
        key_variable=judge.key_variable,
        rubric=judge.rubric,
        rubric_yaml=judge.rubric_yaml,
        temperature=judge.temperature,
        max_tokens=judge.max_tokens,
        timeout_ms=round(judge.timeout_s * 1000),
        spend_cap_usd=judge.spend_cap_usd,
        concurrency=judge.concurrency,
        canary_rate=judge.canary_rate,
        batch=judge.batch,
        others=map(judge_to_wire, judge.others),
        recorded_file=judge.recorded_file,
    )


def judge_from_wire(judge: pb.JudgeSpec) -> JudgeSettings:
    """Return who judges, with the defaults that the contract gives."""
    return JudgeSettings(
        provider=judge.provider,
        model=judge.model,
        base_url=judge.base_url,
        key_variable=judge.key_variable,
        rubric=judge.rubric,
        rubric_yaml=judge.rubric_yaml,
        temperature=judge.temperature if judge.HasField("temperature") else None,
        max_tokens=judge.max_tokens or _DEFAULTS.max_tokens,
        timeout_s=judge.timeout_ms / 1000 or _DEFAULTS.timeout_s,
        spend_cap_usd=judge.spend_cap_usd if judge.HasField("spend_cap_usd") else None,
        concurrency=judge.concurrency or _DEFAULTS.concurrency,
        canary_rate=judge.canary_rate if judge.HasField("canary_rate") else _DEFAULTS.canary_rate,
        batch=judge.batch,
        others=tuple(map(judge_from_wire, judge.others)),
        recorded_file=judge.recorded_file,
    )


def spend_cap_to_wire(cap: SpendCap) -> pb.SpendCap:
    """Return the message of a cap."""
    return pb.SpendCap(usd=cap.usd)


def spend_cap_from_wire(cap: pb.SpendCap) -> SpendCap:
    """Return a cap."""
    return SpendCap(cap.usd if cap.HasField("usd") else None)


def judging_to_wire(judging: JudgingSummary) -> pb.JudgingSummary:
    """Return the message of what judging came to."""
    return pb.JudgingSummary(
        verdict_count=judging.verdicts,
        asked_count=judging.asked,
        cached_count=judging.cached,
        by_rule_count=judging.by_rule,
        failed_count=judging.failed,
        input_tokens=judging.input_tokens,
        output_tokens=judging.output_tokens,
        cost_usd=judging.cost_usd,
        saved_usd=judging.saved_usd,
        unpriced_count=judging.unpriced,
        fingerprints=judging.fingerprints,
        canaries=_canaries_to_wire(judging.canaries) if judging.canaries is not None else None,
        batched_count=judging.batched,
        jurors=[
            pb.JurorSummary(judge=one.judge, verdict_count=one.verdicts, failed_count=one.failed,
                            cost_usd=one.cost_usd, means=one.means)
            for one in judging.jurors
        ],
        agreement=[
            pb.JuryAgreement(metric=one.metric, alpha=one.alpha, count=one.count, too_few_count=one.too_few)
            for one in judging.agreement
        ],
        flag_counts=judging.flags,
        recorded_count=judging.recorded,
    )  # fmt: skip


def judging_from_wire(judging: pb.JudgingSummary) -> JudgingSummary:
    """Return what judging came to."""
    return JudgingSummary(
        verdicts=judging.verdict_count,
        asked=judging.asked_count,
        cached=judging.cached_count,
        by_rule=judging.by_rule_count,
        failed=judging.failed_count,
        input_tokens=judging.input_tokens,
        output_tokens=judging.output_tokens,
        cost_usd=judging.cost_usd if judging.HasField("cost_usd") else None,
        saved_usd=judging.saved_usd if judging.HasField("saved_usd") else None,
        unpriced=judging.unpriced_count,
        fingerprints=tuple(judging.fingerprints),
        canaries=_canaries_from_wire(judging.canaries) if judging.HasField("canaries") else None,
        batched=judging.batched_count,
        jurors=tuple(map(_juror_from_wire, judging.jurors)),
        agreement=tuple(
            JuryAgreement(one.metric, one.alpha if one.HasField("alpha") else None, one.count, one.too_few_count)
            for one in judging.agreement
        ),
        flags=dict(sorted(judging.flag_counts.items())),
        recorded=judging.recorded_count,
    )


def _juror_from_wire(juror: pb.JurorSummary) -> JurorSummary:
    cost = juror.cost_usd if juror.HasField("cost_usd") else None
    return JurorSummary(juror.judge, juror.verdict_count, juror.failed_count, cost, dict(juror.means))


def _canaries_to_wire(canaries: CanarySummary) -> pb.CanarySummary:
    return pb.CanarySummary(
        kinds=[pb.CanaryTally(kind=each.kind, count=each.count, wrong_count=each.wrong) for each in canaries.kinds],
        undecided_count=canaries.undecided,
        cost_usd=canaries.cost_usd,
    )


def _canaries_from_wire(canaries: pb.CanarySummary) -> CanarySummary:
    return CanarySummary(
        tuple(CanaryTally(each.kind, each.count, each.wrong_count) for each in canaries.kinds),
        canaries.undecided_count,
        canaries.cost_usd if canaries.HasField("cost_usd") else None,
    )
