"""The text of filters and orders of rows: what it means, what is refused, and that nothing else ever happens."""

from __future__ import annotations

import json
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
    Comparison,
    LatencyCondition,
    MetricCondition,
    RowFilter,
    RowKey,
    RowOrder,
    RowOutcome,
    TextCondition,
    TextField,
)
from assay.filters.row_text import format_row_filter, format_row_order, parse_row_filter, parse_row_order
from assay.model.answers.agent_response import AgentResponse, AgentStatus
from assay.model.run import RowResult, Score, ScoreStatus
from assay.wire.filters import row_filter_from_wire, row_filter_to_wire, row_order_from_wire, row_order_to_wire

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
        "",
        response=AgentResponse(text=data["answer"]),
        input=data["question"],
        tags=tuple(data["tags"]),
    )


ROWS = [row_of(data) for data in VECTORS["rows"]]
NAMES = st.text(min_size=1, max_size=8)
METRICS = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,9}", fullmatch=True).filter(
    lambda name: name not in ("and", "outcome", "category", "tag", "case", "repeat", "status", "latency", *TextField)
)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
COMPARISONS = st.sampled_from(list(Comparison))
FILTERS = st.builds(
    RowFilter,
    statuses=st.lists(st.sampled_from(list(AgentStatus)), max_size=3).map(tuple),
    outcomes=st.lists(st.sampled_from(list(RowOutcome)), max_size=3).map(tuple),
    categories=st.lists(st.text(max_size=8), max_size=3).map(tuple),
    tags=st.lists(NAMES, max_size=3).map(tuple),
    case_ids=st.lists(NAMES, max_size=3).map(tuple),
    repeats=st.lists(st.integers(0, 10**9 - 1), max_size=3).map(tuple),
    texts=st.lists(st.builds(TextCondition, st.sampled_from(list(TextField)), NAMES), max_size=3).map(tuple),
    metrics=st.lists(
        st.one_of(
            st.builds(MetricCondition, METRICS, COMPARISONS, NUMBERS),
            st.builds(MetricCondition, METRICS, st.sampled_from([Comparison.EQUAL, Comparison.NOT_EQUAL]), st.none()),
        ),
        max_size=3,
    ).map(tuple),
    latencies=st.lists(
        st.builds(LatencyCondition, COMPARISONS, st.floats(0, allow_nan=False, allow_infinity=False)), max_size=3
    ).map(tuple),
)
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


@given(FILTERS)
def test_filters_survive_text_and_wire(expected: RowFilter) -> None:
    """A filter is the same after it was written and read, and after it was sent."""
    assert parse_row_filter(format_row_filter(expected)) == expected
    assert row_filter_from_wire(row_filter_to_wire(expected)) == expected


@given(st.sampled_from(list(RowKey)), METRICS, st.booleans())
def test_orders_survive_text_and_wire(key: RowKey, metric: str, descending: bool) -> None:
    """An order is the same after it was written and read, and after it was sent."""
    order = RowOrder(key, metric if key is RowKey.METRIC else "", descending)
    if metric not in tuple(RowKey):
        assert parse_row_order(format_row_order(order)) == order
    assert row_order_from_wire(row_order_to_wire(order)) == order


@given(PIECES)
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    """No text makes the reader fail in another way, and what it accepts is read the same once written."""
    try:
        row_filter = parse_row_filter(text)
    except InvalidInputError:
        pass
    else:
        assert parse_row_filter(format_row_filter(row_filter)) == row_filter


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
    with pytest.raises(InvalidInputError, match=r"more than|must have 1 to"):
        parse_row_filter(text)


@pytest.mark.parametrize("text", ["-", "--latency", "judge score", "1", "-\x00", "x" * 65, "latency,case"])
def test_what_is_no_order_is_refused(text: str) -> None:
    """An order is a key or a metric, with at most one sign."""
    with pytest.raises(InvalidInputError, match="is no order"):
        parse_row_order(text)
