"""What a rule that stops two runs early came to, as a plain object."""

from __future__ import annotations

from dataclasses import dataclass

from assay.comparison.verdict import Verdict


@dataclass(frozen=True, slots=True)
class StoppingOutcome:
    """What a rule that stops two runs early came to; its verdict is that of their comparison.

    Args:
        rule: "always-valid" or "five-looks".
        metric: The metric that decides.
        alpha: Level over all looks.
        seed: Of the order of asking.
        planned: Cases of the dataset.
        asked_a: Cases with a row in A.
        asked_b: Cases with a row in B.
        verdict: Which run is better; inconclusive where the rule did not decide.
        cases: After how many cases of the order it decided; 0 where it did not.
        n_pairs: How many of these have a value in both runs.
        look: Which of the five looks, from 1; None for the always-valid rule.
        z: Its statistic, above 0 where B's values are larger; where five looks have not decided, that of all cases
            that both runs have; None for the always-valid rule.
        bound: What |z| reached; None where it reached none.
        p: The always-valid p-value at the decision; None for five looks.
        standard_error: Of the mean difference, beside z; None likewise.
        looks: The pairs with a value in both runs at each of the looks, the last of which is that of z; empty for the
            always-valid rule.
        saved_calls: Calls of both agents that were not made, by estimate, as all that follows.
        saved_tokens: Tokens of agents and judge; None where they were not counted.
        saved_usd: What they would have cost; None without prices.
        saved_s: Wall time, the longer of both runs; None where it is not known.
    """

    rule: str
    metric: str
    alpha: float
    seed: int
    planned: int
    asked_a: int
    asked_b: int
    verdict: Verdict
    cases: int = 0
    n_pairs: int = 0
    look: int | None = None
    z: float | None = None
    bound: float | None = None
    p: float | None = None
    standard_error: float | None = None
    looks: tuple[int, ...] = ()
    saved_calls: int = 0
    saved_tokens: float | None = None
    saved_usd: float | None = None
    saved_s: float | None = None

    @property
    def has_decided(self) -> bool:
        """Whether the rule decided."""
        return self.verdict is not Verdict.INCONCLUSIVE
