"""What `assay.evaluate` returns: a short text of it, entries by name, and a data frame."""

from __future__ import annotations

import dataclasses
import pickle
import sys

import pandas as pd
import pytest

from assay import Evaluation
from assay.client.api.frames import data_frame
from assay.client.api.runs import Runs
from assay.errors import SetupError
from assay.model.answers.agent_response import AgentError, AgentErrorKind, AgentResponse, AgentStatus, Source, Usage
from assay.model.run import (
    AgentSpec,
    DatasetRef,
    LatencySummary,
    MetricSpec,
    MetricSummary,
    RowResult,
    Run,
    RunCounts,
    RunSpec,
    RunState,
    RunSummary,
    RunVerdict,
    Score,
    ScoreStatus,
)
from assay.reports.document.first_errors import first_errors
from assay.wire.run import result_from_wire, result_to_wire

ANSWER = AgentResponse(
    text="Paris",
    sources=(Source(id="doc-1", title="Atlas"), Source(uri="https://a.example"), Source(title="Map")),
    usage=Usage(input_tokens=7, output_tokens=2, cost_usd=0.01),
)
FAILURE = AgentResponse(status=AgentStatus.ERROR, error=AgentError(kind=AgentErrorKind.RAISED, message="KeyError: 'x'"))


def row(case_id: str, response: AgentResponse, scores: tuple[Score, ...]) -> RowResult:
    """A row as a client reads it."""
    written = RowResult(
        case_id, 0, 1, "geo", response.status, None, scores, 12.5, "", response=response, input="Capital?",
        references=("Paris", "paris"), tags=("europe",), started_at="2026-03-31T09:00:00.000Z", duration_ms=20.0,
    )  # fmt: skip
    return result_from_wire(result_to_wire(written))


def evaluation(metric_count: int = 2, *, decided: int = 4) -> Evaluation:
    """Three of four rows passed by `m0`; the last metric was not computed."""
    values: list[float | None] = [0.75 for _ in range(metric_count - 1)]
    metrics = tuple(
        MetricSummary(f"m{index}", value, 4, 0, 0, detail={"long": "x" * 1000}, unit="%")
        for index, value in enumerate([*values, None])
    )
    summary = RunSummary(
        RunVerdict.NO_CRITERIA,
        failed_criteria=(),
        skipped_criteria=(),
        pass_rate=0.75 if decided else None,
        passed_count=3 if decided else 0,
        decided_count=decided,
        metrics=metrics,
        latency=LatencySummary(),
        row_count=4,
        reasons=("no gate and no threshold decides",),
    )
    kinds = [MetricSpec(metric.metric, kind="exact_match") for metric in metrics]
    settings = RunSpec("api", AgentSpec("python"), kinds)
    run = Run(
        "api-1", settings, DatasetRef("d", "records", 4), RunState.COMPLETED, "", RunCounts(4, 4), "now",
        summary=summary,
    )  # fmt: skip
    rows = (
        row("a", ANSWER, (Score("m0", ScoreStatus.SCORED, 1.0, True), Score("status", ScoreStatus.SCORED, 0.5))),
        row("b", FAILURE, (Score("m0", ScoreStatus.SCORED, 0.0, False), Score("status", ScoreStatus.SKIPPED))),
    )
    return Evaluation(run, rows)


def test_the_text_of_a_result_is_short() -> None:
    """Verdict, pass rate and metrics fit in two lines, whatever the run."""
    lines = repr(evaluation()).splitlines()
    assert lines[:2] == ["<Evaluation api-1: NO_CRITERIA, 3 of 4 rows passed (75.0%)", " m0 75.0%, m1 -"]
    assert repr(evaluation(decided=0)).startswith("<Evaluation api-1: NO_CRITERIA, no row has a verdict\n")
    assert repr(evaluation(100)).splitlines()[1].endswith("m11 75.0%, 88 more")


FRAMES = 'Traceback (most recent call last):\n  File "/x/agent.py", line 3, in answer\n    1 / 0\n'


def test_the_first_errors_of_agent_and_metrics_are_shown() -> None:
    """Type, message and frame, in the text and in the notebook, which escapes them; one line each."""
    raised = AgentError(AgentErrorKind.RAISED, "ZeroDivisionError: <b>\x1b[2J", traceback=FRAMES)
    failed = AgentResponse(status=AgentStatus.ERROR, error=raised)
    detail = {"function": "m:f", "traceback": FRAMES.replace("answer", "judge")}
    own = Score("m0", ScoreStatus.ERROR, reason="function_raised", detail=detail, message="ValueError: no")
    result = dataclasses.replace(
        evaluation(), rows=(row("a", failed, ()), row("b", failed, ()), row("c", ANSWER, (own,)))
    )
    assert repr(result).splitlines()[2:] == [
        " agent failed on 2 rows, first on case a: ZeroDivisionError: <b>\ufffd[2J (in answer, /x/agent.py:3)",
        " metric m0 failed on 1 row, first on case c: ValueError: no (in judge, /x/agent.py:3)>",
    ]
    html = result._repr_html_()
    assert "agent failed on 2 rows" in html
    assert "line 3, in judge" in html
    assert "<b>" not in html
    assert "\x1b" not in html


