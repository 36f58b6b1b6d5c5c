"""Assay's own reports, read as datasets: the answers of every row come back as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.datasets import open_dataset
from assay.model.answers.agent_response import AgentErrorKind, AgentResponse, Source, Usage, error_response
from assay.model.run import RowResult, Score, ScoreStatus, TurnResult
from assay.reports.document.document import row_document

GOOD = AgentResponse(text="yes", latency_ms=12.5, usage=Usage(input_tokens=3, cost_usd=0.1), sources=(Source(id="s"),))
FAILED = error_response(AgentErrorKind.RAISED, "ValueError: no", type="ValueError", traceback="here")


def row(case_id: str, index: int, response: AgentResponse, *, repeat: int = 0, turns: Any = (), **more: Any) -> Any:
    """Return a row as a report has it."""
    scores = [Score("exact_match", ScoreStatus.SCORED, 1.0, passed=True)]
    result = RowResult(
        case_id, index, repeat, "easy", response.status, True, scores, response.latency_ms, "", response=response,
        input="ask", references=("yes", "ja"), tags=("t",), turns=turns, **more,
    )  # fmt: skip
    return row_document(result)


TALK = (
    TurnResult("one", ("1",), GOOD),
    TurnResult("two", ("2",), FAILED),
    TurnResult("three", ("3",)),  # not asked
)
ROWS = [
    row("a", 0, GOOD),
    row("a", 0, FAILED, repeat=2),
    row("b", 1, FAILED, weight=2.0),
    row("talk", 2, FAILED, turns=TALK),
]


@pytest.mark.parametrize("ending", ["json", "jsonl"])
def test_rows_are_cases_with_recorded_answers(tmp_path: Path, ending: str) -> None:
    """Repeats are of one case; errors, usage and latency are kept; a conversation has the answers to all its turns."""
    path = tmp_path / f"results.{ending}"
    document = {"schema": "assay/results/1", "config": {"metrics": []}, "run": {"run_id": "r"}, "rows": ROWS}
    text = json.dumps(document) if ending == "json" else "\n".join(json.dumps({"run_id": "r", **each}) for each in ROWS)
    path.write_text(text, encoding="utf-8")
    dataset = open_dataset(path)
    info = dataset.check()
    first, second, talk = dataset.cases()
    assert (info.format, info.case_count, info.recorded_count) == (f"assay-results/{ending}", 3, 3)
    assert not info.warnings
    assert (first.case_id, first.input, first.references) == ("a", "ask", ("yes", "ja"))
    assert (first.category, first.tags, second.weight) == ("easy", ("t",), 2.0)
    assert first.recordings == ((GOOD,), (FAILED,))
    assert second.recorded == FAILED
    assert [(turn.input, turn.references) for turn in talk.turns] == [
        ("one", ("1",)), ("two", ("2",)), ("three", ("3",)),
    ]  # fmt: skip
    assert talk.recordings == ((GOOD, FAILED),)


def test_an_answer_that_the_report_lacks_is_refused(tmp_path: Path) -> None:
    """An answer missing from the report is refused instead of being scored as empty."""
    path = tmp_path / "results.jsonl"
    path.write_text(json.dumps(row("x", 0, GOOD, turns=(TurnResult("q", left_out=True),))), encoding="utf-8")
    with pytest.raises(Exception, match="was too long for the report: score the stored run with `assay rescore RUN`"):
        open_dataset(path).check()


def test_what_a_case_expects_comes_back(tmp_path: Path) -> None:
    """Sources, tool calls and checks are restored, so that a report can be scored again by them."""
    tool = {"name": "search", "arguments": {"q": "x"}, "match": "subset"}
    of_turn = {"expected_sources": ["faq#9"], "expected_tools": [tool]}
    expected = {**of_turn, "expected_table": "t", "assertions": [{"type": "contains", "value": "yes"}]}
    talk = (TurnResult("one", (), GOOD, expected=of_turn), TurnResult("two", (), GOOD))
    rows = [row("a", 0, GOOD, expected=expected), row("b", 1, GOOD, turns=talk, expected=expected)]
    path = tmp_path / "results.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in rows), encoding="utf-8")
    for case in open_dataset(path).cases():
        assert case.turns[0].expected_sources == ("faq#9",)
        assert case.turns[0].expected_tools[0].arguments == {"q": "x"}
        assert (case.expected, case.assertions[0].value) == ({"expected_table": "t"}, "yes")
