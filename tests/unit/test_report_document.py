"""The head of the JSON report: stable names, goals of gates, and neither NaN nor infinity."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest

from assay.metrics import build_metric, complete_parameters
from assay.metrics.core.row_verdict import row_verdict
from assay.metrics.core.score import JudgeEvidence, Row
from assay.metrics.rows.row_scores import score_row
from assay.model.answers.agent_response import AgentResponse, Source, Usage
from assay.model.case import Case, Turn
from assay.model.report_settings import DEFAULT_REPORTS
from assay.model.run import AgentSpec, DatasetRef, MetricSpec, RowResult, Run, RunCounts, RunSpec, RunState
from assay.reports.document.document import head_document
from assay.reports.writing import write_reports
from assay.specs.presets import PRESETS
from assay_cli.output.console import ConsoleSummary
from assay_orchestrator.summary.run_summary import summarise

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

KINDS = ("combined_score", "exact_match", "consistency", "quality", "rouge", "hit_rate", "mrr", "judge_score", "tokens")
GATES = ("hit_rate > 0.4, goal > 0.9", "mrr > 0.1, goal > 0.2", "pass_rate >= 0", "tokens < 900")


def stored(index: int, sources: tuple[str, ...], overall: float | None, tokens: int) -> RowResult:
    """The row of a research agent."""
    verdict = {"reasoning": "r", "accuracy": overall, "completeness": overall, "relevance": overall}
    response = AgentResponse(
        text="a", sources=tuple(Source(title=name) for name in sources), usage=Usage(total_tokens=tokens)
    )
    row = Row(
        Case(f"c{index}", (Turn("q", references=("a",), expected_sources=("S",)),)),
        response,
        verdicts={} if overall is None else {"structured": JudgeEvidence(verdict)},
    )
    scores = tuple(score_row(METRICS, row))
    return RowResult(
        f"c{index}", index, 1, "", response.status, row_verdict(response.status, scores), scores, None, "",
        response=response,
    )  # fmt: skip


METRICS = [build_metric(MetricSpec(kind, complete_parameters(kind, {}, where="m"))) for kind in KINDS]
ROWS = [stored(0, ("S",), 0.8, 1000), stored(1, ("T",), None, 400), stored(2, ("T", "S"), None, 100)]


def finished(preset: str = "research-agent") -> Run:
    """The finished run of these rows."""
    settings = RunSpec("test", AgentSpec("replay"), [MetricSpec(kind) for kind in KINDS], GATES, preset=preset)
    return Run(
        "r1", settings, DatasetRef("d", "qa.json", 3), RunState.COMPLETED, "", RunCounts(3, 3), "now",
        summary=summarise(ROWS, METRICS, GATES),
    )  # fmt: skip


async def document(folder: Path, preset: str = "research-agent") -> dict[str, Any]:
    """The report, read back."""

    async def rows() -> AsyncIterator[RowResult]:
        for row in ROWS:
            yield row

    await write_reports(finished(preset), rows(), DEFAULT_REPORTS, folder)
    found: dict[str, Any] = json.loads((folder / "results.json").read_text("utf-8"), parse_constant=_refuse)
    return found


def test_the_console_says_why_a_metric_has_no_value() -> None:
    """A dash in the table is explained, and so are rows that a metric skipped: on how many, and why, in words."""
    run = finished()
    assert run.summary is not None
    unjudged = [
        dataclasses.replace(m, scored_count=0, skipped_count=3) for m in run.summary.metrics if m.metric == "quality"
    ]
    run = dataclasses.replace(run, summary=dataclasses.replace(run.summary, metrics=unjudged))
    console = ConsoleSummary(run)
    for row in ROWS:
        console.take(row)
    assert console.needs_all_rows
    assert "skipped  quality on 3 of 3 rows: the row has no verdict of a judge\n" in console.render()
    assert "skipped  hit_rate" not in console.render()


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


async def test_names_that_files_of_different_runs_share(tmp_path: Path) -> None:
    """Each metric has the names that tools read, and the summary those of an agent with sources."""
    results, summary = (found := await document(tmp_path))["results"], found["summary"]
    assert {"accuracy", "correct", "total", "meets_threshold"} <= set(results["exact_match"])
    assert {"consistency_score", "total_comparisons", "meets_threshold", "scope", "note"} <= set(results["consistency"])
    assert {"average_quality", "total_evaluated", "meets_threshold", "note"} <= set(results["quality"])
    assert results["quality"]["quality_scores"] == [None, None, None]
    assert {"rouge1", "rouge2", "rougeL"} <= set(results["rouge"])
    assert {"overall_status", "failed_criteria", "skipped_criteria", "recommendations"} <= set(summary)
    assert {"timestamp", "prompt_path", "test_cases_path", "test_cases_count", "config"} <= set(found)
    assert summary["avg_mrr"] == (1 + 0 + 0.5) / 3
    assert summary["avg_judge_score"] == pytest.approx(0.8)
    assert (summary["avg_num_tokens"], summary["total_tokens"]) == (500, 1500)
    assert summary["avg_combined_score"] == summary["best_combined_score"] == summary["combined_of_averages"]


async def test_a_row_of_an_agent_with_sources_has_their_names(tmp_path: Path) -> None:
    """Question, scores and tokens stand in the row itself, as tools read them; null where not computed."""
    rows = (await document(tmp_path))["rows"]
    names = ("question", "hit_rate", "mrr", "judge_score", "num_tokens", "combined_score")
    assert [rows[0][name] for name in names[:5]] == ["", 1.0, 1.0, pytest.approx(0.8), 1000]
    assert [rows[1][name] for name in names] == ["", 0.0, 0.0, None, 400, None]


HEAD = {"schema", "timestamp", "prompt_path", "test_cases_path", "test_cases_count", "config", "run", "results",
        "summary", "rows", "digest"}  # fmt: skip
SUMMARY = {
    "overall_status", "exit_status", "reasons", "notes", "selection", "failed_criteria", "skipped_criteria",
    "recommendations", "partial", "total_count", "finished_count", "passed_count", "decided_count", "pass_rate",
    "pass_rate_interval", "dependent", "agent_error_count", "interrupted_count", "asked_again_count",
    "scored_again_count", "latency", "gates", "categories", "tags", "omitted_category_count", "omitted_tag_count",
    "repeats", "weighted", "judging", "stopped_early",
}  # fmt: skip
ROW = {
    "case_id", "repeat", "category", "tags", "weight", "status", "passed", "message", "question", "answer",
    "references", "expected", "latency_ms", "started_at", "duration_ms", "scores", "response",
}  # fmt: skip
OF_RESEARCH = (
    {"num_questions", "metadata"},
    {"avg_hit_rate", "avg_mrr", "avg_judge_score", "avg_combined_score", "best_combined_score",
     "combined_of_averages", "avg_num_tokens", "total_tokens"},
    {"hit_rate", "mrr", "judge_score", "combined_score", "num_tokens"},
)  # fmt: skip
OF_PRESETS: dict[str, tuple[set[str], set[str], set[str]]] = {
    "research-agent": OF_RESEARCH,
    "sql-agent": (set(), {"avg_latency"}, set()),
}


@pytest.mark.parametrize("preset", ["", *PRESETS])
async def test_only_presets_have_names_of_their_own(tmp_path: Path, preset: str) -> None:
    """The names of a document are a closed list: nothing moves, and no other run has the names of a preset."""
    found = await document(tmp_path, preset)
    own = OF_PRESETS.get(preset, (set(), set(), set()))
    assert set(found) == HEAD | own[0]
    assert set(found["summary"]) == SUMMARY | own[1]
    assert [set(row) for row in found["rows"]] == [ROW | own[2]] * 3


async def test_names_of_presets_hold_null_where_nothing_was_computed(tmp_path: Path) -> None:
    """A preset whose metrics were replaced keeps its names; the latency of sql-agent is in seconds."""
    run = finished()
    assert run.summary is not None
    timed = dataclasses.replace(run.summary, metrics=[], latency=dataclasses.replace(run.summary.latency, mean_ms=1500))
    for preset, names in (("research-agent", OF_RESEARCH[1]), ("sql-agent", {"avg_latency"})):
        spec = dataclasses.replace(run.spec, preset=preset, metrics=[])
        summary = head_document(dataclasses.replace(run, spec=spec, summary=timed), None)["summary"]
        assert {summary[name] for name in names} == ({1.5} if preset == "sql-agent" else {None})
    assert (await document(tmp_path))["metadata"] == {"ground_truth_file": "qa.json", "judge_model": None}


async def test_means_of_the_summary_are_those_of_their_own_metrics(tmp_path: Path) -> None:
    """The hit rate is over all questions, not over those that the composite could score, whatever the order."""
    report = await document(tmp_path)
    assert report["summary"]["avg_hit_rate"] == report["results"]["hit_rate"]["value"] == 2 / 3
    assert report["results"]["combined_score"]["avg_hit_rate"] == 1.0


async def test_the_pass_rate_comes_with_its_interval(tmp_path: Path) -> None:
    """Wilson's over decided rows."""
    run = finished()
    assert run.summary is not None
    assert (run.summary.passed_count, run.summary.decided_count) == (2, 3)
    expected = {"low": pytest.approx(0.207660, abs=1e-6), "high": pytest.approx(0.938508, abs=1e-6)}
    assert (await document(tmp_path))["summary"]["pass_rate_interval"] == expected
    assert "pass rate  66.7% [20.8%, 93.9%]  (2 of 3 rows passed)" in ConsoleSummary(run).render()


async def test_targets_of_gates_are_in_the_report_and_on_the_console(tmp_path: Path) -> None:
    """Missed, reached, or absent, beside outcome and actual value; an incomplete gate has its reason."""
    gates = (await document(tmp_path))["summary"]["gates"]
    assert [gate["meets_goal"] for gate in gates] == [False, True, None, None]
    assert [set(gate) for gate in gates] == [
        {"expression", "outcome", "actual", "message", "meets_goal", "note", "interval", "source"}
    ] * 4
    assert {gate["source"] for gate in gates} == {"gate"}
    shown = ConsoleSummary(finished()).render()
    assert "gate  PASS  hit_rate > 0.4, goal > 0.9  actual 0.6667 [0.2077, 0.9385]  goal missed\n" in shown
    assert "gate  PASS  mrr > 0.1, goal > 0.2  actual 0.5 [0, 1]  goal reached\n" in shown
    assert "gate  PASS  tokens < 900  actual 500 [0, 1638]\n" in shown
