"""What is measured: a rate, the error of its simulation, and the bound that it must keep."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALPHA = 0.05
COVERAGE = 0.93
"""The least coverage of a 95 % interval that passes."""

_ROUNDING = 1e-12

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Rate:
    """How often something happens.

    Args:
        measure: What is counted, such as "false verdicts".
        value: Its share of the trials, or its exact probability.
        trials: Simulated ones; None for an exact probability.
        spread: Standard deviation of a trial's outcome where that is not 0 or 1.
        at_most: The largest true rate that is right; None for no such bound.
        at_least: The smallest true rate that is right; None likewise.
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
        """Whether the rate is within its bound and three standard errors of a simulation at the bound."""
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
    """A known truth, and how often what Assay says of it is right.

    Args:
        theme: The table to which it belongs.
        name: What is drawn, by column of the table.
        measure: Returns the rates, from a random generator and a number of trials.
        trials: Trials of the whole form; exact settings ignore it.
        quick: Trials of the quick form; 0 leaves the setting out there.
    """

    theme: str
    name: dict[str, Any]
    measure: Callable[[np.random.Generator, int], Sequence[Rate]]
    trials: int = 1_000
    quick: int = 0

    @property
    def title(self) -> str:
        """The setting in a line."""
        return f"{self.theme}: " + ", ".join(f"{key} {value}" for key, value in self.name.items())


def counted(measure: str, hits: Sequence[bool] | Flags, **bounds: float | None) -> Rate:
    """Return how often a measure was hit."""
    return Rate(measure, float(np.mean(hits)), len(hits), **bounds)


def averaged(measure: str, values: Sequence[float] | Values, **bounds: float | None) -> Rate:
    """Return the mean of what each trial came to."""
    outcomes = np.asarray(values, dtype=float)
    return Rate(measure, float(outcomes.mean()), len(outcomes), spread=float(outcomes.std(ddof=1)), **bounds)
