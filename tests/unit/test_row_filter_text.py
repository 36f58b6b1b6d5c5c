"""The text of filters and orders of rows: what it means, what is refused, and that nothing else ever happens."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.services.row_order import sort_rows

from assay.errors import InvalidInputError
from assay.filters.matching import matches
from assay.filters.row_filter import (
    MAX_TEXT_CHARS,
    MAX_VALUES,
    LatencyCondition,
    MetricCondition,
    Operator,
    RowFilter,
    RowKey,
    RowOrder,
    RowOutcome,
    TextCondition,
    TextField,
)
from assay.filters.row_text import parse_row_filter, parse_row_order, parse_row_query
from assay.model.answers.agent_response import AgentResponse, AgentStatus
from assay.model.run import RowResult, Score, ScoreStatus

VECTORS: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "data" / "row_filters.json").read_text(encoding="utf-8")
)


def row_of(data: dict[str, Any]) -> RowResult:
    """Return a row of the vectors."""
    scores = [
        Score(name, ScoreStatus.SKIPPED if value is None else ScoreStatus.SCORED, value)
        for name, value in data["scores"].items()
    ]
    return RowResult(
        data["case_id"],
        data["case_index"],
        data["repeat"],
        data["category"],
        AgentStatus(data["status"]),
        data["passed"],
        scores,
        data["latency_ms"],
        data.get("message", ""),
        response=AgentResponse(text=data["answer"]),
        input=data["question"],
        tags=tuple(data["tags"]),
    )


ROWS = [row_of(data) for data in VECTORS["rows"]]
PIECES = st.lists(
    st.one_of(
        st.text(max_size=3),
        st.sampled_from(
            [" ", "and", "failed", "category", "judge_score", "latency", "answer", ":", "~", "<", "<=", "==", "!=", "=",
             ",", '"', "\\", "0.5", "none", "2s", "-1", "1e999", "\n"]
        ),
    ),
    max_size=12,
).map("".join)  # fmt: skip


@pytest.mark.parametrize("vector", VECTORS["filters"], ids=lambda vector: repr(vector["filter"]))
def test_filters_find_the_rows_of_the_vectors(vector: dict[str, Any]) -> None:
    """Each filter of the vectors, which the report's own reader shares, finds exactly its rows."""
    row_filter = parse_row_filter(vector["filter"])
    assert [index for index, row in enumerate(ROWS) if matches(row_filter, row)] == vector["rows"]


@pytest.mark.parametrize("vector", VECTORS["orders"], ids=lambda vector: repr(vector["order"]))
def test_orders_sort_the_rows_of_the_vectors(vector: dict[str, Any]) -> None:
    """Rows without a value come last in either direction, equal ones in dataset order."""
    assert [ROWS.index(row) for row in sort_rows(ROWS, parse_row_order(vector["order"]))] == vector["rows"]


@pytest.mark.parametrize("text", VECTORS["wrong"])
def test_what_is_no_filter_is_refused(text: str) -> None:
    """Each text is refused with a sentence that begins with a position in it."""
    with pytest.raises(InvalidInputError) as refusal:
        parse_row_filter(text, where="--where")
    for problem in refusal.value.problems:
        assert problem.field == "--where"
        position = int(problem.message.removeprefix("character ").partition(":")[0])
        assert 1 <= position <= len(text) + 1


@given(PIECES)
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    """No text makes the reader fail in another way."""
    with suppress(InvalidInputError):
        parse_row_filter(text)


def test_each_condition_is_read() -> None:
    """Words, lists, texts and comparisons; quoted values hold any character, and latencies have units."""
    assert parse_row_filter(
        'failed,undecided status:success category:"a b","" tag:t case:"c \\"1\\"" repeat:1,2 answer~"a,b" '
        "judge_score<=0.5 rouge!=none latency>2 and latency<1.5m latency==none"
    ) == RowFilter(
        outcomes=(RowOutcome.FAILED, RowOutcome.UNDECIDED),
        statuses=(AgentStatus.SUCCESS,),
        categories=("a b", ""),
        tags=("t",),
        case_ids=('c "1"',),
        repeats=(1, 2),
        texts=(TextCondition(TextField.ANSWER, "a,b"),),
        metrics=(
            MetricCondition("judge_score", Operator.LESS_OR_EQUAL, 0.5),
            MetricCondition("rouge", Operator.NOT_EQUAL, None),
        ),
        latencies=(
            LatencyCondition(Operator.GREATER, 2000.0),
            LatencyCondition(Operator.LESS, 90_000.0),
            LatencyCondition(Operator.EQUAL, None),
        ),
    )
    assert parse_row_order("-judge_score") == RowOrder(RowKey.METRIC, "judge_score", descending=True)


def test_metrics_of_another_run_are_refused_at_their_position() -> None:
    """With the run's metrics known, filter and order name the misspelt ones together with every other problem."""
    with pytest.raises(InvalidInputError) as refusal:
        parse_row_query(
            "failed exact_mach<1 rouge<x", "-exact", names=("filter", "order_by"), metrics=["exact_match", "rouge"]
        )
    known = "(metrics of this run: exact_match, rouge)"
    assert [(problem.field, problem.message) for problem in refusal.value.problems] == [
        ("filter", f"character 8: unknown metric 'exact_mach'; did you mean 'exact_match'? {known}"),
        ("filter", "character 21: 'x' is no finite number, and only == and != compare with none"),
        ("order_by", f"unknown metric 'exact'; did you mean 'exact_match'? {known}"),
    ]


def test_every_problem_is_said_at_once_by_position() -> None:
    """One reading finds all problems, and names what was probably meant."""
    with pytest.raises(InvalidInputError) as refusal:
        parse_row_filter("faild categry:refunds judge_score<x latency>fast and")
    assert [problem.message for problem in refusal.value.problems] == [
        "character 1: unknown word 'faild'; did you mean 'failed'?; a metric needs a comparison, as in judge_score<0.5",
        "character 7: unknown condition 'categry'; did you mean 'category'?; a metric is compared, as in categry<0.5",
        "character 23: 'x' is no finite number, and only == and != compare with none",
        "character 37: 'fast' is no duration: write a number with ms, s, m or h, such as 500ms",
        "character 50: a condition is missing after 'and'",
    ]


@pytest.mark.parametrize(
    "text",
    [
        f"answer~{'a' * (MAX_TEXT_CHARS + 1)}",
        f"case:{','.join('c' * (MAX_VALUES + 1))}",
        f"category:{'c' * 1001}",
        "x" * 20_001,
        'answer~""',
        "judge_score>0 " * (MAX_VALUES + 1),
    ],
    ids=["text", "values", "name", "filter", "empty text", "conditions"],
)
def test_limits_are_refused(text: str) -> None:
    """What would be slow to search for is refused with the limit."""
    with pytest.raises(InvalidInputError, match=r"^character \d+: .*(more than|takes a text of 1 to)"):
        parse_row_filter(text)


@pytest.mark.parametrize("text", ["-", "--latency", "judge score", "1", "-\x00", "x" * 65, "latency,case"])
def test_what_is_no_order_is_refused(text: str) -> None:
    """An order is a key or a metric, with at most one sign."""
    with pytest.raises(InvalidInputError, match="is no order"):
        parse_row_order(text)
