"""Coverage of corrected pass rates under each way of drawing labels, and of Krippendorff's alpha."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from benchmarks.error_rates.rates import COVERAGE, Rate, Setting, averaged, counted

from assay.statistics.agreement_interval import INTERVAL_ALPHA, NOMINAL_ALPHA, Measure, agreement_interval
from assay.statistics.corrected_rate import (
    HUMAN_VERDICT,
    RANDOM,
    DrawnLabel,
    corrected_pass_rate,
    weighted_pass_rate,
)
from assay.statistics.figure import Figure
from assay.statistics.krippendorff import Level, alpha

ROWS = 500
JUDGES = ((0.7, 0.9), (0.9, 0.9), (0.95, 0.98))
"""Specificity and sensitivity."""
_POPULATION = 200_000

Drawn = tuple[np.ndarray, np.ndarray]
"""For each drawn answer, whether people pass it and whether the judge passes it."""
Estimate = Callable[[np.random.Generator, Drawn, int, float, tuple[float, float]], Figure]
"""Draws labels and estimates the pass rate from answers, number of labels, pass rate and the judge's errors."""


def rate_settings() -> Iterator[Setting]:
    """Return settings for each way of drawing, by pass rate, judge and number of labels."""
    for drawing, estimate in DRAWINGS.items():
        for labels in (20, 50, 100, 200):
            for theta in (0.5, 0.8, 0.95):
                for judge in JUDGES:
                    name = {"drawn": drawing, "labels": labels, "pass rate": theta, "q0": judge[0], "q1": judge[1]}
                    quick = 200 if (labels, theta, judge) == (50, 0.8, JUDGES[0]) else 0
                    yield Setting(
                        "corrected-rates", name, partial(_rates, estimate, labels, theta, judge), 4_000, quick
                    )


def alpha_settings() -> Iterator[Setting]:
    """Return settings of scores and labels with the agreement of typical judges."""
    for noise in (0.5, 0.8):
        for items in (20, 50, 100):
            name = {"values": f"scores 1 to 5, noise {noise:g}", "items": items}
            yield Setting("alpha", name, partial(_alpha, INTERVAL_ALPHA, partial(_scores, noise), items), 600)
    for passing, error in ((0.6, 0.07), (0.6, 0.15), (0.9, 0.03)):
        for items in (20, 50, 100):
            name = {"values": f"labels, {100 * passing:g} % pass, {100 * error:g} % wrong", "items": items}
            yield Setting("alpha", name, partial(_alpha, NOMINAL_ALPHA, partial(_labels, passing, error), items), 600,
                          quick=30 if (passing, error, items) == (0.6, 0.07, 50) else 0)  # fmt: skip


def _rates(
    estimate: Estimate,
    labels: int,
    theta: float,
    judge: tuple[float, float],
    rng: np.random.Generator,
    trials: int,
) -> Sequence[Rate]:
    estimates = [
        estimate(rng, _judged(rng, rng.random(ROWS) < theta, judge), labels, theta, judge) for _ in range(trials)
    ]
    ends = [estimated.interval for estimated in estimates if estimated.interval is not None]
    if not ends:
        return (Rate("no value", 1.0, trials),)
    return (
        counted("coverage", [low - 1e-12 <= theta <= high + 1e-12 for low, high in ends], at_least=COVERAGE),
        averaged("mean width", [high - low for low, high in ends]),
        averaged("mean estimate", [estimated.value for estimated in estimates if estimated.value is not None]),
        counted("no value", [estimated.interval is None for estimated in estimates]),
    )


def _judged(rng: np.random.Generator, passes: np.ndarray, judge: tuple[float, float]) -> Drawn:
    """Return the labels of people and the verdicts of a judge."""
    specificity, sensitivity = judge
    return passes, rng.random(len(passes)) < np.where(passes, sensitivity, 1 - specificity)


def _at_random(rng: np.random.Generator, rows: Drawn, labels: int, _: float, __: tuple[float, float]) -> Figure:
    chosen = rng.choice(ROWS, labels, replace=False)
    return _corrected(rows, (rows[0][chosen], rows[1][chosen]))


