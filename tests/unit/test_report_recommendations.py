"""What the report suggests to do next, and a judge's ratings by case."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from assay.model.answers.agent_response import AgentStatus
from assay.model.dependent_cases import DependentCases
from assay.model.interval import Interval
from assay.model.run import (
    AgentSpec,
    DatasetRef,
    GateOutcome,
    GateResult,
    GroupSummary,
    LatencySummary,
    MetricSpec,
    MetricSummary,
    RepeatSummary,
    RepeatVariance,
    RowResult,
    Run,
    RunCounts,
    RunSpec,
    RunState,
    RunSummary,
    RunVerdict,
    Score,
    ScoreStatus,
    ThresholdRule,
)
from assay.reports.document.prepared_rows import QualityScores
from assay.reports.words.recommendations import recommendations
from assay_orchestrator.summary.recommendations import recommendations as summary_advice

FOREIGN = {"warnings": {"model_language_mismatch": 2}}


def gate(expression: str, outcome: str, low: float, high: float) -> GateResult:
    """A gate whose value has this interval."""
    return GateResult(expression, GateOutcome(outcome), (low + high) / 2, interval=Interval(low, high))


def run_with(
    *metrics: MetricSummary,
    kinds: dict[str, str] | None = None,
    gates: Sequence[str] = (),
    repeats: int = 1,
    repeats_found: RepeatSummary | None = None,
    gate_results: Sequence[GateResult] = (),
    **summary: Any,
) -> Run:
    """A finished run with this summary."""
    settings = RunSpec(
        "test",
        AgentSpec("replay"),
        [MetricSpec(metric.metric, kind=(kinds or {}).get(metric.metric, "")) for metric in metrics],
        gates,
        repeats,
    )
    known = {"verdict": RunVerdict.PASS, "failed_criteria": (), "skipped_criteria": (), "pass_rate": 1.0,
             "passed_count": 100, "decided_count": 100, "latency": LatencySummary(), "repeats": repeats_found,
             "gates": gate_results, "row_count": 100}  # fmt: skip
    found = RunSummary(metrics=metrics, **{**known, **summary})
    found = dataclasses.replace(found, recommendations=summary_advice(found, settings))
    dataset = DatasetRef("d", "qa.json", 100)
    return Run("r1", settings, dataset, RunState.COMPLETED, "", RunCounts(100, 100), "now", summary=found)


WAVERING = RepeatSummary(3, 100, 0, (), RepeatVariance(0.2, 0.1, 0.05, 0.7, "More runs."))
FINE = MetricSummary("exact_match", 1.0, 100, 0, 0, passed_count=100, threshold=0.85, meets_threshold=True)
LOW = MetricSummary(
    "exact_match", 0.5, 100, 0, 0, passed_count=50, failed_count=50, threshold=0.85, meets_threshold=False
)
SLOW = MetricSummary(
    "latency",
    9.0,
    100,
    0,
    0,
    failed_count=40,
    threshold=5.0,
    meets_threshold=False,
    rule=ThresholdRule.AT_MOST,
    detail={"p95": 12.0},
)
GROUPS = (
    GroupSummary("easy", 60, 40, 20, 0.7, {"exact_match": 0.7, "latency": 11.0}),
    GroupSummary("", 40, 10, 30, 0.2, {"exact_match": 0.2, "latency": 2.0}),
    GroupSummary("none", 1, 0, 1, 0.0, {"exact_match": None, "latency": None}),
)


def test_nothing_to_say() -> None:
    """A run without anything odd, and one without a summary, come with no advice."""
    assert recommendations(run_with(FINE, gates=["pass_rate >= 0.8"])) == []
    assert recommendations(dataclasses.replace(run_with(FINE), summary=None)) == []


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (run_with(LOW), "exact_match misses its threshold: it is 0.5, not at least 0.85; 50 rows failed it."),
        (run_with(LOW, categories=GROUPS), "the worst category is (none) with 0.2 in 40 rows."),
        (run_with(SLOW, categories=GROUPS),
         "latency misses its threshold: it is 9, not at most 5; 40 rows failed it; the worst category is easy with 11"),
        (run_with(FINE, agent_error_count=7), "The agent failed on 7 of 100 rows: look at"),
        (run_with(MetricSummary("semantic_similarity", 0.9, 90, 0, 10, own_error_count=1)),
         "no fault of the agent: the rows say why; once that has passed: `assay runs resume r1 --retry-errors`."),
        (run_with(MetricSummary("own", 0.9, 90, 0, 10, own_error_count=1), kinds={"own": "python"}),
         "correct the function, then score the stored answers with `assay rescore r1 --spec 'my spec.yaml'`."),
        (run_with(MetricSummary("exact_match", 0.9, 90, 0, 10, own_error_count=1)), "the rows say why."),
        (run_with(MetricSummary("cost", 0.1, 99, 0, 1, own_error_count=1, detail={"invalid_answers": 1})),
         "cost could not be computed on 1 row, whose answer reports an invalid cost (negative, or not finite)"),
        (run_with(MetricSummary("speed", 0.1, 98, 0, 2, own_error_count=2, detail={"invalid_answers": 2}),
                  kinds={"speed": "formula"}), "on 2 rows, whose answers report an invalid cost or latency (negative"),
        (run_with(MetricSummary("mine", None, 0, 100, 0), kinds={"mine": "rouge"}),
         "mine was computed on no row: 100 rows lack what it reads (`assay metrics show rouge`)"),
        (run_with(MetricSummary("mine", None, 0, 1, 0), kinds={"mine": "rouge"}), "1 row lacks what it reads"),
        (run_with(MetricSummary("quality", None, 0, 100, 0)), "quality was computed on no row: it needs a judge;"),
        (run_with(FINE, gates=["exact_match > 0"], passed_count=80, decided_count=100), None),
        (run_with(FINE, gate_results=[gate("pass_rate >= 0.85", "pass", 0.767, 0.907)]),
         "holds, but chance may have decided it: 0.85 lies within the 95 % interval, 0.767 to 0.907. More cases"),
        (run_with(FINE, gate_results=[gate("category.a.rouge >= 0.5", "fail", 0.3, 0.6)],
                  dependent=DependentCases("tag:doc", 9, 3, 3.0, 0.4, 2.0)),
         "does not hold, but chance may have decided it: 0.5 lies within the 95 % interval, 0.3 to 0.6. More clusters"),
        (run_with(FINE, gate_results=[gate("rouge >= 0.5", "pass", 0.6, 0.8)]), None),
        (run_with(FINE, gates=["pass_rate >= 0.1"], passed_count=0, decided_count=3, agent_error_count=3, row_count=3),
         "The agent failed on 3 of 3 rows"),
        (run_with(MetricSummary("mine", None, 0, 2, 0), kinds={"mine": "python"}),
         "mine was computed on no row: the function returned None on 2 rows, which skips a row."),
        (run_with(FINE, gates=["pass_rate >= 0.85"], passed_count=85, decided_count=100, repeats=2), None),
        (run_with(FINE, passed_count=0, decided_count=0, pass_rate=None), None),
        (run_with(FINE, repeats=3, repeats_found=WAVERING), "More runs."),
        (run_with(MetricSummary("consistency", 0.4, 100, 0, 0, detail={"scope": "pooled"})), "(`repeats: 3`)"),
        (run_with(MetricSummary("consistency", None, 0, 0, 1, detail={"scope": "pooled"})), None),
        (run_with(MetricSummary("judge_score", 0.9, 9, 0, 0, detail={"incoherent": 2})),
         "judge_score has 2 verdicts whose overall score does not follow from the parts"),
        (run_with(MetricSummary("semantic_similarity", 0.9, 9, 0, 0, detail=FOREIGN)),
         "semantic_similarity compared 2 rows in another script than Latin with an English-only model"),
        (run_with(MetricSummary("semantic_similarity", 0.9, 9, 0, 0, detail={"truncated": 3})),
         "semantic_similarity compared only the beginning of texts in 3 rows, which are longer than its model reads."),
        (run_with(FINE, gate_results=(GateResult("mrr > 0", GateOutcome.INCOMPLETE, message="mrr: no row"),)),
         "The gate mrr > 0 is incomplete: mrr: no row."),
    ],
)  # fmt: skip
def test_each_sentence_rests_on_a_number(run: Run, message: str | None) -> None:
    """What was missed, could not be computed or may be chance is told with the number that shows it."""
    advice = recommendations(run, Path("my spec.yaml"))
    if message is None:
        assert advice == []
    else:
        assert len(advice) == 1
        assert message in advice[0]


@pytest.mark.parametrize("kind", ["python", "semantic_similarity"])
def test_recommended_commands_name_the_server(kind: str) -> None:
    """A run of a server is not found by a command for the local stack."""
    run = run_with(MetricSummary("own", 0.9, 90, 0, 10, own_error_count=1), kinds={"own": kind})
    (advice,) = recommendations(run, Path("s.yaml"), "evals.example:443")
    assert advice.endswith("--server evals.example:443`.")


def row(case: int, repeat: int, value: float | None) -> RowResult:
    """A row with a rating, or with one that could not be had."""
    status = ScoreStatus.ERROR if value is None else ScoreStatus.SCORED
    score = Score("rated", status, value)
    return RowResult(f"c{case}", case, repeat, "", AgentStatus.SUCCESS, None, (score,), None, "")


@pytest.mark.parametrize(
    ("rows", "scores"),
    [
        ([], []),
        ([row(0, 0, 4), row(1, 0, None), row(2, 0, 5)], [4.0, None, 5.0]),
        ([row(0, 0, 4), row(0, 1, 5), row(1, 0, None), row(1, 1, 3), row(2, 0, None)], [4.5, 3.0, None]),
    ],
)
def test_ratings_are_aligned_with_the_cases(rows: list[RowResult], scores: list[float | None]) -> None:
    """One a case, null where there is none, never compacted, in whatever order the rows end."""
    ratings = QualityScores([MetricSpec("rated", kind="quality"), MetricSpec("rouge")], repeats=2)
    for each in reversed(rows):
        ratings.take(2 * each.case_index + each.repeat, each)
    assert ratings.result() == {"rated": {"quality_scores": scores}}


def test_no_metric_lacks_anything_where_every_call_failed() -> None:
    """The agent's errors are the one thing to look at."""
    (advice,) = recommendations(run_with(MetricSummary("rouge", None, 0, 100, 0), agent_error_count=100))
    assert advice.startswith("The agent failed on 100 of 100 rows")
