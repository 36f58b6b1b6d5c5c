"""Upper bounds of the work of scoring a row, computed from its sizes before it is scored.

One unit is about ten nanoseconds of one core in a metric's worst case, so ordinary rows take a tenth of their bound or
less. A service scores rows of little work in place and moves others to processes where they delay nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from assay.metrics.core.score import JudgeEvidence, Metric, Row

WORK_PER_CHARACTER = 20
"""Normalising, folding or reading one character in Python: 200 ns."""
_WORK_PER_METRIC = 1_000


def row_work(metrics: Sequence[Metric], row: Row) -> float:
    """Return an upper bound of the work of scoring a row; infinite without a bound.

    A metric that does more work than reading the row's texts once has a method `work`.
    """
    linear = _WORK_PER_METRIC + WORK_PER_CHARACTER * text_size(row)
    total: float = 0
    for metric in metrics:
        own = getattr(metric, "work", None)
        total += linear if own is None else linear + own(row)
    return total + sum([row_work(metrics, turn) for turn in row.turns]) if row.turns else total


def text_size(row: Row) -> int:
    """Return the number of characters that metrics read: answer, SQL, references and judges' replies."""
    size = len(row.response.text) + len(row.response.sql or "")
    for reference in row.case.references:
        size += len(reference) + 1
    return size + _said(row.verdicts.values()) if row.verdicts else size


def _said(evidences: Iterable[JudgeEvidence]) -> int:
    return sum(len(evidence.text) + 100 * len(evidence.verdict or ()) + _said(evidence.jury) for evidence in evidences)
