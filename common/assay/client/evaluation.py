"""What `assay.evaluate` returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.errors import SetupError
from assay.local.install_hint import install_hint
from assay.metrics.combined_score import tokens_used
from assay.model.by_metric import ByMetric
from assay.reports.metric_text import units_of, value_text
from assay.verdict.run_verdict import VerdictStatus, run_verdict

if TYPE_CHECKING:
    from assay.model.run import CaseResult, MetricSummary, Run, RunSummary

_MOST_METRICS_SHOWN = 12


@dataclass(frozen=True, slots=True, repr=False)
class Evaluation:
    """What an evaluation came to.

    Args:
        run: The run, finished.
        rows: One per case and repeat, in dataset order, with their answers.
    """

    run: Run
    rows: tuple[CaseResult, ...]

    def __repr__(self) -> str:
        """Return verdict, pass rate and metrics in two lines."""
        summary = self.summary
        passed = "no row has a verdict"
        if summary.pass_rate is not None:
            passed = f"{summary.passed:,} of {summary.decided:,} rows passed ({summary.pass_rate:.1%})"
        units = units_of(self.run.settings)
        shown = [
            f"{metric.metric} {value_text(units.get(metric.metric, ''), metric.value)}"
            for metric in summary.metrics[:_MOST_METRICS_SHOWN]
        ]
        more = len(summary.metrics) - len(shown)
        metrics = ", ".join([*shown, *([f"{more} more"] if more else [])])
        return f"<Evaluation {self.run.run_id}: {self.verdict}, {passed}\n {metrics}>"

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
    def verdict(self) -> VerdictStatus:
        """The verdict in one word: "PASS", "FAIL", "INCOMPLETE", "NO_CRITERIA" or "NO_DATA"."""
        return run_verdict(self.summary).status

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the verdict is what it is, as sentences."""
        return run_verdict(self.summary).reasons

    @property
    def passed(self) -> bool:
        """Whether a gate or a threshold was computed, and all of them hold."""
        return self.verdict is VerdictStatus.PASS

    @property
    def exit_status(self) -> int:
        """The exit status of `assay run` with this verdict: 0, 1 or 3."""
        return self.verdict.exit_status

    def to_pandas(self) -> Any:
        """Return the rows as a pandas DataFrame: one line per row, one column per metric.

        A metric whose name is that of another column has the column `score.NAME`.

        Raises:
            SetupError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise SetupError(
                f"a data frame needs pandas, which cannot be imported ({error}): {install_hint('pandas')}",
                reason="NOT_INSTALLED",
            ) from error
        return pd.DataFrame([_record(row) for row in self.rows])


def _record(row: CaseResult) -> dict[str, Any]:
    """Return a row as the frame holds it; absent is None."""
    response = row.response
    usage = response.usage if response is not None else None
    record: dict[str, Any] = {
        "case_id": row.case_id,
        "repeat": row.repeat_index,
        "category": row.category or None,
        "tags": list(row.tags),
        "weight": row.weight,
        "status": row.status.value,
        "passed": row.passed,
        "reason": row.reason or None,
        "question": row.input,
        "answer": response.text if response is not None else None,
        "references": list(row.references),
        "sources": [one.id or one.uri or one.title for one in response.sources] if response is not None else [],
        "error": response.error.message if response is not None and response.error is not None else None,
        "latency_ms": row.latency_ms,
        "started_at": row.started_at or None,
        "duration_ms": row.duration_ms,
        "input_tokens": usage.input_tokens if usage is not None else None,
        "output_tokens": usage.output_tokens if usage is not None else None,
        "total_tokens": tokens_used(usage),
        "cost_usd": usage.cost_usd if usage is not None else None,
    }
    scores = {f"score.{score.metric}" if score.metric in record else score.metric: score.value for score in row.scores}
    return {**record, **scores}
