"""Verdicts on scores of independent cases: their level, their power and the coverage of their intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import scipy  # whose parts are imported when they are named
from benchmarks.error_rates.comparing import compare, covered, decisions
from benchmarks.error_rates.layouts import Draw
from benchmarks.error_rates.rates import ALPHA, COVERAGE, Flags, Rate, Setting, Values, counted

SCALE = (1.0, 5.0)


def settings() -> Iterator[Setting]:
    """Return settings of equal and of different variants."""
    for cases in (12, 50, 200):
        yield _setting("1 to 5", cases, likert(cases), trials=4_000, quick=200 if cases == 12 else 0)
    yield _setting("pass rates of 3 repeats", 50, repeated(50, 3), trials=4_000)
    for cases in (20, 100):
        yield _setting("5 % of the cases change by 0.5", cases, sparse(cases))
        yield _setting("half of the cases tie", cases, tied(cases))
    for cases in (50, 200):
        yield _setting("1 to 5", cases, likert(cases, 0.23), 0.23, trials=4_000)
    yield _setting("pass rates of 3 repeats", 50, repeated(50, 3, 0.1), 0.1, trials=4_000)


def _setting(
    values: str,
    cases: int,
    draw: Draw,
    difference: float = 0.0,
    *,
    trials: int = 2_000,
    quick: int = 0,
) -> Setting:
    def measure(rng: np.random.Generator, trials: int) -> Sequence[Rate]:
        a, b = draw(rng, trials)
        compared = compare(a, b, seed=int(rng.integers(1 << 30)))
        name, limit = ("power", None) if difference else ("false verdicts", ALPHA)
        return (
            counted(name, decisions(compared), at_most=limit),
            counted(f"{name}, paired t", t_decides(b - a)),
            counted("coverage", covered(compared, difference), at_least=COVERAGE),
        )

    name = {"values": values, "cases": cases, "difference": difference}
    return Setting("scores", name, measure, trials=trials, quick=quick)


def t_decides(differences: Values) -> Flags:
    """Return which paired t-tests are significant."""
    n = differences.shape[1]
    error = differences.std(axis=1, ddof=1) / np.sqrt(n)
    mean = differences.mean(axis=1)
    t = np.divide(mean, error, out=np.zeros_like(mean), where=error > 1e-12)
    significant: Flags = 2 * scipy.special.stdtr(n - 1, -np.abs(t)) < ALPHA
    return significant


def likert(cases: int, difference: float = 0.0) -> Draw:
    """Return rounded scores 1 to 5 of variants with correlation 0.64 before rounding."""

    def draw(rng: np.random.Generator, trials: int) -> tuple[Values, Values]:
        case = rng.normal(3.3, 0.8, (trials, cases))
        a, b = (case + shift + rng.normal(0, 0.6, case.shape) for shift in (0.0, difference))
        return np.clip(np.rint(a), *SCALE), np.clip(np.rint(b), *SCALE)

    return draw


def repeated(cases: int, repeats: int, difference: float = 0.0) -> Draw:
    """Return pass rates of cases that are easy or hard for both variants."""

    def draw(rng: np.random.Generator, trials: int) -> tuple[Values, Values]:
        chance = rng.beta(2, 1.5, (trials, cases)) * (1 - difference)
        return rng.binomial(repeats, chance) / repeats, rng.binomial(repeats, chance + difference) / repeats

    return draw


def sparse(cases: int) -> Draw:
    """Return scores with few changes, up as often as down."""

    def draw(rng: np.random.Generator, trials: int) -> tuple[Values, Values]:
        changes = rng.random((trials, cases)) < 0.05
        return np.full(changes.shape, 0.5), 0.5 + 0.5 * changes * rng.choice((-1, 1), changes.shape)

    return draw


def tied(cases: int) -> Draw:
    """Return scores that are half equal and half different by a normal amount."""

    def draw(rng: np.random.Generator, trials: int) -> tuple[Values, Values]:
        changes = rng.random((trials, cases)) < 0.5
        return np.zeros(changes.shape), changes * rng.standard_normal(changes.shape)

    return draw


def asymmetric(cases: int) -> Draw:
    """Return scores with equal means and asymmetric changes: many gain little, few lose much."""

    def draw(rng: np.random.Generator, trials: int) -> tuple[Values, Values]:
        loses = rng.random((trials, cases)) < 0.1
        return np.full(loses.shape, 0.5), np.where(loses, 0.05, 0.55)

    return draw
