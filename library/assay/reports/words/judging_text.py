"""Text on judging: judges, cost, and reasons of failed answers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from assay.identity.quotas import NANO
from assay.judging.canaries import DETAIL
from assay.judging.prices import cap_text
from assay.metrics.core.turn_scores import scores_by_turn
from assay.model.judgement import judgement_from_json
from assay.text.unsafe_text import shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.model.canary_summary import CanarySummary
    from assay.model.judgement import Judgement
    from assay.model.judging_summary import JudgingSummary
    from assay.model.run import JudgeSpec, RowResult, RunSpec, Score

_LEAST_SHOWN_USD = 0.00005


def judge_lines(spec: RunSpec, environ: Mapping[str, str] | None = None) -> list[str]:
    """Return a line on each judge of a run, with the spend cap of the run.

    Args:
        spec: The settings of the run.
        environ: The judge service's environment, from which follows how many verdicts a cap allows; None if unknown.
    """
    cap = "" if spec.spend_cap_nano_usd is None else f"spend cap ${spec.spend_cap_nano_usd / NANO:g}"
    if allowed := cap_text(spec, environ):
        cap += f" ({allowed})"
    if len(spec.judges) == 1:
        return [_judge_line(spec, spec.judges[0], cap)]
    return [_judge_line(spec, judge, "") for judge in spec.judges] + (
        [cap.replace("spend cap ", "spend cap  ", 1)] if cap and spec.judges else []
    )


def _judge_line(spec: RunSpec, judge: JudgeSpec, cap: str) -> str:
    name = f"{judge.name}  " if len(spec.judges) > 1 else ""
    own = dict.fromkeys(metric.rubric for metric in spec.metrics if metric.rubric and spec.judge_of(metric) is judge)
    rubrics = ", ".join(shorten(rubric, 40) for rubric in own)
    parts = [f"rubric{'s' * (len(own) > 1)} {rubrics}"] if own else []
    if judge.recorded_file:
        return ", ".join((f"judge  {name}none is asked: verdicts {_recorded_in(judge)}", *parts))
    who = " + ".join(shorten(member.identity, 60) for member in judge.members)
    parts += [part for part in (cap, "in batches" if judge.batch else "") if part]
    return ", ".join((f"{'jury' if judge.is_jury else 'judge'}  {name}{who}", *parts))


def _recorded_in(judge: JudgeSpec) -> str:
    who = ", ".join(member.model for member in judge.members if member.model)
    return f"recorded in {shorten(judge.recorded_file, 60)}{f' ({shorten(who, 80)})' if who else ''}"


def judging_line(judging: JudgingSummary, judges: Sequence[JudgeSpec] = ()) -> str:
    """Return the line on the number, origin and cost of a run's verdicts.

    Args:
        judging: The verdicts.
        judges: The judges; empty if unknown.
    """
    if judges and all(judge.recorded_file for judge in judges):
        missing = f", {judging.failed_count} not recorded" if judging.failed_count else ""
        recorded = f"{judging.recorded_count} {_recorded_in(judges[0])}"
        return f"verdicts  {judging.verdict_count}: {recorded}{missing}; no judge was asked"
    parts = [
        f"{judging.asked_count} asked" + (f" ({judging.batched_count} in batches)" if judging.batched_count else "")
    ]
    if judging.hit_rate:
        parts.append(f"{judging.cached_count} from the cache ({judging.hit_rate:.1%})")
    if judging.by_rule_count:
        parts.append(f"{judging.by_rule_count} by rule")
    if judging.failed_count:
        parts.append(f"{judging.failed_count} not valid")
    money = f"{judging.input_tokens + judging.output_tokens:,} tokens"
    if judging.cost_usd is not None or (judging.asked_count and not judging.unpriced_count):
        money += f"  ${judging.cost_usd or 0.0:.4f}"
    if judging.unpriced_count:
        money += f"  {judging.unpriced_count} without a price"
    if judging.saved_usd is not None:
        money += f"  the cache saved ${judging.saved_usd:.4f}"
    money += _account_text(judging)
    flags = ", ".join(f"{count} {shorten(flag, 40)}" for flag, count in judging.flag_counts.items())
    return (
        f"verdicts  {judging.verdict_count}: {', '.join(parts)}  {money}"
        + (f"  flagged: {flags}" if flags else "")
        + _refused_text(judging)
    )


def _refused_text(judging: JudgingSummary) -> str:
    """Return the parameters that were left out because the model refuses them; empty if all were sent."""
    refused = ", ".join(f"{shorten(name, 40)} ({count})" for name, count in judging.refused_parameter_counts.items())
    return f"  asked without what the model refuses: {refused}" if refused else ""


def _account_text(judging: JudgingSummary) -> str:
    """Return the cost in the judge's account beyond that of the rows' verdicts, and why; empty if none is unknown."""
    if judging.account_usd is None or judging.unknown_usd < _LEAST_SHOWN_USD:
        return ""
    return (
        f"  account ${judging.account_usd:.4f}, of which ${judging.unknown_usd:.4f} are set aside for calls whose "
        "outcome is unknown (the bill may have less)"
    )


def jury_lines(judging: JudgingSummary) -> list[str]:
    """Return a line on the verdicts of each judge of a jury, and on their agreement by metric."""
    lines = []
    for juror in judging.jurors:
        means = "".join(f"  {metric} {mean:.3f}" for metric, mean in juror.means.items())
        failed = f", {juror.failed_count} not valid" if juror.failed_count else ""
        cost = f"  ${juror.cost_usd:.4f}" if juror.cost_usd is not None else ""
        lines.append(f"juror  {shorten(juror.judge, 60)}  {juror.verdict_count} verdicts{failed}{means}{cost}")
    for agreed in judging.agreement:
        alpha = "-" if agreed.alpha is None else f"{agreed.alpha:.3f}"
        too_few = f", {agreed.too_few_count} rows with fewer than two valid verdicts" if agreed.too_few_count else ""
        lines.append(f"jury  {agreed.metric}: alpha {alpha} over {agreed.row_count} rows{too_few}")
    return lines


def canary_line(canaries: CanarySummary, *, names_judge: bool = False) -> str:
    """Return the line on a judge's verdicts on answers of known worth, and whether it can be trusted."""
    of_judge = f"{canaries.judge}  " if names_judge else ""
    mark = "UNTRUSTED  " if canaries.is_untrusted else ""
    undecided = f", {canaries.undecided_count} without a verdict" if canaries.undecided_count else ""
    cost = f"  ${canaries.cost_usd:.4f}" if canaries.cost_usd is not None else ""
    return f"canaries  {of_judge}{canaries.canary_count}{undecided}: {mark}{canaries.message}{cost}"


