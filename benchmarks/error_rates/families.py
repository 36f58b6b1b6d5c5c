"""Several runs against one baseline: any false verdict, and the power to find the one regression."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import combinations

import numpy as np
from benchmarks.error_rates.rates import ALPHA, Rate, Setting, Values, counted

from assay.statistics.adjustment import holm
from assay.statistics.paired import mcnemar_p

CASES = 100
REGRESSION = 0.13


def settings() -> Iterator[Setting]:
    """Return settings of families of 2 to 10 runs: all equal, and with one worse run."""
    for runs in (2, 3, 4, 6, 10):
        yield Setting("families", {"runs": runs}, partial(_measure, runs), 4_000, quick=200 if runs == 4 else 0)


def _measure(runs: int, rng: np.random.Generator, trials: int) -> Sequence[Rate]:
    false, hits, hits_of_all = [], [], []
    for _ in range(trials):
        equal = equal_or_worse(rng, [0.0] * runs)
        false.append(any(family_verdicts(equal)))
        worse = equal_or_worse(rng, [0.0, REGRESSION, *[0.0] * (runs - 2)])
        hits.append(family_verdicts(worse)[0] < 0)
        hits_of_all.append(family_verdicts(worse, all_pairs=True)[0] < 0)
    return (
        counted("any false verdict", false, at_most=ALPHA),
        counted("regression found", hits),
        counted("regression found, --all-pairs", hits_of_all),
    )


def equal_or_worse(rng: np.random.Generator, drops: Sequence[float]) -> list[Values]:
    """Return 0 and 1 of runs on cases that are easy or hard for all runs."""
    chance = rng.beta(4, 1, CASES)
    return [(rng.random(CASES) < chance - drop).astype(float) for drop in drops]


def family_verdicts(columns: Sequence[Values], *, all_pairs: bool = False) -> list[int]:
    """Return for each run against the first 1 if it is better, -1 if it is worse, else 0."""
    pairs = combinations(columns, 2) if all_pairs else ((columns[0], other) for other in columns[1:])
    tables = [(int((a > b).sum()), int((a < b).sum())) for a, b in pairs]
    adjusted = holm([mcnemar_p(lost, won)[0] for lost, won in tables])
    against_first = zip(adjusted, tables[: len(columns) - 1], strict=False)
    return [(won > lost) - (won < lost) if p < ALPHA else 0 for p, (lost, won) in against_first]
