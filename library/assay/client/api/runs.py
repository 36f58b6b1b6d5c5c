"""The stored runs that `assay.list_runs` returns."""

from __future__ import annotations

from typing import Any

from assay.client.api.frames import arrow_table, data_frame, run_record
from assay.model.run import Run
from assay.reports.words.metric_text import count_text


class Runs(tuple[Run, ...]):
    """Stored runs, newest first."""

    __slots__ = ()

    def __repr__(self) -> str:
        """Return a line per run: id, state, verdict and pass rate."""
        lines = [f"<{count_text(len(self), 'run')}>"]
        for item in self:
            rate = item.summary.pass_rate if item.summary is not None else None
            cells = [item.run_id, item.state.value, item.summary.verdict.value if item.summary is not None else ""]
            lines.append("  ".join(filter(None, [*cells, f"{rate:.1%} passed" if rate is not None else ""])))
        return "\n ".join(lines)

    def to_pandas(self) -> Any:
        """Return the runs as a pandas DataFrame: a line per run, a column per metric.

        Raises:
            SetupError: pandas is not installed.
        """
        return data_frame([run_record(run) for run in self])

    def to_arrow(self) -> Any:
        """Return the runs as an Arrow table.

        Raises:
            SetupError: pyarrow is not installed.
        """
        return arrow_table([run_record(run) for run in self])

    def _repr_html_(self) -> str:
        from assay.reports.formats.notebook import runs_html

        return runs_html([run_record(run) for run in self])