def _elsewhere(rng: np.random.Generator, rows: Drawn, labels: int, theta: float, judge: tuple[float, float]) -> Figure:
    return _corrected(rows, _judged(rng, rng.random(labels) < theta, judge))


def _by_people(
    few: tuple[int, int], rng: np.random.Generator, rows: Drawn, labels: int, _: float, judge: tuple[float, float]
) -> Figure:
    """Return the corrected rate by labels, one of some number, and at least so many, failed by people."""
    return _corrected(rows, _judged(rng, np.arange(labels) >= _few(few, labels), judge), HUMAN_VERDICT)


def _few(few: tuple[int, int], labels: int) -> int:
    every, least = few
    return max(labels // every, least)


def _corrected(rows: Drawn, drawn: Drawn, how: str = RANDOM) -> Figure:
    """Return the corrected rate of rows, with sensitivity and specificity estimated from labels."""
    passes, judged = drawn
    failed, passed = judged[~passes], judged[passes]
    return corrected_pass_rate(
        float(rows[1].mean()),
        ROWS,
        specificity=float((~failed).mean()) if len(failed) else 0.0,
        n_failed=len(failed),
        sensitivity=float(passed.mean()) if len(passed) else 0.0,
        n_passed=len(passed),
        drawn=how,
    )


def _by_judge(
    few: tuple[int, int], rng: np.random.Generator, rows: Drawn, labels: int, _: float, __: tuple[float, float]
) -> Figure:
    """Return the corrected rate by labels with weights, so few, as above, of rows that the judge failed."""
    drawn: list[DrawnLabel] = []
    failed = _few(few, labels)
    for verdict, needed in ((True, labels - failed), (False, failed)):
        places = np.flatnonzero(rows[1] == verdict)
        count = min(needed, len(places))
        chosen = rng.choice(places, count, replace=False)
        drawn += [DrawnLabel(verdict, bool(passes), len(places) / count) for passes in rows[0][chosen]]
    return weighted_pass_rate(float(rows[1].mean()), ROWS, drawn)


DRAWINGS: dict[str, Estimate] = {
    "at random, of the same rows": _at_random,
    "at random, of other rows": _elsewhere,
    "half of each human verdict": partial(_by_people, (2, 0)),
    "a fifth failed by people, at least 5": partial(_by_people, (5, 5)),
    "half of each verdict of the judge, weighted": partial(_by_judge, (2, 0)),
    "a tenth failed by the judge, at least 10, weighted": partial(_by_judge, (10, 10)),
}


def _alpha(
    measure: Measure,
    draw: Callable[[np.random.Generator, int], list[tuple[float, float]]],
    items: int,
    rng: np.random.Generator,
    trials: int,
) -> Sequence[Rate]:
    level: Level = "interval" if measure is INTERVAL_ALPHA else "nominal"
    truth = alpha(draw(np.random.default_rng(0), _POPULATION), level).value
    assert truth is not None
    ends = [agreement_interval(draw(rng, items), measure) for _ in range(trials)]
    known = [interval for interval in ends if interval is not None]
    trusted = [interval is not None and interval[0] >= 0.67 for interval in ends]
    return (
        Rate("true alpha", truth),
        counted("coverage", [low <= truth <= high for low, high in known], at_least=COVERAGE),
        counted("no interval", [interval is None for interval in ends]),
        counted("lower end from 0.67 on", trusted, at_most=0.025 if truth < 0.67 else None),
    )


def _scores(noise: float, rng: np.random.Generator, items: int) -> list[tuple[float, float]]:
    truth = rng.uniform(0.5, 5.5, items)
    ours, theirs = (np.clip(np.rint(truth + noise * rng.standard_normal(items)), 1, 5) for _ in range(2))
    return list(zip(ours.tolist(), theirs.tolist(), strict=True))


def _labels(passing: float, error: float, rng: np.random.Generator, items: int) -> list[tuple[float, float]]:
    theirs = rng.random(items) < passing
    ours = theirs ^ (rng.random(items) < error)
    return list(zip(ours.astype(float).tolist(), theirs.astype(float).tolist(), strict=True))
