"""The outcome of the rule by which two runs stop early, which is the verdict of their comparison."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from assay.comparison.model import ComparisonVerdict
from assay.comparison.stopping_outcome import StoppingOutcome
from assay.model.interval import Interval
from assay.model.stopping import StoppingRule
from assay.statistics.sequential import always_valid_interval, always_valid_lower_bound, look_at, look_sizes
from assay.statistics.stagewise import stagewise_estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.comparison.facts import RunFacts
    from assay.comparison.metric_pairs import PairedValues
    from assay.comparison.model import ComparisonSettings, MetricComparison
    from assay.model.stopping import StoppingSettings

ALWAYS_VALID, STAGEWISE = "always_valid", "stagewise"
"""The interval methods of rules that stop early."""


def shared_stopping(runs: Sequence[RunFacts]) -> StoppingSettings | None:
    """Return the rule by which two runs of one group stop early; None if they share no rule."""
    if len(runs) != 2 or runs[0].stopping is None:
        return None
    first, second = runs
    is_pair = (first.stopping, first.group_id) == (second.stopping, second.group_id) and first.variant != second.variant
    return first.stopping if is_pair else None


def stopping_outcome(
    stopping: StoppingSettings | None,
    runs: Sequence[RunFacts],
    asked: Sequence[int],
    values: PairedValues,
    settings: ComparisonSettings,
) -> StoppingOutcome | None:
    """Return the outcome of the rule of two runs; None if their comparison decides something else.

    Args:
        stopping: Their rule.
        runs: Both runs, in the order of the comparison.
        asked: The number of cases with a row in each run.
        values: The values of the primary metric.
        settings: The settings of the comparison.
    """
    if stopping is None or values.metric != stopping.metric or settings.where or settings.cluster:
        return None
    known = [run.stopped for run in runs if run.stopped is not None]
    outcome = StoppingOutcome(
        rule=StoppingRule(stopping.rule),
        metric=stopping.metric,
        alpha=stopping.alpha,
        seed=stopping.seed,
        planned_case_count=stopping.cases,
        a_asked_case_count=asked[0],
        b_asked_case_count=asked[1],
        verdict=ComparisonVerdict.INCONCLUSIVE,
        saved_call_count=sum(summary.saved_call_count for summary in known),
        saved_token_count=_sum([summary.saved_tokens for summary in known]),
        saved_usd=_sum([summary.saved_usd for summary in known]),
        saved_ms=max((summary.saved_ms for summary in known if summary.saved_ms is not None), default=None),
    )
    if not known:
        return outcome if stopping.rule != StoppingRule.FIVE_LOOKS else _last_look(outcome, values)
    stopped, first = known[0], runs[0].variant
    return replace(
        outcome,
        verdict=ComparisonVerdict.A_BETTER if stopped.winner == first else ComparisonVerdict.B_BETTER,
        case_count=stopped.case_count,
        pair_count=stopped.pair_count,
        look=stopped.look,
        # z is in the order of the variants
        z=stopped.z if stopped.z is None or stopping.variants[0] == first else -stopped.z,
        bound=stopped.bound,
        p=stopped.p,
        standard_error=stopped.standard_error,
        look_pair_counts=stopped.looks,
    )


def _last_look(outcome: StoppingOutcome, values: PairedValues) -> StoppingOutcome:
    """Return the outcome of looks that decided nothing: z over all common cases."""
    count, common = len(values.a), len(values.a) + values.dropped_case_count
    if not count:
        return outcome
    seen = look_at(values.differences.tolist(), is_binary=values.is_binary)
    # It is unknown which cases had no value at the earlier looks, but their share of all cases is known.
    earlier = [round(count * size / common) for size in look_sizes(outcome.planned_case_count) if size < common]
    return replace(outcome, z=seen.z, standard_error=seen.standard_error, look_pair_counts=(*earlier, count))


def with_stopping(
    metric: MetricComparison, stopping: StoppingOutcome | None, values: PairedValues, settings: ComparisonSettings
) -> MetricComparison:
    """Return the deciding metric with an estimate and an interval that account for looking early.

    Args:
        metric: The metric with the ordinary interval, which stays if the rule has none.
        stopping: The outcome of the rule; None if no rule decides.
        values: The values of the metric.
        settings: The settings of the comparison.
    """
    width = values.bounds[1] - values.bounds[0]
    if stopping is None or not len(values.a):
        return metric
    if stopping.rule == StoppingRule.ALWAYS_VALID:
        differences = [min(max(difference / width, -1.0), 1.0) for difference in values.differences.tolist()]
        ends = always_valid_interval(differences, alpha=settings.alpha)
        is_borderline = stopping.has_decided and ends[0] <= 0 <= ends[1]
        least = always_valid_lower_bound(differences, alpha=settings.alpha)
        most = -always_valid_lower_bound([-step for step in differences], alpha=settings.alpha)
        return replace(
            metric,
            interval=Interval(ends[0] * width, ends[1] * width),
            interval_method=ALWAYS_VALID,
            one_sided=Interval(least * width, most * width),
            borderline=is_borderline,
        )
    if stopping.z is None or not stopping.standard_error:
        return metric
    z, error, looks = stopping.z, stopping.standard_error, stopping.look_pair_counts
    estimate = stagewise_estimate(z, error, looks, alpha=settings.alpha)
    low, high = stagewise_estimate(z, error, looks, alpha=2 * settings.alpha).interval
    return replace(
        metric,
        median_unbiased=estimate.difference,
        interval=Interval(max(-width, estimate.interval[0]), min(width, estimate.interval[1])),
        interval_method=STAGEWISE,
        # A normal limit does not know of losses too rare to be among the cases: the ordinary bounds do.
        one_sided=metric.one_sided and Interval(min(low, metric.one_sided.low), max(high, metric.one_sided.high)),
        borderline=False,
    )


def _sum(parts: Sequence[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return math.fsum(known) if known else None
