"""What the rule by which two runs stop early says of them: the verdict of their comparison."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from assay.comparison.model import StoppingOutcome, Verdict
from assay.statistics.sequential import always_valid_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.comparison.facts import RunFacts
    from assay.comparison.metric_pairs import PairedValues
    from assay.comparison.model import ComparisonSettings
    from assay.model.stopping import StoppingSettings


def shared_stopping(runs: Sequence[RunFacts]) -> StoppingSettings | None:
    """Return the rule by which two runs of one group stop early; None where they have none in common."""
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
    """Return what the rule of two runs came to; None where it is not what their comparison decides.

    Args:
        stopping: Their rule.
        runs: Both, the first of the comparison first.
        asked: Cases with a row in each.
        values: Of the primary metric.
        settings: How they are compared.
    """
    if stopping is None or values.metric != stopping.metric or settings.where or settings.cluster:
        return None
    known = [run.stopped for run in runs if run.stopped is not None]
    stopped = known[0] if known else None
    verdict = Verdict.INCONCLUSIVE
    if stopped is not None:
        verdict = Verdict.A_BETTER if stopped.winner == runs[0].variant else Verdict.B_BETTER
    sign = 1 if stopping.variants[0] == runs[0].variant else -1  # z is of the order of the variants
    return StoppingOutcome(
        rule=stopping.rule,
        metric=stopping.metric,
        alpha=stopping.alpha,
        seed=stopping.seed,
        planned=stopping.cases,
        asked_a=asked[0],
        asked_b=asked[1],
        verdict=verdict,
        cases=stopped.cases if stopped is not None else 0,
        n_pairs=stopped.n_pairs if stopped is not None else 0,
        look=stopped.look if stopped is not None else None,
        z=stopped.z * sign if stopped is not None and stopped.z is not None else None,
        bound=stopped.bound if stopped is not None else None,
        p=stopped.p if stopped is not None else None,
        interval=_interval(stopping, values),
        saved_calls=sum(one.saved_calls for one in known),
        saved_tokens=_sum([one.saved_tokens for one in known]),
        saved_usd=_sum([one.saved_usd for one in known]),
        saved_s=max((one.saved_s for one in known if one.saved_s is not None), default=None),
    )


def _interval(stopping: StoppingSettings, values: PairedValues) -> tuple[float, float] | None:
    """Return the interval that may be looked at after any case, in the unit of the metric."""
    if stopping.scale is None or not len(values.a):
        return None
    width = stopping.scale[1] - stopping.scale[0]
    differences = [min(max(float(b - a) / width, -1.0), 1.0) for a, b in zip(values.a, values.b, strict=True)]
    low, high = always_valid_interval(differences, alpha=stopping.alpha)
    return low * width, high * width


def _sum(parts: Sequence[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return math.fsum(known) if known else None
