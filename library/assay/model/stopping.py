"""Settings and results of stopping two runs early; `assay.comparison.stopping` decides when."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class StoppingRule(StrEnum):
    """The rule of early stopping."""

    ALWAYS_VALID = "always-valid"
    """Stop at any case at which the evidence of a difference reaches 1/alpha."""
    FIVE_LOOKS = "five-looks"
    """Stop after one to four fifths of the planned cases when z reaches the bound of that look."""


@dataclass(frozen=True, slots=True)
class StoppingSettings:
    """The rule by which two runs of a group decide from their rows to ask no further cases; both have the same.

    Args:
        rule: A value of `StoppingRule`.
        metric: The metric that decides, or "pass_rate".
        variants: The labels "variant" of the two runs, the baseline first.
        cases: Cases of the dataset.
        seed: Seed of the order of asking.
        alpha: Significance level over all looks.
        low: The metric's least value; None if it has no bounds.
        high: The metric's greatest value; None if it has no bounds.
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
        """The bounds of the metric; None if it has none."""
        return None if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True, slots=True)
class StoppedEarly:
    """The early decision between two runs, after which neither asked further cases, and what it saved a run.

    Args:
        rule: The rule that decided.
        metric: The metric that decided.
        winner: The label "variant" of the better run.
        case_count: Number of cases, in the order of asking, at the decision.
        pair_count: Cases among them with a value in both runs.
        look: The number of the look, from 1 to 5; None for the always-valid rule.
        z: The look's statistic; None for the always-valid rule.
        bound: The bound that `abs(z)` reached; None for the always-valid rule.
        p: The always-valid p-value; None for five looks.
        standard_error: Standard error of the mean difference at the look; None for the always-valid rule.
        looks: Number of pairs with a value in both runs at each look; empty for the always-valid rule.
        asked_count: Cases with at least one repeat asked by the run.
        planned_count: Cases in the dataset.
        saved_call_count: Estimated number of agent calls saved; the following figures are estimates too.
        saved_tokens: Tokens of agent and judge; None if they were not counted.
        saved_usd: Their cost; None without prices.
        saved_ms: Wall time in milliseconds; None if unknown.
    """

    rule: StoppingRule
    metric: str
    winner: str
    case_count: int
    pair_count: int
    look: int | None = None
    z: float | None = None
    bound: float | None = None
    p: float | None = None
    standard_error: float | None = None
    looks: tuple[int, ...] = ()
    asked_count: int = 0
    planned_count: int = 0
    saved_call_count: int = 0
    saved_tokens: float | None = None
    saved_usd: float | None = None
    saved_ms: float | None = None
