"""What judging came to, in a line for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay_cli.terminal import shorten

if TYPE_CHECKING:
    from assay.canaries import CanarySummary
    from assay.results import JudgeSettings, JudgingSummary

__all__ = ["canary_line", "judge_line", "judging_line"]


def judge_line(judge: JudgeSettings) -> str:
    """Return who judges a run, and for how much at most."""
    cap = f", spend cap ${judge.spend_cap_usd:g}" if judge.spend_cap_usd is not None else ""
    rubric = f", rubric {shorten(judge.rubric, 40)}" if judge.rubric else ""
    return f"judge  {shorten(judge.identity, 60)}{rubric}{cap}"


def judging_line(judging: JudgingSummary) -> str:
    """Return how many verdicts a run rests on, where they came from, and what they cost."""
    parts = [f"{judging.asked} asked"]
    if judging.hit_rate:
        parts.append(f"{judging.cached} from the cache ({judging.hit_rate:.1%})")
    if judging.by_rule:
        parts.append(f"{judging.by_rule} by rule")
    if judging.failed:
        parts.append(f"{judging.failed} not valid")
    money = f"{judging.input_tokens + judging.output_tokens:,} tokens"
    if judging.cost_usd is not None or (judging.asked and not judging.unpriced):
        money += f"  ${judging.cost_usd or 0.0:.4f}"
    if judging.unpriced:
        money += f"  {judging.unpriced} without a price"
    if judging.saved_usd is not None:
        money += f"  the cache saved ${judging.saved_usd:.4f}"
    return f"verdicts  {judging.verdicts}: {', '.join(parts)}  {money}"


def canary_line(canaries: CanarySummary) -> str:
    """Return what the judge said of answers whose worth is known, and whether it can be believed."""
    mark = "UNTRUSTED  " if canaries.is_untrusted else ""
    undecided = f", {canaries.undecided} without a verdict" if canaries.undecided else ""
    cost = f"  ${canaries.cost_usd:.4f}" if canaries.cost_usd is not None else ""
    return f"canaries  {canaries.count}{undecided}: {mark}{canaries.sentence}{cost}"
