"""The result of `assay.evaluate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.client.api.frames import arrow_table, data_frame, metric_records, row_record
from assay.model.by_metric import ByMetric
from assay.model.run import RunVerdict
from assay.reports.document.first_errors import first_errors
from assay.reports.words.metric_text import value_text
from assay.reports.words.selected_cases import SelectedCases, selected_cases

if TYPE_CHECKING:
    from assay.model.run import MetricSummary, RowResult, Run, RunSummary

_MOST_METRICS_SHOWN = 12


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation:
    """The result of an evaluation.

    Args:
        run: The finished run.
        rows: Rows with their answers, one per case and repeat, in dataset order.
    """

    run: Run
    rows: tuple[RowResult, ...]

    def __repr__(self) -> str:
        """Return verdict, pass rate and metrics on two lines, then the first error of the agent and of each metric."""
        summary = self.summary
        passed = "no row has a verdict"
        if summary.pass_rate is not None:
            passed = f"{summary.passed_count:,} of {summary.decided_count:,} rows passed ({summary.pass_rate:.1%})"
        if self.selection is not None:
            passed += f", {self.selection.sentence}"
        shown = [
            f"{metric.metric} {value_text(metric.unit, metric.value)}"
            for metric in summary.metrics[:_MOST_METRICS_SHOWN]
        ]
        more = len(summary.metrics) - len(shown)
        metrics = ", ".join([*shown, *([f"{more} more"] if more else [])])
        errors = "".join(f"\n {error.sentence}" for error in first_errors(self.rows))
        return f"<Evaluation {self.run.run_id}: {self.verdict}, {passed}\n {metrics}{errors}>"

    @property
    def summary(self) -> RunSummary:
        """The run's summary."""
        assert self.run.summary is not None, "evaluate returns finished runs only"
        return self.run.summary

    @property
    def metrics(self) -> ByMetric[MetricSummary]:
        """The summary of each metric, in the spec's order and by name: `metrics["exact_match"].value`."""
        return ByMetric(self.summary.metrics)

    @property
    def verdict(self) -> RunVerdict:
        """The verdict: "PASS", "FAIL", "INCOMPLETE", "NO_CRITERIA" or "NO_DATA"."""
        return self.summary.verdict

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons of the verdict, as sentences."""
        return self.summary.reasons

    @property
    def selection(self) -> SelectedCases | None:
        """The selected part of the dataset, with `selected`, `total` and `sentence`; None for the whole dataset."""
        return selected_cases(self.run)

    @property
    def passed(self) -> bool:
        """Whether at least one gate or threshold was computed, and all hold."""
        return self.verdict is RunVerdict.PASS

    @property
    def exit_status(self) -> int:
        """The exit status of `assay run` with this verdict: 0, 1 or 3."""
        return self.summary.exit_status

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame, with a column per metric.

        A metric whose name clashes with another column gets the column `score.NAME`.

        Raises:
            SetupError: pandas is not installed.
        """
        return data_frame([row_record(row) for row in self.rows])

    def summary_to_pandas(self) -> Any:
        """Return the metrics as a pandas DataFrame: a line per metric, with its 95 % interval from `low` to `high`.

        Raises:
            SetupError: pandas is not installed.
        """
        return data_frame(metric_records(self.run))

    def to_arrow(self) -> Any:
        """Return the rows as an Arrow table, with the columns of `to_pandas`.

        Raises:
            SetupError: pyarrow is not installed.
        """
        return arrow_table([row_record(row) for row in self.rows])

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        from assay.reports.document.document import head_document
        from assay.reports.formats.notebook import run_html, run_markdown

        head = head_document(self.run, None)
        html = run_html(head, first_errors(self.rows))
        return {"text/html": html, "text/markdown": run_markdown(head), "text/plain": repr(self)}

    def _repr_html_(self) -> str:
        return self._repr_mimebundle_()["text/html"]


RunSource = str | Path | Evaluation
"""A results.json, a stored run by its id, a prefix of it or "latest", or a result of `assay.evaluate`."""
