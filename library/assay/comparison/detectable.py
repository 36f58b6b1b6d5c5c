"""The smallest detectable difference of a comparison, and the cases that a chosen difference needs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from assay.comparison.model import ComparisonVerdict
from assay.statistics.clusters import can_decide, in_clusters
from assay.statistics.power import (
    cases_for_rates,
    cases_for_scores,
    common_step,
    detectable_effect,
    detectable_rate_difference,
    with_lost_steps,
)

if TYPE_CHECKING:
    from assay.comparison.metric_pairs import PairedValues
    from assay.comparison.model import ComparisonSettings, MetricComparison

_NO_VERDICT = (ComparisonVerdict.NO_DATA, ComparisonVerdict.WITHHELD)


def with_power(
    metric: MetricComparison, pair: PairedValues, settings: ComparisonSettings, tests: int
) -> MetricComparison:
    """Return a comparison with its detectable difference; unchanged if it has no verdict or decides nothing.

    The level is that of the first test of Holm's adjustment, so that no figure is below what a verdict needs beside the
    other tests of its family.

    Args:
        metric: The comparison with its verdict, by a fixed number of cases.
        pair: Its values.
        settings: The level, the power, and the chosen difference.
        tests: The number of p-values that are adjusted together.
    """
    if metric.verdict in _NO_VERDICT or not metric.decides:
        return metric
    # Never for the observed difference: that size would restate the p-value.
    chosen = (settings.difference or settings.margin) if metric.is_primary else None
    figures = _of_rates if pair.uses_mcnemar else _of_scores
    detectable, needed = figures(metric, pair, chosen, settings.alpha / tests, settings.power)
    low, high = pair.bounds
    if detectable is not None and detectable > high - low:
        detectable = None
    return replace(metric, detectable=detectable, needed_case_count=needed)


def _of_rates(
    metric: MetricComparison, pair: PairedValues, chosen: float | None, alpha: float, power: float
) -> tuple[float | None, int | None]:
    n, disagreeing = metric.pair_count, metric.win_count + metric.loss_count
    share = disagreeing / n
    detectable = (
        detectable_rate_difference(n, share, alpha=alpha, power=power) if can_decide(disagreeing, alpha) else None
    )
    if chosen is None or chosen > share:
        return detectable, None
    return detectable, cases_for_rates(chosen, share, alpha=alpha, power=power)


def _of_scores(
    metric: MetricComparison, pair: PairedValues, chosen: float | None, alpha: float, power: float
) -> tuple[float | None, int | None]:
    if not metric.standard_error:
        return None, None
    grouped = in_clusters(pair.differences.tolist(), pair.clusters)
    units, effective = sum(total != 0 for total in grouped.sums), grouped.effective_count
    step = common_step({*pair.a.tolist(), *pair.b.tolist()})
    differing, detectable, needed = units / len(grouped.sums), None, None
    if can_decide(units, alpha):
        # Beside a large cluster the small clusters decide, and no variance describes their power.
        count = math.floor(effective)
        effect = detectable_effect(count, differing=differing, alpha=alpha, power=power, degrees=grouped.degrees)
        if effect is not None:
            detectable = with_lost_steps(effect * math.sqrt(count) * metric.standard_error, metric.pair_count, step)
    if chosen is not None:
        unit_cases = metric.pair_count / effective
        spread = metric.standard_error * math.sqrt(effective)
        count_needed = cases_for_scores(
            chosen, spread, differing=differing, step=step / unit_cases, alpha=alpha, power=power
        )
        needed = None if count_needed is None else math.ceil(count_needed * unit_cases)
    return detectable, needed