def judge_reasons(row: RowResult) -> list[str]:
    """Return the judge's reasons for not passing an answer, each with its metric; untrusted and of any length.

    For an invalid verdict the reason is why it is invalid; each judge of a jury gives its own.
    """
    reasons: dict[str, None] = {}
    for score in row.scores:
        if score.passed or (score.value is not None and score.passed is None):
            continue
        for judgement, is_of_jury in _failing(score):
            reason = judgement.reasoning or judgement.message or judgement.reason or (not is_of_jury and score.message)
            if reason and reason.strip():
                reasons.setdefault(f"{_giver(judgement, is_of_jury=is_of_jury)} on {score.metric}: {reason}")
    return list(reasons)


def _giver(judgement: Judgement, *, is_of_jury: bool) -> str:
    """Return the author of a verdict: "rule" if no judge was asked."""
    return "rule" if judgement.is_by_rule else judgement.judge if is_of_jury else "judge"


def judging_cost(row: RowResult) -> float | None:
    """Return the cost of a row's verdicts in US dollars, including canaries; None if none has a cost."""
    paid: dict[str, float] = {}
    for score in row.scores:
        canary = score.detail.get(DETAIL)
        planted = map(judgement_from_json, canary["judgements"]) if isinstance(canary, dict) else ()
        for judgement in (*score.judgements, *planted):
            if judgement.paid_usd is not None:
                # Several metrics of a row may use the same verdict, which is paid for once.
                paid[judgement.key] = judgement.paid_usd
    return math.fsum(paid.values()) if paid else None


def _failing(score: Score) -> Iterator[tuple[Judgement, bool]]:
    """Yield the judgements behind the turns and checks that did not pass, each with whether it is of a jury."""
    checks = score.detail.get("checks")
    passed = {index for index, check in enumerate(checks or ()) if check.get("passed")}
    for _, part in scores_by_turn(score):
        groups: dict[int | None, list[Judgement]] = {}
        for judgement in () if part.passed else part.judgements:
            groups.setdefault(judgement.check_index, []).append(judgement)
        for index, jury in groups.items():
            if index not in passed:
                yield from ((judgement, len(jury) > 1) for judgement in jury)
