"""`--max-drop` and `--max-drop-test`: how often they fail runs that are equal, and pass runs that are worse."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from benchmarks.error_rates.comparing import NAMES, compare
from benchmarks.error_rates.rates import ALPHA, Rate, Setting, averaged, counted

from assay.comparison.allowed_drop import AllowedDrop, allowed_drop, not_excluded, too_large
from assay.comparison.model import RunRef


def settings() -> Iterator[Setting]:
    """Return two limits at several numbers of cases."""
    for cases, limit in ((20, 0.05), (50, 0.05), (100, 0.02), (100, 0.05), (200, 0.05)):
        quick = 40 if (cases, limit) == (100, 0.05) else 0
        yield Setting("max-drop", {"cases": cases, "limit": limit}, partial(_measure, cases, limit), 1_000, quick)


def _measure(cases: int, limit: float, rng: np.random.Generator, trials: int) -> Sequence[Rate]:
    equal, at_limit, twice = (_drops(rng, cases, drop, limit, trials) for drop in (0.0, limit, 2 * limit))
    return (
        counted("equal runs fail", [outcome.fails for outcome in equal]),
        averaged("printed chance", [outcome.drop.noise_chance or 0.0 for outcome in equal if outcome.drop is not None]),
        counted("runs that are worse by twice the limit pass", [not outcome.fails for outcome in twice]),
        counted("--max-drop-test: equal runs pass", [not outcome.fails_test for outcome in equal]),
        counted(
            "--max-drop-test: runs at the limit pass", [not outcome.fails_test for outcome in at_limit], at_most=ALPHA
        ),
    )


@dataclass(frozen=True)
class _Outcome:
    """What the two rules make of a run.

    Args:
        drop: Its drop.
        fails: By `--max-drop`.
        fails_test: By `--max-drop-test`.
    """

    drop: AllowedDrop | None
    fails: bool
    fails_test: bool


def _drops(rng: np.random.Generator, cases: int, drop: float, limit: float, trials: int) -> list[_Outcome]:
    """Return what the rules make of runs of 0 and 1: a baseline that is right in 80 % of the cases, and a worse run."""
    chance = rng.beta(4, 1, (trials, cases))
    a, b = (
        (rng.random(chance.shape) < probability).astype(float) for probability in (chance, chance * (1 - drop / 0.8))
    )
    outcomes = []
    for comparison in compare(a, b, is_binary=True, bounds=(0.0, 1.0)):
        known = allowed_drop(RunRef("B", "b"), comparison, limit)
        fails = any(too_large(*NAMES[::-1], comparison, known))
        outcomes.append(_Outcome(known, fails, fails or any(not_excluded(*NAMES[::-1], comparison, known, ALPHA))))
    return outcomes
