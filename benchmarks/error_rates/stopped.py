"""Early-stopping rules: false verdicts, power, saved cases, and the figures shown after a stop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from benchmarks.error_rates.comparing import compare, covered, decisions
from benchmarks.error_rates.layouts import Draw
from benchmarks.error_rates.rates import ALPHA, COVERAGE, Rate, Setting, Values, averaged, counted
from benchmarks.error_rates.runs import METRIC, run
from benchmarks.error_rates.scored import SCALE, asymmetric, likert

from assay.comparison.compare import compare_runs
from assay.comparison.facts import RunFacts
from assay.comparison.model import Comparison, ComparisonSettings, ComparisonVerdict
from assay.comparison.stopping import Stop, StoppingPlan, first_stop
from assay.model.stopping import StoppedEarly, StoppingRule, StoppingSettings

_UNIT = (0.0, 1.0)
_SHARED_FIELDS = ("rule", "look", "z", "bound", "p", "standard_error", "looks")


def settings() -> Iterator[Setting]:
    """Return settings of equal and different variants, by both rules and with all cases."""
    for cases, disagreeing in ((20, 0.5), (300, 0.2), (1_000, 0.2)):
        name = f"0 and 1, {100 * disagreeing:g} % disagree"
        yield _setting(name, cases, 0.0, rates(cases, disagreeing), quick=200 if cases == 20 else 0)
    for cases, difference in ((500, 0.1), (200, 0.2)):
        yield _setting("0 and 1, 25 % disagree", cases, difference, rates(cases, 0.25, difference))
    for cases, difference in ((20, 0.0), (300, 0.0), (300, 0.23)):
        yield _setting("scores 1 to 5", cases, difference, likert(cases, difference), scale=SCALE)


def interval_settings() -> Iterator[Setting]:
    """Return settings of the figures shown after a stop, by both rules, with and without a true difference."""
    for rule in StoppingRule:
        for difference in (0.0, 0.05, 0.1):
            name = {"rule": rule.value, "values": "0 and 1, 25 % disagree", "cases": 300, "difference": difference}
            measure = partial(_after_stop, rule, rates(300, 0.25, difference), 300, difference, _UNIT)
            quick = 12 if difference == 0.1 else 0
            yield Setting("stopped-intervals", name, measure, trials=400, quick=quick)
        for difference in (0.0, 0.2):
            name = {"rule": rule.value, "values": "scores, noise 0.6", "cases": 100, "difference": difference}
            measure = partial(_after_stop, rule, bounded(100, difference), 100, difference, SCALE)
            yield Setting("stopped-intervals", name, measure, trials=400)


def bounded(cases: int, difference: float) -> Draw:
    """Return scores within 1 to 5 whose differences are normal."""

    def draw(rng: np.random.Generator, trials: int) -> tuple[Values, Values]:
        a = np.full((trials, cases), 3.0)
        return a, a + np.clip(difference + 0.6 * rng.standard_normal(a.shape), -2, 2)

    return draw


def skewed_settings() -> Iterator[Setting]:
    """Return variants with equal means and asymmetric changes: only the null hypothesis of equal means is true."""
    for cases in (6, 12, 20, 50, 100, 200):
        yield Setting("skewed", {"cases": cases}, partial(_skewed, cases), trials=1_000)


def rates(cases: int, disagreeing: float, difference: float = 0.0) -> Draw:
    """Return 0 and 1 of variants; A is right in about 70 % of the cases."""
    lost, won = (disagreeing - difference) / 2, (disagreeing + difference) / 2
    both = max(0.0, 0.7 - lost)
    bounds = np.cumsum((both, lost, won))

    def draw(rng: np.random.Generator, trials: int) -> tuple[Values, Values]:
        kind = np.searchsorted(bounds, rng.random((trials, cases)), side="right")
        return (kind < 2).astype(float), (kind % 2 == 0).astype(float)

    return draw


def stops(plan: StoppingPlan, a: Values, b: Values) -> list[Stop | None]:
    """Return the decision of a rule on each comparison."""
    return [
        first_stop(plan, list(zip(first.tolist(), second.tolist(), strict=True)))
        for first, second in zip(a, b, strict=True)
    ]


def _setting(
    values: str, cases: int, difference: float, draw: Draw, *, scale: tuple[float, float] = _UNIT, quick: int = 0
) -> Setting:
    def measure(rng: np.random.Generator, trials: int) -> Sequence[Rate]:
        a, b = draw(rng, trials)
        name, limit = ("power", None) if difference else ("false verdicts", ALPHA)
        rates = []
        for rule in StoppingRule:
            decided = stops(StoppingPlan(rule, cases, scale=scale), a, b)
            rates.append(counted(f"{name}, {rule.value}", [stop is not None for stop in decided], at_most=limit))
            rates.append(
                averaged(f"saved, {rule.value}", [0 if stop is None else 1 - stop.cases / cases for stop in decided])
            )
        whole = compare(a, b, is_binary=scale == _UNIT, seed=int(rng.integers(1 << 30)))
        return *rates, counted(f"{name}, all cases", decisions(whole), at_most=limit)

    name = {"values": values, "cases": cases, "difference": difference}
    return Setting("stopping", name, measure, trials=2_000 if cases < 300 else 1_000, quick=quick)


def _after_stop(
    rule: StoppingRule,
    draw: Draw,
    cases: int,
    difference: float,
    scale: tuple[float, float],
    rng: np.random.Generator,
    trials: int,
) -> Sequence[Rate]:
    a, b = draw(rng, trials)
    plan = StoppingPlan(rule, cases, scale=scale)
    shown = [_shown(plan, first, second) for first, second in zip(a, b, strict=True)]
    stopped = [
        comparison for comparison in shown if comparison.stopping is not None and comparison.stopping.has_decided
    ]
    metrics = [comparison.pairs[0].metric(METRIC) for comparison in shown]
    of_stopped = [comparison.pairs[0].metric(METRIC).difference or 0.0 for comparison in stopped]
    estimates = [metric.median_unbiased for metric in metrics if metric.median_unbiased is not None]
    rates = [
        counted("coverage", covered(metrics, difference), at_least=COVERAGE),
        counted("stopped", [comparison in stopped for comparison in shown]),
    ]
    if of_stopped:
        rates.append(averaged("plain difference of those that stopped", of_stopped))
    if estimates:
        above = [estimate > difference for estimate in estimates]
        rates.append(counted("estimate above the difference", above, at_least=0.45, at_most=0.55))
    return rates


def _shown(plan: StoppingPlan, a: Values, b: Values) -> Comparison:
    """Return the comparison of two runs that stopped by the rule, as `assay compare` shows it."""
    stop = first_stop(plan, list(zip(a.tolist(), b.tolist(), strict=True)))
    asked = plan.cases if stop is None else stop.cases
    low, high = plan.scale or _UNIT
    common = StoppingSettings(plan.rule.value, METRIC, ("a", "b"), plan.cases, low=low, high=high)
    stopped = None
    if stop is not None:
        winner = "b" if stop.verdict is ComparisonVerdict.B_BETTER else "a"
        known = {field: getattr(stop, field) for field in _SHARED_FIELDS}
        known |= {"case_count": stop.cases, "pair_count": stop.n_pairs}
        stopped = StoppedEarly(metric=METRIC, winner=winner, asked_count=asked, planned_count=plan.cases, **known)
    runs = [
        run(
            name,
            values[:asked],
            scale=plan.scale,
            facts=RunFacts(name, name, group_id="g", variant=name, stopping=common, stopped=stopped),
        )
        for name, values in (("a", a), ("b", b))
    ]
    return compare_runs(runs, ComparisonSettings())


def _skewed(cases: int, rng: np.random.Generator, trials: int) -> Sequence[Rate]:
    from benchmarks.error_rates.scored import t_decides

    a, b = asymmetric(cases)(rng, trials)
    compared = compare(a, b, bounds=_UNIT, seed=int(rng.integers(1 << 30)))
    rates = [counted("sign flips", decisions(compared)), counted("paired t", t_decides(b - a))]
    for rule in StoppingRule:
        plan = StoppingPlan(rule, cases, scale=_UNIT)
        if not plan.problems():
            limit = ALPHA if rule is StoppingRule.ALWAYS_VALID else None
            rates.append(counted(rule.value, [stop is not None for stop in stops(plan, a, b)], at_most=limit))
    return rates
