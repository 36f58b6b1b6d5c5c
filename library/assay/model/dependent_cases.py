"""Which cases of a run are not independent of each other."""

from __future__ import annotations

from dataclasses import dataclass

COPIES = "copies"
"""What cases share that have equal question, variables, history, references and approvals."""


@dataclass(frozen=True, slots=True)
class DependentCases:
    """Which cases of a run are not independent of each other; cases that share nothing are clusters of one.

    Args:
        key: What they share: "category", "tag:NAME", or "copies" for question, variables, history, references and
            approvals.
        cases: Cases of the run.
        clusters: Clusters that they are in.
        effective_clusters: How many clusters of equal size are as informative: (Σ n)² / Σ n².
        largest_share: Share of the cases that are in the largest cluster.
        effective_cases: How many independent cases are as informative about the pass rate; None without a decided row.
    """

    key: str
    cases: int
    clusters: int
    effective_clusters: float
    largest_share: float
    effective_cases: float | None = None
