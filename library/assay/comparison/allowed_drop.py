"""The allowed drop of a pipeline: the observed drop, its bound, and how often noise alone exceeds it."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from assay.comparison.model import ComparisonVerdict, Reason
from assay.statistics.thresholds import exceeds, text_apart

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay.comparison.model import MetricComparison, RunRef

_LEAST_CHANCE = 0.001
_AFTER_LOOKS = frozenset({"always_valid", "stagewise"})


@dataclass(frozen=True, slots=True)
class AllowedDrop:
    """The drop of a run and the largest allowed drop.

    Args:
        label: The label of the run, which is compared with the first one.
        run_id: The run.
        drop: The amount by which the primary metric is worse; below 0 if it is better.
        allowed: The largest allowed drop.
        bound: The largest drop that the values do not exclude, one-sided at 1 - alpha; None if they exclude none.
        noise_chance: How often noise alone exceeds the allowed drop where both runs are equal, Φ(-allowed/standard
            error); None if the values have no spread, where errors differ, and after looking early.
        is_narrow: Whether the interval of the difference reaches at most the allowed drop to either side.
    """

    label: str
    run_id: str
    drop: float
    allowed: float
    bound: float | None
    noise_chance: float | None
    is_narrow: bool


def allowed_drop(run: RunRef, metric: MetricComparison, allowed: float | None) -> AllowedDrop | None:
    """Return the drop of a run's primary metric and the allowed one; None if either is missing."""
    difference = metric.difference if metric.median_unbiased is None else metric.median_unbiased
    if difference is None or allowed is None:
        return None
    bound = None
    # The bounds include the errors that withhold a verdict.
    is_bounded = (
        metric.verdict not in (ComparisonVerdict.NO_DATA, ComparisonVerdict.WITHHELD)
        or metric.reason == Reason.AGENT_ERRORS
    )
    if metric.one_sided is not None and is_bounded:
        bound = -metric.one_sided.low if metric.higher_is_better else metric.one_sided.high
    chance = None
    differ = metric.errors is not None and metric.errors.differ  # then the difference contains more than noise
    if metric.standard_error and metric.interval_method not in _AFTER_LOOKS and not differ:
        chance = NormalDist().cdf(-allowed / metric.standard_error)
    return AllowedDrop(
        label=run.label,
        run_id=run.run_id,
        drop=-difference if metric.higher_is_better else difference,
        allowed=allowed,
        bound=bound,
        noise_chance=chance,
        is_narrow=metric.interval is None or (metric.interval.high - metric.interval.low) / 2 <= allowed,
    )


def too_large(b: str, a: str, metric: MetricComparison, drop: AllowedDrop | None) -> Iterator[str]:
    """Yield a reason if a drop exceeds the allowed one."""
    if drop is not None and exceeds(drop.drop, drop.allowed):
        shown = text_apart(drop.drop, [drop.allowed])
        yield f"{metric.metric} of {b} is {shown} worse than that of {a}, more than the allowed {drop.allowed:g}"


def not_excluded(b: str, a: str, metric: MetricComparison, drop: AllowedDrop | None, alpha: float) -> Iterator[str]:
    """Yield a reason if the values do not exclude a larger drop than the allowed one."""
    if drop is None or metric.verdict is ComparisonVerdict.NO_DATA or exceeds(drop.drop, drop.allowed):
        return
    problem = f"a drop of {metric.metric} of {b} against {a} by more than {drop.allowed:g} is not excluded"
    if drop.bound is None:
        yield f"{problem}: {metric.message or 'the values have no spread'}"
    elif drop.bound >= drop.allowed:
        shown = f"it may be {text_apart(drop.bound, [drop.allowed])} (one-sided {100 * (1 - alpha):.4g}% bound"
        differ = metric.errors is not None and metric.errors.differ
        yield f"{problem}: {shown}{', with the worst values in place of errors' if differ else ''})"


def drop_notes(drops: Sequence[AllowedDrop], names: Sequence[str], *, is_tested: bool) -> Iterator[str]:
    """Yield notes on an allowed drop: how often noise decides, and whether the cases can show such a drop.

    Args:
        drops: The drop of each run.
        names: The names of the runs.
        is_tested: Whether a larger drop must be excluded.
    """
    for drop, name in zip(drops, names, strict=True):
        of = f" of {name}" if len(drops) > 1 else ""
        if is_tested and drop.bound is not None and drop.bound < drop.allowed:
            largest = text_apart(max(0.0, drop.bound), [drop.allowed])
            yield f"a drop{of} by more than {drop.allowed:g} is excluded: it is {largest} at most"
        if drop.noise_chance is not None:
            is_rare = drop.noise_chance < _LEAST_CHANCE
            chance = f"less than {_LEAST_CHANCE:.1%}" if is_rare else f"{drop.noise_chance:.1%}"
            yield f"noise alone exceeds --max-drop {drop.allowed:g}{of} in {chance} of comparisons of equal runs"
        if not drop.is_narrow:
            yield (
                f"the interval{of} reaches more than {drop.allowed:g} to either side: with so few cases, such a drop "
                "can be noise"
            )
