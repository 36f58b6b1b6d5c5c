"""Rows and metrics of an evaluation as records, pandas data frames and Arrow tables."""

from __future__ import annotations

import importlib
import json
from typing import TYPE_CHECKING, Any

from assay.errors import SetupError
from assay.local_stack.install_hint import install_hint
from assay.metrics.combined_score import tokens_used
from assay.model.answers.possible_usage import counted_parts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.model.run import RowResult, Run


def row_record(row: RowResult) -> dict[str, Any]:
    """Return a row as a record with an entry per metric; absent values are None.

    A metric whose name clashes with another entry becomes `score.NAME`.
    """
    response = row.response
    usage = response.usage if response is not None else None
    record: dict[str, Any] = {
        "case_id": row.case_id,
        "repeat": row.repeat,
        "category": row.category or None,
        "tags": list(row.tags),
        "weight": row.weight,
        "status": row.status.value,
        "passed": row.passed,
        "message": row.message or None,
        "question": row.input,
        "answer": response.text if response is not None else None,
        "references": list(row.references),
        "expected": json.dumps(row.expected, ensure_ascii=False) if row.expected else None,
        "sources": [source.id or source.uri or source.title for source in response.sources]
        if response is not None
        else [],
        "error": response.error.message if response is not None and response.error is not None else None,
        "latency_ms": row.latency_ms,
        "started_at": row.started_at or None,
        "duration_ms": row.duration_ms,
        "input_tokens": counted_parts(usage)[0],
        "output_tokens": counted_parts(usage)[1],
        "total_tokens": tokens_used(usage),
        "cost_usd": usage.cost_usd if usage is not None else None,
    }
    scores = {f"score.{score.metric}" if score.metric in record else score.metric: score.value for score in row.scores}
    return {**record, **scores}


def metric_records(run: Run) -> list[dict[str, Any]]:
    """Return a record per metric of a run; absent values are None."""
    records = []
    for metric in run.summary.metrics if run.summary is not None else ():
        low, high = metric.interval or (None, None)
        records.append(
            {
                "metric": metric.metric,
                "value": metric.value,
                "low": low,
                "high": high,
                "unit": metric.unit or None,
                "scored_count": metric.scored_count,
                "skipped_count": metric.skipped_count,
                "error_count": metric.error_count,
                "passed_count": metric.passed_count,
                "failed_count": metric.failed_count,
                "threshold": metric.threshold,
                "meets_threshold": metric.meets_threshold,
                "goal": metric.goal,
                "meets_goal": metric.meets_goal,
            }
        )
    return records


def run_record(run: Run) -> dict[str, Any]:
    """Return a stored run as a record with a value per metric; absent values are None."""
    summary = run.summary
    record: dict[str, Any] = {
        "run_id": run.run_id,
        "name": run.spec.name,
        "state": run.state.value,
        "verdict": summary.verdict.value if summary is not None else None,
        "created_at": run.created_at,
        "agent": f"{run.spec.agent.adapter} {run.spec.agent.target}".strip(),
        "dataset": run.dataset.name,
        "total_count": run.counts.total_count,
        "finished_count": run.counts.finished_count,
        "passed_count": run.counts.passed_count,
        "failed_count": run.counts.failed_count,
        "agent_error_count": run.counts.agent_error_count,
        "interrupted_count": run.counts.interrupted_count,
        "pass_rate": summary.pass_rate if summary is not None else None,
        "labels": dict(run.spec.labels),
    }
    values = {metric.metric: metric.value for metric in summary.metrics} if summary is not None else {}
    return {**record, **{f"score.{name}" if name in record else name: value for name, value in values.items()}}


def data_frame(records: Sequence[Mapping[str, Any]]) -> Any:
    """Return records as a pandas DataFrame; absent texts are None, absent numbers NaN.

    Raises:
        SetupError: pandas is not installed.
    """
    pandas = _package("pandas", "a data frame", "pandas")
    frame = pandas.DataFrame(list(records))
    for name in frame.columns:
        values = [record.get(name) for record in records]
        # Columns of texts with a gap are of type `str` in pandas 3, where None becomes NaN, and objects otherwise.
        if None in values and all(value is None or isinstance(value, str) for value in values):
            frame[name] = pandas.Series(values, dtype=object, index=frame.index)
    return frame


def arrow_table(records: Sequence[Mapping[str, Any]]) -> Any:
    """Return records as an Arrow table.

    Raises:
        SetupError: pyarrow is not installed.
    """
    return _package("pyarrow", "an Arrow table", "parquet").Table.from_pylist(list(records))


def _package(name: str, purpose: str, extra: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SetupError(
            f"{purpose} needs {name}, which cannot be imported ({error}): {install_hint(extra)}", reason="NOT_INSTALLED"
        ) from error