def test_an_error_of_the_agent_is_shown_before_those_of_many_metrics() -> None:
    """The agent's error is shown first, even if it comes last; five metrics are shown."""
    own = tuple(Score(f"m{index}", ScoreStatus.ERROR, reason="not_finite") for index in range(9))
    errors = first_errors([row("a", ANSWER, own), row("b", FAILURE, ())])
    assert [error.source for error in errors] == ["agent", "m0", "m1", "m2", "m3", "m4"]


def test_metrics_and_scores_are_found_by_name_and_by_position() -> None:
    """Rows from the wire as well as the summary; what is not there is named with what is."""
    document = evaluation()
    assert document.metrics["m0"] is document.metrics[0]
    assert document.metrics["m0"].value == 0.75
    assert [metric.metric for metric in document.metrics] == ["m0", "m1"]
    assert "m1" in document.metrics  # type: ignore[comparison-overlap]  # a name is not what it holds
    assert "rouge" not in document.metrics  # type: ignore[comparison-overlap]
    with pytest.raises(KeyError, match="no metric 'rouge'; there are: m0, m1"):
        document.metrics["rouge"]
    scores = document.rows[0].scores
    assert scores["status"] == scores[1] == scores[-1]  # type: ignore[call-overload]  # read by a client
    assert scores[:1] == (scores[0],)
    assert pickle.loads(pickle.dumps(scores)) == scores
    with pytest.raises(KeyError, match="no metric 'm9'; there are: m0, status"):
        scores["m9"]  # type: ignore[call-overload]


def test_a_frame_holds_what_a_row_holds() -> None:
    """Texts, sources, tokens, errors and scores; a metric never takes the place of another column."""
    frame = evaluation().to_pandas()
    assert list(frame.columns) == [
        "case_id", "repeat", "category", "tags", "weight", "status", "passed", "message", "question", "answer",
        "references", "expected", "sources", "error", "latency_ms", "started_at", "duration_ms", "input_tokens",
        "output_tokens", "total_tokens", "cost_usd", "m0", "score.status",
    ]  # fmt: skip
    first, second = (frame.iloc[index] for index in (0, 1))
    assert (first["category"], first["tags"], first["references"]) == ("geo", ["europe"], ["Paris", "paris"])
    assert first["sources"] == ["doc-1", "https://a.example", "Map"]
    assert (first["input_tokens"], first["total_tokens"], first["cost_usd"]) == (7, 9, 0.01)
    assert (first["started_at"], first["duration_ms"]) == ("2026-03-31T09:00:00.000Z", 20.0)
    assert (first["latency_ms"], first["m0"], first["score.status"]) == (12.5, 1.0, 0.5)
    assert first["error"] is None
    assert second["error"] == "KeyError: 'x'"
    assert second["status"] == "error"
    assert pd.isna(second["score.status"])
    assert pd.isna(second["input_tokens"])


@pytest.mark.parametrize("gap", [0, 1])
def test_absent_texts_of_frames_are_none(gap: int) -> None:
    """Absent texts are None in every column, though pandas has a type in which None becomes NaN."""
    rows: list[dict[str, object]] = [{"message": text, "value": 1.0} for text in ("because", "because")]
    rows[gap] = {"message": None, "value": None}
    frame = data_frame(rows)
    assert frame["message"][gap] is None
    assert frame["message"][1 - gap] == "because"
    assert frame["value"].dtype == "float64"
    assert data_frame([{"message": None}])["message"][0] is None


def test_the_text_of_stored_runs_is_a_line_a_run() -> None:
    """`assay.list_runs()` prints a line per run in a shell."""
    document = evaluation()
    shown = repr(Runs([document.run, document.run])).splitlines()
    assert shown[0] == "<2 runs>"
    assert shown[1] == shown[2]
    assert shown[1].split() == [document.run.run_id, "completed", document.summary.verdict, "75.0%", "passed"]


def test_a_frame_without_pandas_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence, not an ImportError."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(SetupError, match=r"a data frame needs pandas, .*: .*pip install -e .*\[pandas\]"):
        evaluation().to_pandas()
