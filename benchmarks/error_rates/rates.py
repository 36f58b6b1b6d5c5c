"""A measured rate, the error of its simulation, and its bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALPHA = 0.05
COVERAGE = 0.93
"""The least acceptable coverage of a 95 % interval."""

_ROUNDING = 1e-12

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Rate:
    """A measured rate.

    Args:
        measure: The counted event, such as "false verdicts".
        value: Its share of the trials, or its exact probability.
        trials: Number of simulated trials; None for an exact probability.
        spread: Standard deviation of a trial's outcome, if that is not 0 or 1.
        at_most: The largest acceptable true rate; None for no upper bound.
        at_least: The smallest acceptable true rate; None for no lower bound.
    """

    measure: str
    value: float
    trials: int | None = None
    spread: float | None = None
    at_most: float | None = None
    at_least: float | None = None

    @property
    def error(self) -> float:
        """The standard error of the simulation; 0 for an exact probability."""
        return self._error_at(self.value)

    def is_kept(self) -> bool:
        """Whether the rate exceeds its bound by at most three standard errors of a simulation at the bound."""
        too_many = self.at_most is not None and self.value > self.at_most + 3 * self._error_at(self.at_most) + _ROUNDING
        too_few = (
            self.at_least is not None and self.value < self.at_least - 3 * self._error_at(self.at_least) - _ROUNDING
        )
        return not (too_many or too_few)

    def _error_at(self, value: float) -> float:
        if not self.trials:
            return 0.0
        spread = math.sqrt(value * (1 - value)) if self.spread is None else self.spread
        return spread / math.sqrt(self.trials)


@dataclass(frozen=True)
class Setting:
    """A known truth, and the rates at which Assay is right or wrong about it.

    Args:
        theme: The table of the setting.
        name: The drawn data, by column of the table.
        measure: Returns the rates, from a random generator and a number of trials.
        trials: Trials of the full form; exact settings ignore it.
        quick: Trials of the quick form; 0 omits the setting there.
    """

    theme: str
    name: dict[str, Any]
    measure: Callable[[np.random.Generator, int], Sequence[Rate]]
    trials: int = 1_000
    quick: int = 0

    @property
    def title(self) -> str:
        """The setting in one line."""
        return f"{self.theme}: " + ", ".join(f"{key} {value}" for key, value in self.name.items())


def counted(measure: str, hits: Sequence[bool] | Flags, **bounds: float | None) -> Rate:
    """Return the share of hits."""
    return Rate(measure, float(np.mean(hits)), len(hits), **bounds)


def averaged(measure: str, values: Sequence[float] | Values, **bounds: float | None) -> Rate:
    """Return the mean outcome of the trials."""
    outcomes = np.asarray(values, dtype=float)
    return Rate(measure, float(outcomes.mean()), len(outcomes), spread=float(outcomes.std(ddof=1)), **bounds)
