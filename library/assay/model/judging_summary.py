"""The summary of judging: the verdicts behind a run's rows, their cost, and the agreement of judges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assay.model.canary_summary import CanarySummary
from assay.model.run_spec import DEFAULT_JUDGE

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class JurorSummary:
    """The verdicts of one model: a member of a jury, or one of several judges.

    Args:
        judge: The model, e.g. "openai:gpt-4o-mini".
        verdict_count: Number of verdicts, invalid ones included.
        failed_count: Invalid or unavailable verdicts.
        cost_usd: Cost of requested verdicts; None if none has a price.
        means: Mean score by metric; a metric without a valid verdict is omitted.
        name: The judge's name in the spec.
    """

    judge: str
    verdict_count: int = 0
    failed_count: int = 0
    cost_usd: float | None = None
    means: Mapping[str, float] = field(default_factory=dict)
    name: str = DEFAULT_JUDGE


@dataclass(frozen=True, slots=True)
class JuryAgreement:
    """The agreement of a jury's judges on a metric.

    Args:
        metric: The metric's name.
        alpha: Krippendorff's alpha for intervals: 1 is perfect, 0 is chance; None if it cannot be computed.
        row_count: Rows with at least two valid verdicts.
        too_few_count: Rows that are errors because they have fewer than two valid verdicts.
    """

    metric: str
    alpha: float | None
    row_count: int
    too_few_count: int = 0


@dataclass(frozen=True, slots=True)
class JudgingSummary:
    """The verdicts behind the rows of a run; other paid verdicts do not count here.

    Args:
        verdict_count: Number of verdicts, invalid ones included.
        asked_count: Verdicts requested from the judge.
        cached_count: Verdicts from the cache, or from an identical request in flight.
        by_rule_count: Verdicts on empty answers, which get the lowest score without a call.
        failed_count: Invalid or unavailable verdicts.
        input_tokens: Input tokens of all attempts.
        output_tokens: Output tokens of all attempts, thoughts included.
        cost_usd: Cost of the requested verdicts; None if none has a price.
        saved_usd: Original cost of the cached verdicts; None if none has a price.
        unpriced_count: Requested verdicts without a price, which cost_usd does not include.
        fingerprints: Of judge and rubric (model, parameters, template, schema, parser), sorted; at most 20.
        canaries: The verdicts on answers of known quality, by judge, which no other field includes.
        batched_count: Verdicts that came through a provider's batch API, at its price.
        jurors: The verdicts of each model of the judges; empty if the run has one judge of one model.
        agreement: The agreement of a jury's judges, by metric; empty without a jury.
        flag_counts: Number of verdicts by flag of their answers, sorted by name, e.g. {"punctuation_only": 2}.
        recorded_count: Recorded verdicts that came with the run; no judge was asked.
        account_usd: All spending in the judge's account of the run, including canaries, retried rows and lost calls.
            None if unknown.
        unknown_usd: The part of account_usd reserved for calls with an unknown outcome; the bill may be lower.
        refused_parameter_counts: Verdicts requested without a parameter that the model refuses, by parameter, sorted by
            name, e.g. {"temperature": 40}.
        hit_rate: The share of the requested and cached verdicts that came from the cache; None if there are none.
    """

    verdict_count: int = 0
    asked_count: int = 0
    cached_count: int = 0
    by_rule_count: int = 0
    failed_count: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    saved_usd: float | None = None
    unpriced_count: int = 0
    fingerprints: tuple[str, ...] = ()
    canaries: tuple[CanarySummary, ...] = ()
    batched_count: int = 0
    jurors: tuple[JurorSummary, ...] = ()
    agreement: tuple[JuryAgreement, ...] = ()
    flag_counts: Mapping[str, int] = field(default_factory=dict)
    recorded_count: int = 0
    account_usd: float | None = None
    unknown_usd: float = 0.0
    refused_parameter_counts: Mapping[str, int] = field(default_factory=dict)
    hit_rate: float | None = None
