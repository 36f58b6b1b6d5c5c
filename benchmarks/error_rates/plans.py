"""Power of the sizes that `assay plan` returns, with a known truth and with estimates from pilots."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache, partial

import numpy as np
import scipy  # whose parts are imported when they are named
from benchmarks.error_rates.comparing import compare, decisions
from benchmarks.error_rates.mcnemar_tables import verdict_probability
from benchmarks.error_rates.rates import ALPHA, Rate, Setting, Values, averaged, counted
from benchmarks.error_rates.stopped import rates

from assay.comparison.planning import Plan, RowCost, plan, variation_of
from assay.statistics.power import cases_for_rates, cases_for_scores

LEAST_POWER = 0.78
"""The least acceptable true power of a size planned for 80 %."""
_COST = RowCost(1, 0, None, None, None)


def settings() -> Iterator[Setting]:
    """Return settings of sizes for a known disagreement or spread."""
    for difference, disagreeing in ((0.2, 0.3), (0.1, 0.25), (0.05, 0.1), (0.3, 0.5), (0.05, 0.2)):
        name = {"values": f"0 and 1, {100 * disagreeing:g} % disagree", "difference": difference}
        yield Setting("plans", name, partial(_planned_rates, difference, disagreeing), quick=int(difference == 0.2))
    for effect in (1.5, 1.2, 1.0, 0.8, 0.5, 0.3):
        name = {"values": "scores, standard deviation 1", "difference": effect}
        yield Setting("plans", name, partial(_planned_scores, effect), trials=4_000)


def pilot_settings() -> Iterator[Setting]:
    """Return settings of sizes estimated from two earlier runs over few cases."""
    for values, measure in (("0 and 1", _rate_pilots), ("scores", _score_pilots)):
        for cases in (10, 20, 50, 100):
            quick = 15 if (values, cases) == ("0 and 1", 20) else 0
            yield Setting("pilots", {"values": values, "cases": cases}, partial(measure, cases), 400, quick)


def _planned_rates(difference: float, disagreeing: float, _: np.random.Generator, __: int) -> Sequence[Rate]:
    cases = cases_for_rates(difference, disagreeing)
    assert cases is not None
    return Rate("power", verdict_probability(cases, disagreeing, difference), at_least=LEAST_POWER), Rate(
        "cases", cases
    )


def _planned_scores(effect: float, rng: np.random.Generator, trials: int) -> Sequence[Rate]:
    cases = cases_for_scores(effect, 1.0)
    assert cases is not None
    b = effect + rng.standard_normal((trials, cases))
    significant = decisions(compare(np.zeros_like(b), b, seed=int(rng.integers(1 << 30))))
    return counted("power", significant, at_least=LEAST_POWER), Rate("cases", cases)


def _rate_pilots(cases: int, rng: np.random.Generator, trials: int) -> Sequence[Rate]:
    difference, disagreeing = 0.05, 0.2
    a, b = rates(cases, disagreeing, difference)(rng, trials)
    plans = [_plan(first, second, difference) for first, second in zip(a, b, strict=True)]
    return _of_pilots(plans, lambda n: _rate_power(n, disagreeing, difference))


def _score_pilots(cases: int, rng: np.random.Generator, trials: int) -> Sequence[Rate]:
    b = rng.standard_normal((trials, cases))
    return _of_pilots([_plan(np.zeros(cases), values, 0.4) for values in b], lambda n: _t_power(n, 0.4))


def _plan(a: Values, b: Values, difference: float) -> Plan:
    rows = ([(f"c{at}", value) for at, value in enumerate(column.tolist())] for column in (a, b))
    return plan(variation_of("score", *rows), difference, _COST)


def _of_pilots(plans: Sequence[Plan], power_of: object) -> Sequence[Rate]:
    assert callable(power_of)
    sizes = [plan.sizes[0] for plan in plans]
    planned = [power_of(size.cases) for size in sizes if size.cases is not None]
    upper = [power_of(size.cases_upper) for size in sizes if size.cases_upper is not None]
    return (
        averaged("mean power", planned),
        counted("power below 60 %", [power < 0.6 for power in planned]),
        averaged("mean power, upper limit", upper, at_least=LEAST_POWER),
        counted("power below 60 %, upper limit", [power < 0.6 for power in upper]),
        # The limits are one-sided at 80 %: one plan in five may miss the promised power.
        counted("power below 78 %, upper limit", [power < LEAST_POWER for power in upper], at_most=0.2),
        counted("not planned", [size.cases is None for size in sizes]),
    )


@cache
def _rate_power(cases: int, disagreeing: float, difference: float) -> float:
    return verdict_probability(cases, disagreeing, difference)


@cache
def _t_power(cases: int, effect: float) -> float:
    """Return the power of t; with normal differences, sign flips reach it from about ten cases on."""
    if cases < 2:
        return 0.0
    bound = scipy.stats.t.ppf(1 - ALPHA / 2, cases - 1)
    return float(scipy.stats.nct.sf(bound, cases - 1, effect * math.sqrt(cases)))
