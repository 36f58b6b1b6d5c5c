"""All settings by theme."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np
from benchmarks.error_rates import (
    agent_errors,
    calibrations,
    clustered,
    coverage,
    drops,
    equivalence,
    families,
    judges,
    mcnemar_tables,
    plans,
    run_intervals,
    scored,
    stopped,
)
from benchmarks.error_rates.rates import Rate, Setting

THEMES: dict[str, Callable[[], Iterator[Setting]]] = {
    "mcnemar": mcnemar_tables.settings,
    "scores": scored.settings,
    "skewed": stopped.skewed_settings,
    "clusters": clustered.settings,
    "balanced": clustered.balanced_settings,
    "coverage": coverage.settings,
    "run-intervals": run_intervals.settings,
    "equivalence": equivalence.settings,
    "equivalence-rates": equivalence.rate_settings,
    "agent-errors": agent_errors.settings,
    "max-drop": drops.settings,
    "plans": plans.settings,
    "pilots": plans.pilot_settings,
    "stopping": stopped.settings,
    "stopped-intervals": stopped.interval_settings,
    "families": families.settings,
    "corrected-rates": calibrations.rate_settings,
    "alpha": calibrations.alpha_settings,
    "drift": judges.drift_settings,
    "canaries": judges.canary_settings,
}


@cache
def settings() -> tuple[Setting, ...]:
    """Return every setting, in a fixed order."""
    return tuple(setting for theme in THEMES.values() for setting in theme())


def measure(number: int, trials: int, seed: int) -> tuple[int, Sequence[Rate], float]:
    """Measure one setting. Its random numbers depend on the seed and its title, not on what else is measured."""
    setting, begun = settings()[number], time.perf_counter()
    rates = setting.measure(np.random.default_rng([seed, zlib.crc32(setting.title.encode())]), trials)
    return number, rates, time.perf_counter() - begun
