"""The outcome of early stopping as a plain object."""

from __future__ import annotations

from dataclasses import dataclass

from assay.comparison.verdict import ComparisonVerdict
from assay.model.stopping import StoppingRule


@dataclass(frozen=True, slots=True)
class StoppingOutcome:
    """The outcome of a rule that stops two runs early; its verdict is that of their comparison.

    Args:
        rule: The rule.
        metric: The metric that decides.
        alpha: Level over all looks.
        seed: The seed of the order of asking.
        planned_case_count: Cases of the dataset.
        a_asked_case_count: Cases with a row in A.
        b_asked_case_count: Cases with a row in B.
        verdict: The better run; inconclusive if the rule did not decide.
        case_count: The number of cases in the order after which it decided; 0 if it did not.
        pair_count: The number of these cases with a value in both runs.
        look: The number of the look of five, from 1; None for the always-valid rule.
        z: Its statistic, above 0 if B's values are larger; if five looks did not decide, the statistic of all common
            cases; None for the always-valid rule.
        bound: The bound that `abs(z)` reached; None if it reached none.
        p: The always-valid p-value at the decision; None for five looks.
        standard_error: The standard error of the mean difference, beside z; None likewise.
        look_pair_counts: The pairs with a value in both runs at each look, the last of which is that of z; empty for
            the always-valid rule.
        saved_call_count: The estimated number of calls of both agents that were saved; what follows are estimates too.
        saved_token_count: The saved tokens of agents and judge; None if they were not counted.
        saved_usd: The saved cost; None without prices.
        saved_ms: The saved wall time, that of the longer run; None if unknown.
    """

    rule: StoppingRule
    metric: str
    alpha: float
    seed: int
    planned_case_count: int
    a_asked_case_count: int
    b_asked_case_count: int
    verdict: ComparisonVerdict
    case_count: int = 0
    pair_count: int = 0
    look: int | None = None
    z: float | None = None
    bound: float | None = None
    p: float | None = None
    standard_error: float | None = None
    look_pair_counts: tuple[int, ...] = ()
    saved_call_count: int = 0
    saved_token_count: float | None = None
    saved_usd: float | None = None
    saved_ms: float | None = None

    @property
    def has_decided(self) -> bool:
        """Whether the rule decided."""
        return self.verdict is not ComparisonVerdict.INCONCLUSIVE
