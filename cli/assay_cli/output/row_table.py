"""Rows of a run as a table with a column per metric."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.filters.matching import metric_value
from assay.filters.row_filter import outcome_of
from assay.model.answers.agent_response import AgentStatus
from assay.reports.words.metric_text import seconds_text, units_of, value_text
from assay.text.unsafe_text import shorten
from assay_cli.output.terminal import WIDE, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.run import CaseResult, Run

_LATENCY = "latency"
_CASE_CHARS = 40
_REASON_CHARS = 60


def row_table(run: Run, rows: Sequence[CaseResult], width: int) -> str:
    """Return rows as aligned columns.

    Args:
        run: The run that has the rows.
        rows: At least one row.
        width: Characters of a line; a pipe or a wide terminal gets case ids uncut.
    """
    case_chars, reason_chars = (None, WIDE) if width >= WIDE else (_CASE_CHARS, _REASON_CHARS)
    repeats = run.settings.repeats > 1
    units = units_of(run.settings)
    metrics = [metric.name for metric in run.settings.metrics if metric.name != _LATENCY]  # it has its own column
    lines = [("case", *(("repeat",) if repeats else ()), "outcome", _LATENCY, *metrics, "reason")]
    for row in rows:
        values = (metric_value(row, name) for name in metrics)
        lines.append(
            (
                shorten(row.case_id, case_chars),
                *((str(row.repeat_index),) if repeats else ()),
                row.status.value if row.status is AgentStatus.INTERRUPTED else outcome_of(row).value,
                seconds_text(row.latency_ms / 1000) if row.latency_ms is not None else "-",
                *(value_text(units[name], value) for name, value in zip(metrics, values, strict=True)),
                shorten(row.reason, reason_chars),
            )
        )
    return table(lines)
