"""How much work scoring a row is at most: a bound computed from its sizes and the metrics' own, before it is scored.

One unit is about ten nanoseconds of one core at the worst that a metric can meet, so that ordinary rows take a tenth of
their bound or less. A service scores rows of little work where it is, and others where they delay nothing else.
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
    """Return a bound of the work of scoring a row; infinite where there is none.

    A metric whose work is more than reading the row's texts once has a method `work` that returns its own.
    """
    linear = _WORK_PER_METRIC + WORK_PER_CHARACTER * text_size(row)
    total: float = 0
    for metric in metrics:
        own = getattr(metric, "work", None)
        total += linear if own is None else linear + own(row)
    return total + sum([row_work(metrics, turn) for turn in row.turns]) if row.turns else total


def text_size(row: Row) -> int:
    """Return the characters of the texts that metrics read: answer, SQL, references, a judge's words."""
    size = len(row.response.text) + len(row.response.sql or "")
    for reference in row.case.references:
        size += len(reference) + 1
    return size + _said(row.verdicts.values()) if row.verdicts else size


def _said(evidences: Iterable[JudgeEvidence]) -> int:
    return sum(len(evidence.text) + 100 * len(evidence.verdict or ()) + _said(evidence.jury) for evidence in evidences)
