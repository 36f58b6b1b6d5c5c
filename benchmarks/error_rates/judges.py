"""Alarms about a judge: drift of an unchanged but noisy judge, and canaries of a judge that sometimes errs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import scipy  # whose parts are imported when they are named
from benchmarks.error_rates.rates import ALPHA, Rate, Setting, Values, counted

from assay.model.canary_summary import CanaryKind, CanarySummary, CanaryTally
from assay.statistics.drift import find_drift

_WIDTH = 4.0  # of the scale 1 to 5


def drift_settings() -> Iterator[Setting]:
    """Return settings of anchors judged twice, with noise and with a shift of a tenth of the scale."""
    for noise in (0.2, 0.4, 0.7):
        for anchors in (8, 10, 20, 30, 50):
            name = {"noise": noise, "anchors": anchors}
            quick = 200 if (noise, anchors) == (0.4, 10) else 0
            yield Setting("drift", name, partial(_drift, noise, anchors), trials=1_500, quick=quick)


def canary_settings() -> Iterator[Setting]:
    """Return settings of runs with 5 % canaries and judges that err at random."""
    for must_fail, must_pass in ((4, 1), (8, 2), (40, 10)):
        for chance in (0.02, 0.05, 0.1, 0.3):
            name = {"must fail": must_fail, "must pass": must_pass, "judge errs": chance}
            yield Setting("canaries", name, partial(_canaries, must_fail, must_pass, chance), quick=int(must_fail == 4))


def _drift(noise: float, anchors: int, rng: np.random.Generator, trials: int) -> Sequence[Rate]:
    truth = rng.uniform(1.5, 4.5, (trials, anchors))
    old, new, shifted = (
        np.clip(truth + shift + noise * rng.standard_normal(truth.shape), 1, 5) for shift in (0.0, 0.0, -0.1 * _WIDTH)
    )
    names = [f"a{number}" for number in range(anchors)]

    def alarms(later: Values) -> list[bool]:
        before, after = ([dict(zip(names, row, strict=True)) for row in scores.tolist()] for scores in (old, later))
        return [
            bool(find_drift(first, second, width=_WIDTH).drifted) for first, second in zip(before, after, strict=True)
        ]

    return counted("false alarms", alarms(new), at_most=ALPHA), counted("drift of 10 % found", alarms(shifted))


def _canaries(must_fail: int, must_pass: int, chance: float, _: np.random.Generator, __: int) -> Sequence[Rate]:
    untrusted = warned = 0.0
    for passed in range(must_fail + 1):
        for failed in range(must_pass + 1):
            weight = scipy.stats.binom.pmf(passed, must_fail, chance) * scipy.stats.binom.pmf(failed, must_pass, chance)
            kinds = (
                CanaryTally(CanaryKind.KNOWN_BAD, must_fail, passed),
                CanaryTally(CanaryKind.KNOWN_GOOD, must_pass, failed),
            )
            summary = CanarySummary(kinds)
            untrusted += weight * summary.is_untrusted
            warned += weight * bool(summary.message)
    return Rate("fails", float(untrusted)), Rate("fails or warns", float(warned))
