"""Strengths of variants from pairwise wins: the Bradley-Terry model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_PRECISION = 1e-12
_MOST_ROUNDS = 1_000_000


@dataclass(frozen=True, slots=True)
class BradleyTerry:
    """Strengths of variants.

    Args:
        strengths: With geometric mean 1.
        ratings: 400 / ln 10 times their logarithms, with mean 0, as in chess.
        is_regularised: Whether half a win in both directions was added to each pair that was compared, because some
            variant never won or never lost.
    """

    strengths: tuple[float, ...]
    ratings: tuple[float, ...]
    is_regularised: bool

    def chance(self, first: int, second: int) -> float:
        """Return the chance that one variant beats another."""
        return self.strengths[first] / (self.strengths[first] + self.strengths[second])


def bradley_terry(wins: Sequence[Sequence[float]]) -> BradleyTerry:
    """Return the strengths that make the wins most likely.

    Args:
        wins: Wins of each variant over each other one; a tie counts half for both.

    Raises:
        ValueError: There are fewer than two variants, or some were never compared with the rest.

    Source: R. Bradley and M. Terry, 1952; the iteration: D. Hunter, "MM algorithms for generalized Bradley-Terry
    models", 2004.
    """
    count = len(wins)
    played = [[float(wins[i][j] + wins[j][i]) if i != j else 0.0 for j in range(count)] for i in range(count)]
    if count < 2 or not _is_connected(played):
        raise ValueError("ratings need at least two variants, each compared with the rest, if only through others")
    won = [math.fsum(wins[i][j] for j in range(count) if j != i) for i in range(count)]
    lost = [math.fsum(wins[j][i] for j in range(count) if j != i) for i in range(count)]
    is_regularised = min(won) == 0 or min(lost) == 0
    if is_regularised:
        played = [[each + 1 if each else 0.0 for each in row] for row in played]
        won = [each + sum(other > 0 for other in row) / 2 for each, row in zip(won, played, strict=True)]
    strengths = _strengths(won, played)
    ratings = tuple(400 / math.log(10) * math.log(each) for each in strengths)
    return BradleyTerry(tuple(strengths), ratings, is_regularised)


def _strengths(won: Sequence[float], played: Sequence[Sequence[float]]) -> list[float]:
    count = len(won)
    found = [1.0] * count
    for _ in range(_MOST_ROUNDS):
        new = [
            won[i] / math.fsum(played[i][j] / (found[i] + found[j]) for j in range(count) if played[i][j])
            for i in range(count)
        ]
        scale = math.exp(math.fsum(map(math.log, new)) / count)
        new = [each / scale for each in new]
        change = max(abs(a - b) for a, b in zip(new, found, strict=True))
        found = new
        if change < _PRECISION:
            break
    return found


def _is_connected(played: Sequence[Sequence[float]]) -> bool:
    reached, pending = {0}, [0]
    while pending:
        here = pending.pop()
        new = {other for other, games in enumerate(played[here]) if games} - reached
        reached |= new
        pending += new
    return len(reached) == len(played)
