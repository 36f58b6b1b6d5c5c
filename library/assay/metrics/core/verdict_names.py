"""Names of verdicts: metrics with one judge and one rubric have one name, and so share a verdict.

structured                       the first judge, by the metric's own rubric
structured#1f0c9a2b77d3e4f5      by another rubric, named by the start of its hash
check:2@strict                   the third check of the case, by the judge `strict`
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.model.run_spec import MetricSpec

_HASH_CHARS = 16


def verdict_name(own: str, metric: MetricSpec) -> str:
    """Return the name of a metric's verdict.

    Args:
        own: The name of the verdict by the rubric of the metric's kind.
        metric: The metric.
    """
    rubric = f"{metric.rubric}\n{metric.rubric_yaml}" if metric.rubric or metric.rubric_yaml else ""
    digest = f"#{hashlib.sha256(rubric.encode()).hexdigest()[:_HASH_CHARS]}" if rubric else ""
    return of_judge(f"{own}{digest}", metric.judge)


def of_judge(name: str, judge: str) -> str:
    """Return the name of the verdict of a judge; an empty judge is the run's first."""
    return f"{name}@{judge}" if judge else name


def judge_in(name: str) -> str:
    """Return the judge in the name of a verdict; empty for the run's first."""
    return name.partition("@")[2]


def without_judge(name: str) -> str:
    """Return the name of the verdict without the judge."""
    return name.partition("@")[0]
