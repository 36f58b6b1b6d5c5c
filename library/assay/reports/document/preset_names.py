"""Names that the reports of a preset have beside the place of each figure, for tools that read them there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.metrics.combined_score import tokens_used

if TYPE_CHECKING:
    from assay.model.run import RowResult, Run, RunSummary

RESEARCH_AGENT, SQL_AGENT = "research-agent", "sql-agent"
_AGGREGATES = ("avg_hit_rate", "avg_mrr", "avg_judge_score", "avg_combined_score", "best_combined_score",
               "combined_of_averages", "avg_num_tokens", "total_tokens")  # fmt: skip
_SCORES = ("hit_rate", "mrr", "judge_score", "combined_score")


def names_of_head(run: Run, dataset: str) -> dict[str, Any]:
    """Return the entries of a document's head; empty without a preset that has some.

    Args:
        run: The run.
        dataset: The file or the name of its dataset.
    """
    if run.spec.preset != RESEARCH_AGENT:
        return {}
    judge = run.spec.judges[0].identity if run.spec.judges else None
    metadata = {**run.spec.labels, "ground_truth_file": dataset, "judge_model": judge}
    return {"num_questions": run.dataset.case_count, "metadata": metadata}


def names_of_summary(run: Run) -> dict[str, Any]:
    """Return the entries of a document's summary; empty without a preset that has some."""
    assert run.summary is not None, "only runs with a summary are reported"
    if run.spec.preset == SQL_AGENT:
        mean_ms = run.summary.latency.mean_ms
        return {"avg_latency": None if mean_ms is None else mean_ms / 1000}
    return _aggregates(run.summary) if run.spec.preset == RESEARCH_AGENT else {}


def names_of_row(row: RowResult, preset: str) -> dict[str, Any]:
    """Return the entries of a document's row; empty without a preset that has some."""
    if preset != RESEARCH_AGENT:
        return {}
    values = {score.metric: score.value for score in row.scores}
    usage = row.response.usage if row.response is not None else None
    return {**{name: values.get(name) for name in _SCORES}, "num_tokens": tokens_used(usage)}


def _aggregates(summary: RunSummary) -> dict[str, Any]:
    aggregates: dict[str, Any] = dict.fromkeys(_AGGREGATES)
    # A composite repeats the means of its parts over the rows that it scored: the parts' own replace them.
    for metric in sorted(summary.metrics, key=lambda metric: "combined_of_averages" not in metric.detail):
        aggregates |= {name: metric.detail[name] for name in _AGGREGATES if name in metric.detail}
    return aggregates
