"""Dependence between the cases of a run."""

from __future__ import annotations

from dataclasses import dataclass

COPIES = "copies"
"""The shared parts of copies: question, variables, history, references and approvals are equal."""


@dataclass(frozen=True, slots=True)
class DependentCases:
    """Dependence between the cases of a run; a case that shares nothing is a cluster of its own.

    Args:
        key: The shared property: "category", "tag:NAME", or "copies" for question, variables, history, references and
            approvals.
        case_count: Number of cases in the run.
        cluster_count: Number of clusters.
        effective_clusters: Number of equal clusters that would be as informative: (Σ n)² / Σ n².
        largest_share: Share of the cases that the largest cluster holds.
        effective_cases: Number of independent cases that would say as much about the pass rate; None without decided
            rows.
    """

    key: str
    case_count: int
    cluster_count: int
    effective_clusters: float
    largest_share: float
    effective_cases: float | None = None
