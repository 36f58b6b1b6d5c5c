"""Pairs judged in both orders: winners, flips by the order, and position bias.

An answer wins only if both orders name it; otherwise the pair is a tie.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.statistics.clusters import in_clusters
from assay.statistics.figure import Figure, rate
from assay.statistics.sign_flips import sign_flip

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence


@dataclass(frozen=True, slots=True)
class PairJudgement:
    """A judge's verdicts on a pair in both orders: "first", "second" or "tie", by the position of the answers.

    Args:
        forward: With A shown first.
        backward: With B shown first.
    """

    forward: str
    backward: str

    @property
    def winner(self) -> str:
        """ "a", "b" or "tie" over both orders."""
        forward, backward = self._named
        return forward if forward == backward else "tie"

    @property
    def flipped(self) -> bool:
        """Whether the two orders disagree."""
        forward, backward = self._named
        return forward != backward

    @property
    def _named(self) -> tuple[str, str]:
        return (
            {"first": "a", "second": "b", "tie": "tie"}[self.forward],
            {"first": "b", "second": "a", "tie": "tie"}[self.backward],
        )


@dataclass(frozen=True, slots=True)
class PairTally:
    """The outcome of many pairs, seen from A.

    Args:
        wins: Pairs that A wins.
        ties: Pairs without a winner.
        losses: Pairs that B wins.
        flip_rate: Pairs whose two orders disagree.
        first_position_rate: Verdicts for the answer shown first, without ties.
        p_value: The p-value of sign flips of wins less losses by case; with one pair per case, the exact McNemar test.
    """

    wins: int
    ties: int
    losses: int
    flip_rate: Figure
    first_position_rate: Figure
    p_value: float


def tally_pairs(judgements: Sequence[PairJudgement], cases: Sequence[Hashable] | None = None) -> PairTally:
    """Return the outcome of pairs that were judged in both orders.

    Args:
        judgements: One per pair.
        cases: The case of each pair, which repeats share; None if every pair is a case of its own.
    """
    winners = [judgement.winner for judgement in judgements]
    places = [place for verdicts in judgements for place in (verdicts.forward, verdicts.backward) if place != "tie"]
    wins, losses = winners.count("a"), winners.count("b")
    scores = [float((winner == "a") - (winner == "b")) for winner in winners]
    return PairTally(
        wins,
        winners.count("tie"),
        losses,
        rate(sum(judgement.flipped for judgement in judgements), len(judgements)),
        rate(places.count("first"), len(places)),
        sign_flip(in_clusters(scores, cases).sums if scores else []).p,
    )
