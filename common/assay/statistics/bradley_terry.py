"""Bradley-Terry: a strength for each of several rivals from who beat whom how often.

P(i beats j) = p_i / (p_i + p_j), found by p_i ← Σ_j W_ij / Σ_j ((W_ij + W_ji) / (p_i + p_j)), geometric mean 1

Ties count ½ for both. Where some rivals never lose to, or never beat, any of the others the maximum does not exist:
½ win in both directions is then added to every pair that met, and the result says so.

Source: R. A. Bradley and M. E. Terry, "Rank analysis of incomplete block designs", 1952; D. R. Hunter, "MM algorithms
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
    """What each rival is worth.

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

    def chance(self, one: int, other: int) -> float:
        """Return the probability that one rival beats another, both by index."""
        return self.values[one] / (self.values[one] + self.values[other])


def bradley_terry(wins: Sequence[Sequence[float]]) -> Strengths | None:
    """Return the strengths of rivals.

    Args:
        wins: How often each (row) beat each other (column), ties as ½ each.

    Returns:
        None where not all rivals are linked by pairs that met: nothing then compares them.
    """
    count = len(wins)
    met = [[wins[i][j] + wins[j][i] > 0 and i != j for j in range(count)] for i in range(count)]
    if not count or not _reaches_all(met):
        return None
    beat = [[i != j and wins[i][j] > 0 for j in range(count)] for i in range(count)]
    beaten = [list(column) for column in zip(*beat, strict=True)]
    regularised = not (_reaches_all(beat) and _reaches_all(beaten))
    extra = 0.5 if regularised else 0.0
    counted = [
        [(wins[i][j] + extra if met[i][j] else 0.0) for j in range(count)] for i in range(count)
    ]  # fmt: skip
    return Strengths(_fitted(counted), regularised)


def _fitted(wins: Sequence[Sequence[float]]) -> tuple[float, ...]:
    count = len(wins)
    totals = [math.fsum(row) for row in wins]
    games = [[wins[i][j] + wins[j][i] for j in range(count)] for i in range(count)]
    values = [1.0] * count
    for _ in range(_MAX_ROUNDS):
        found = [
            totals[i] / math.fsum(games[i][j] / (values[i] + values[j]) for j in range(count)) if totals[i] else 1.0
            for i in range(count)
        ]
        centre = math.exp(math.fsum(map(math.log, found)) / count)
        found = [value / centre for value in found]
        change = max(abs(new - old) for new, old in zip(found, values, strict=True))
        values = found
        if change < _SMALL_CHANGE:
            break
    return tuple(values)


def _reaches_all(edges: Sequence[Sequence[bool]]) -> bool:
    """Return whether every rival can be reached from the first."""
    reached, pending = {0}, [0]
    while pending:
        here = pending.pop()
        for there, linked in enumerate(edges[here]):
            if linked and there not in reached:
                reached.add(there)
                pending.append(there)
    return len(reached) == len(edges)
