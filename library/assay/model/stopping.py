"""Stopping two runs early, as their settings and summaries have it; `assay.comparison.stopping` decides."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StoppingSettings:
    """What two runs of a group need to decide from their rows when they ask no further case; both have the same.

    Args:
        rule: A value of `assay.comparison.stopping.StoppingRule`.
        metric: The metric that decides, or "pass_rate".
        variants: The labels "variant" of the two runs, the baseline first.
        cases: Cases of the dataset.
        seed: Of the order in which they are asked.
        alpha: Level over all looks.
        low: The least value of the metric; None where it has no bounds.
        high: The greatest value of the metric; None likewise.
        higher_is_better: Whether more of the metric is better.
    """

    rule: str
    metric: str
    variants: tuple[str, ...]
    cases: int
    seed: int = 0
    alpha: float = 0.05
    low: float | None = None
    high: float | None = None
    higher_is_better: bool = True

    @property
    def scale(self) -> tuple[float, float] | None:
        """The bounds of the metric; None where it has none."""
        return None if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True, slots=True)
class StoppedEarly:
    """When a rule decided between two runs, so that neither asked further cases, and what that saved one of them.

    Args:
        rule: By which rule.
        metric: The metric that decided.
        winner: The label "variant" of the run that is better.
        cases: After how many cases of the order of asking.
        n_pairs: How many of these have a value in both runs.
        look: Which of the five looks, from 1; None for the always-valid rule.
        z: Its statistic; None likewise.
        bound: What |z| reached; None likewise.
        p: The always-valid p-value; None for five looks.
        standard_error: Of the mean difference at the look; None for the always-valid rule.
        looks: The pairs with a value in both runs at each look that was made; empty likewise.
        asked: Cases of which the run asked at least one repeat.
        planned: Cases of the dataset.
        saved_calls: Calls of the agent that were not made, by estimate, as all that follows.
        saved_tokens: Tokens of agent and judge; None where they were not counted.
        saved_usd: What they would have cost; None without prices.
        saved_s: Wall time; None where it is not known.
    """

    rule: str
    metric: str
    winner: str
    cases: int
    n_pairs: int
    look: int | None = None
    z: float | None = None
    bound: float | None = None
    p: float | None = None
    standard_error: float | None = None
    looks: tuple[int, ...] = ()
    asked: int = 0
    planned: int = 0
    saved_calls: int = 0
    saved_tokens: float | None = None
    saved_usd: float | None = None
    saved_s: float | None = None
