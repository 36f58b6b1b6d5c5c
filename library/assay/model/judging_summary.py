"""What judging came to: the verdicts that the rows of a run rest on, their cost, and how far judges agree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assay.model.canary_summary import CanarySummary

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class JurorSummary:
    """What one judge of a jury has said.

    Args:
        judge: The judge, e.g. "openai:gpt-4o-mini".
        verdicts: All of them, those that are not valid among them.
        failed: Not valid, or not to be had.
        cost_usd: What those asked for cost; None where none of them has a price.
        means: Mean of its scores by metric; a metric of which it has no valid verdict is left out.
    """

    judge: str
    verdicts: int = 0
    failed: int = 0
    cost_usd: float | None = None
    means: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JuryAgreement:
    """How far the judges of a jury agree about one metric.

    Args:
        metric: Its name.
        alpha: Krippendorff's alpha for intervals: 1 is perfect, 0 is chance; None where it cannot be computed.
        count: Rows with two valid verdicts or more.
        too_few: Rows that are errors because fewer than two verdicts were valid.
    """

    metric: str
    alpha: float | None
    count: int
    too_few: int = 0


@dataclass(frozen=True, slots=True)
class JudgingSummary:
    """The verdicts that the rows of a run rest on; what was paid for others is not among it.

    Args:
        verdicts: All of them, those that are not valid among them.
        asked: Asked of the judge.
        cached: From the cache, or from an identical request in flight.
        by_rule: Of empty answers: the lowest score by rule, without a call of the judge.
        failed: Not valid, or not to be had.
        input_tokens: Of all attempts.
        output_tokens: Of all attempts, thoughts included.
        cost_usd: What those asked for cost; None where none of them has a price.
        saved_usd: What the cached ones had cost when they were asked for; None where none of them has a price.
        unpriced: Verdicts asked for without a price: they are not part of cost_usd.
        fingerprints: Of judge and rubric (model, parameters, template, schema, parser), sorted; at most 20.
        canaries: What the judge said of answers whose worth is known, which is no part of the rest; None where the
            run has none.
        batched: Came through a provider's batch API, at its price.
        jurors: What each judge of a jury has said; empty where there is no jury.
        agreement: How far the judges of a jury agree, by metric; empty where there is no jury.
        flags: Verdicts by the flags of their answers, sorted by name, e.g. {"punctuation_only": 2}.
        recorded: Recorded before, and brought along by the run: no judge was asked.
        account_usd: All that the judge's account of the run says was spent: canaries, rows that were tried again and
            lost calls too. None where it is not known.
        unknown_usd: What of it was set aside for calls whose outcome is unknown: the bill may have less.
        refused_parameters: Verdicts that were asked for without a parameter because the model refuses it, by that
            parameter, sorted by name, e.g. {"temperature": 40}.
    """

    verdicts: int = 0
    asked: int = 0
    cached: int = 0
    by_rule: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    saved_usd: float | None = None
    unpriced: int = 0
    fingerprints: tuple[str, ...] = ()
    canaries: CanarySummary | None = None
    batched: int = 0
    jurors: tuple[JurorSummary, ...] = ()
    agreement: tuple[JuryAgreement, ...] = ()
    flags: Mapping[str, int] = field(default_factory=dict)
    recorded: int = 0
    account_usd: float | None = None
    unknown_usd: float = 0.0
    refused_parameters: Mapping[str, int] = field(default_factory=dict)

    @property
    def hit_rate(self) -> float | None:
        """The share of the verdicts that the cache gave, among those that were not decided by rule."""
        needed = self.asked + self.cached
        return self.cached / needed if needed else None
