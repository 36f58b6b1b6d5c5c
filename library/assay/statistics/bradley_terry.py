"""Bradley-Terry strengths of rivals, from the number of wins in each pair.

P(i beats j) = p_i / (p_i + p_j), found by p_i ← Σ_j W_ij / Σ_j ((W_ij + W_ji) / (p_i + p_j)), geometric mean 1

Ties count ½ for both. If some rivals never lose to, or never beat, any of the others, the maximum does not exist: half
a win in both directions is then added to every pair that met, and the result is marked as regularised.

Sources: R. A. Bradley and M. E. Terry, "Rank analysis of incomplete block designs", 1952; when the maximum exists:
L. R. Ford, "Solution of a ranking problem from binary comparisons", 1957; the iteration: D. R. Hunter, "MM algorithms
for generalized Bradley-Terry models", 2004.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_SMALL_CHANGE = 1e-12
_MAX_ROUNDS = 100_000
_POINTS = 400 / math.log(10)


@dataclass(frozen=True, slots=True)
class Strengths:
    """The strengths of rivals.

    Args:
        values: Strengths with geometric mean 1.
        regularised: Whether half wins had to be added.
    """

    values: tuple[float, ...]
    regularised: bool

    @property
    def ratings(self) -> tuple[float, ...]:
        """Ratings with mean 0; 400 points are odds of ten to one."""
        return tuple(_POINTS * math.log(value) for value in self.values)

    def chance(self, first: int, other: int) -> float:
        """Return the probability that one rival beats another, both by index."""
        return self.values[first] / (self.values[first] + self.values[other])


def bradley_terry(wins: Sequence[Sequence[float]]) -> Strengths:
    """Return the strengths of rivals.

    Args:
        wins: The wins of each rival (row) over each other (column), ties as ½ each; the diagonal is ignored.

    Raises:
        ValueError: There are fewer than two rivals, or no chain of pairs that met links all of them.
    """
    count = len(wins)
    met = [[wins[i][j] + wins[j][i] > 0 and i != j for j in range(count)] for i in range(count)]
    if count < 2:
        raise ValueError("strengths need at least two rivals")
    if len(linked := _reached(met)) < count:
        others = [index for index in range(count) if index not in linked]
        raise ValueError(f"rivals {sorted(linked)} never met rivals {others}: nothing compares them")
    beat = [[i != j and wins[i][j] > 0 for j in range(count)] for i in range(count)]
    beaten = [list(column) for column in zip(*beat, strict=True)]
    regularised = min(len(_reached(beat)), len(_reached(beaten))) < count
    extra = 0.5 if regularised else 0.0
    counted = [[wins[i][j] + extra if met[i][j] else 0.0 for j in range(count)] for i in range(count)]
    return Strengths(_fitted(counted), regularised)


def _fitted(wins: Sequence[Sequence[float]]) -> tuple[float, ...]:
    count = len(wins)
    totals = [math.fsum(row) for row in wins]
    games = [[wins[i][j] + wins[j][i] for j in range(count)] for i in range(count)]
    values = [1.0] * count
    for _ in range(_MAX_ROUNDS):
        fitted = [
            totals[i] / math.fsum(games[i][j] / (values[i] + values[j]) for j in range(count)) for i in range(count)
        ]
        centre = math.exp(math.fsum(map(math.log, fitted)) / count)
        fitted = [value / centre for value in fitted]
        change = max(abs(new - old) for new, old in zip(fitted, values, strict=True))
        values = fitted
        if change < _SMALL_CHANGE:
            break
    return tuple(values)


def _reached(edges: Sequence[Sequence[bool]]) -> set[int]:
    """Return the rivals that can be reached from the first."""
    reached, pending = {0}, [0]
    while pending:
        here = pending.pop()
        for there, linked in enumerate(edges[here]):
            if linked and there not in reached:
                reached.add(there)
                pending.append(there)
    return reached
