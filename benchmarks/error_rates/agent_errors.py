"""False verdicts "B is better" when equal runs lose rows to errors, at random or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from benchmarks.error_rates.comparing import compare_pairs
from benchmarks.error_rates.rates import ALPHA, Rate, Setting, Values, counted
from benchmarks.error_rates.runs import paired

from assay.comparison.model import ComparisonVerdict

CASES = 100
Chooser = Callable[[np.random.Generator, Values, Values], Values]
"""Returns a rank per row from a generator, the difficulty of each case and the scores; the lowest ranks fail."""


def at_random(rng: np.random.Generator, _: Values, scores: Values) -> Values:
    """Return ranks that are independent of the scores."""
    return rng.random(scores.shape)


def on_hard_cases(rng: np.random.Generator, easiness: Values, scores: Values) -> Values:
    """Return ranks by which rows of hard cases fail first, whatever their score."""
    return easiness[:, None] + 0.5 * rng.standard_normal(scores.shape)


def on_bad_rows(_: np.random.Generator, __: Values, scores: Values) -> Values:
    """Return ranks by which the worst rows fail first, like time-outs, refusals and broken JSON."""
    return scores


FAILING: dict[str, Chooser] = {
    "at random": at_random,
    "on hard cases": on_hard_cases,
    "on the run's own bad rows": on_bad_rows,
}


def settings() -> Iterator[Setting]:
    """Return settings with errors of B only, by kind and share, and with errors of both runs."""
    for repeats in (1, 3):
        for kind in FAILING:
            for share in (0.05, 0.1, 0.2, 0.4):
                trials = 600 if kind == "on the run's own bad rows" else 300
                name = {"errors": f"B {kind}", "rows": share, "repeats": repeats}
                quick = 40 if kind == "on the run's own bad rows" and share == 0.4 else 0
                yield Setting("agent-errors", name, partial(_measure, kind, 0.0, share, repeats), trials, quick=quick)
    for share in (0.02, 0.1):
        name = {"errors": "both on their own bad rows", "rows": share, "repeats": 1}
        yield Setting("agent-errors", name, partial(_measure, "on the run's own bad rows", share, share, 1), 600)


def _measure(
    kind: str, share_a: float, share_b: float, repeats: int, rng: np.random.Generator, trials: int
) -> Sequence[Rate]:
    pairs = []
    for _ in range(trials):
        easiness = rng.standard_normal(CASES)
        pairs.append(paired(*(_with_errors(rng, easiness, kind, share, repeats) for share in (share_a, share_b))))
    verdicts = [result.verdict for result in compare_pairs(pairs)]
    return (
        counted("false B better", [verdict is ComparisonVerdict.B_BETTER for verdict in verdicts], at_most=ALPHA),
        counted("false A better", [verdict is ComparisonVerdict.A_BETTER for verdict in verdicts]),
    )


def _with_errors(rng: np.random.Generator, easiness: Values, kind: str, share: float, repeats: int) -> Values:
    """Return the scores of a run, NaN for failed rows."""
    scores = np.clip(0.7 + 0.15 * easiness[:, None] + 0.12 * rng.standard_normal((CASES, repeats)), 0, 1)
    order = FAILING[kind](rng, easiness, scores)
    count = round(share * scores.size)
    failed = np.argsort(order, axis=None)[:count]
    scores.flat[failed] = np.nan
    return scores
