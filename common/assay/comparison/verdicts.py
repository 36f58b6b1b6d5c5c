"""What the tests of a comparison come to: adjusted p-values, and the verdict of each metric or why it has none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from assay.comparison.metric_pairs import NoVerdict, too_few
from assay.comparison.model import Adjustment, Reason, Verdict
from assay.statistics.adjustment import benjamini_hochberg, holm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.comparison.metric_pairs import PairedValues
    from assay.comparison.model import ComparisonSettings, MetricComparison, StoppingOutcome


def decided(
    tested: Sequence[MetricComparison],
    values: Sequence[PairedValues],
    settings: ComparisonSettings,
    stopping: StoppingOutcome | None,
) -> list[MetricComparison]:
    """Adjust the p-values, those of the primary metric and all others as two families, and add the verdicts.

    Where runs stop early by a rule, it decides on the primary metric in place of the p-value, which is not adjusted for
    the looks.
    """
    adjust = holm if settings.adjust is Adjustment.HOLM else benjamini_hochberg
    adjusted: dict[int, float] = {}
    for is_primary in (True, False):
        family = [at for at, one in enumerate(tested) if one.is_primary is is_primary and one.p is not None]
        adjusted |= dict(zip(family, adjust([tested[at].p or 0.0 for at in family]), strict=True))
    return [
        _with_verdict(
            replace(one, p_adjusted=adjusted.get(at)), values[at], settings, stopping if one.is_primary else None
        )
        for at, one in enumerate(tested)
    ]


def _with_verdict(
    one: MetricComparison, values: PairedValues, settings: ComparisonSettings, stopping: StoppingOutcome | None
) -> MetricComparison:
    if missing := too_few(values):
        return _without(one, Verdict.NO_DATA, missing)
    if values.withheld is not None:
        return _without(one, Verdict.WITHHELD, values.withheld)
    if stopping is not None and stopping.has_decided:
        return replace(one, verdict=stopping.verdict)
    is_significant = stopping is None and one.p_adjusted is not None and one.p_adjusted < settings.alpha
    if is_significant and one.difference:
        is_b = (one.difference > 0) is one.higher_is_better
        return replace(one, verdict=Verdict.B_BETTER if is_b else Verdict.A_BETTER)
    inner = one.equivalence_interval
    margin = settings.margin if one.is_primary else None
    if margin is not None and inner is not None and -margin < inner[0] and inner[1] < margin:
        return replace(one, verdict=Verdict.EQUIVALENT)
    if stopping is not None:
        said = f"{stopping.rule} decided nothing in {stopping.planned:,} planned cases"
        return _without(one, Verdict.INCONCLUSIVE, NoVerdict(Reason.RULE_UNDECIDED, said))
    said = f"the p-value is not below {settings.alpha:g}"
    return _without(one, Verdict.INCONCLUSIVE, NoVerdict(Reason.NOT_SIGNIFICANT, said))


def _without(one: MetricComparison, verdict: Verdict, why: NoVerdict) -> MetricComparison:
    return replace(one, verdict=verdict, reason=why.reason.value, message=why.message)
