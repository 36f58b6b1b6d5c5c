"""Pairs judged in both orders: winners, flips by the order, and position bias.

An answer wins only if both orders name it; otherwise the pair is a tie.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.statistics.figure import Figure, rate

if TYPE_CHECKING:
    from collections.abc import Sequence


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


def position_figures(judgements: Sequence[PairJudgement]) -> dict[str, Figure]:
    """Return the share of pairs whose two orders disagree, and that of decided verdicts for the answer shown first."""
    places = [place for verdicts in judgements for place in (verdicts.forward, verdicts.backward) if place != "tie"]
    return {
        "flip_rate": rate(sum(judgement.flipped for judgement in judgements), len(judgements)),
        "first_position_rate": rate(places.count("first"), len(places)),
    }
