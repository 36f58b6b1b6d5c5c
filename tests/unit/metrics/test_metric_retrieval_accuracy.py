"""Retrieval accuracy: the right table, asked with a SELECT, and rows that came back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from assay.metrics.core.score import Metric, Row
from assay.model.answers.agent_response import AgentError, AgentErrorKind, AgentResponse, AgentStatus
from assay.model.case import Case, Turn

TABLE = "tenders_full_details"


def asked(
    sql: str | None, data_rows: int | None, table: Any = TABLE, category: str = "count", status: str = "success"
) -> Row:
    """A row of an SQL agent."""
    response = AgentResponse(
        status=AgentStatus(status),
        sql=sql,
        data_rows=data_rows,
        error=AgentError(AgentErrorKind.RAISED, "no") if status == "error" else None,
    )
    return Row(Case("case", (Turn("question"),), category=category, expected={"expected_table": table}), response)


@pytest.mark.parametrize(
    ("row", "points", "value"),
    [
        (asked("SELECT COUNT(*) FROM tenders_full_details", 1), 3, 1.0),
        (asked("select * from TENDERS_FULL_DETAILS where 1=0", 0), 2, 1.0),
        (asked("SELECT * FROM projects", 5), 2, 1.0),
        (asked("SELECT * FROM projects", 0), 1, 0.0),
        (asked("SELECT * FROM tenders_full_details_archive", 0), 1, 0.0),
        (asked('SELECT * FROM "Tenders_Full_Details"', 0, "Tenders_Full_Details"), 2, 1.0),
        (asked("DELETE FROM selections", 0, "selections"), 1, 0.0),
        (asked(None, 0), 0, 0.0),
        (asked("SELECT * FROM x", 2, None), 2, 1.0),
        (asked("", 0, None, "out_of_scope", "out_of_scope"), None, 1.0),
        (asked("SELECT * FROM weather", 3, None, "out_of_scope"), None, 0.0),
        (asked("SELECT 1", 0, None, "out_of_scope", "out_of_scope"), None, 0.0),
        (asked(None, 0, None, "out_of_scope", "error"), None, 0.0),
    ],
)
def test_known_rows(metric: Callable[..., Metric], row: Row, points: int | None, value: float) -> None:
    """Two of three checks are enough; out of scope, fetching nothing is right."""
    score = metric("retrieval_accuracy").score(row)
    assert (score.detail["points"], score.value, score.passed) == (points, value, value == 1.0)
    assert bool(score.reason) is (value == 0.0)


@pytest.mark.parametrize(
    ("sql", "table", "named"),
    [
        ("SELECT 1 FROM dbo.tenders", "tenders", True),
        ("SELECT 1 FROM [dbo].[Tenders]", "dbo.tenders", True),
        ("SELECT 1 FROM `tenders`", '"Tenders"', True),
        ("SELECT 1 FROM b", ["a", "b"], True),
        ("SELECT 1 FROM c", ["a", "b"], False),
        ("SELECT 1 FROM tenders$old", "tenders", False),
        ("SELECT 1 FROM my_tenders", "tenders", False),
        ("SELECT 1 FROM a+b", "a+b", True),
        ("SELECT 1 FROM x", "", False),
        ("SELECT 1 FROM x", ["", None, 7, '""'], False),
        ("SELECT 1 FROM المناقصات", "المناقصات", True),
        ("SELECT 1 FROM `my-table`", "my-table", True),
        ("SELECT 1 FROM `my-table`", "`my-table`", True),
        ("SELECT 1 FROM `my-table-2`", "my-table", False),
        ("SELECT 1 FROM `my-table-2`", "my", False),
        ("SELECT 1 FROM `my-table-2`", "table-2", False),
        ("SELECT 1 FROM my-table-2", "my-table", False),
        ("SELECT 1 FROM `shop.eu.my-table`", "my-table", True),
        ("SELECT 1 FROM `shop.eu`.`my-table`", "eu.my-table", True),
        ("SELECT 1 FROM [old orders]", "orders", False),
        ("SELECT 1 FROM [old orders]", "old orders", True),
        ('SELECT 1 FROM "a" JOIN "my-table-2" USING (x) JOIN "my-table" USING (y)', "my-table", True),
        ("-- tenders\nSELECT 1 FROM chairs", "tenders", False),
        ("# tenders\nSELECT 1 FROM chairs", "tenders", False),
        ("SELECT 1 FROM #tenders", "tenders", True),
        ("/* tenders\n*/ SELECT 1 FROM chairs", "tenders", False),
        ("SELECT 1 FROM chairs /* tenders", "tenders", False),
        ("SELECT/**/1/**/FROM/**/tenders/**/t", "tenders", True),
        ("SELECT 1 FROM chairs WHERE note = 'tenders'", "tenders", False),
        ("SELECT 1 FROM chairs WHERE note = 'it''s tenders'", "tenders", False),
        ("SELECT 1 FROM chairs WHERE note = 'tenders", "tenders", False),
        ("SELECT 1 FROM chairs WHERE note = $t$a tenders b$t$", "tenders", False),
        ("SELECT 1 FROM chairs WHERE note IS DISTINCT FROM 'tenders'", "tenders", False),
        ("SELECT 1 FROM 'tenders.parquet'", "tenders.parquet", True),
        ("SELECT '-- tenders', 'x' FROM tenders", "tenders", True),
        ("SELECT 1 FROM chairs /* a /* b */ tenders */", "tenders", False),
        ("SELECT 1 /* a /* b */ FROM tenders", "tenders", True),
        ("SELECT 'a\\' tenders' FROM chairs", "tenders", False),
        ("SELECT E'a\\' tenders' || 'b' FROM chairs", "tenders", False),
        ("SELECT 'C:\\' FROM tenders WHERE a = 'b'", "tenders", True),
        ("SELECT substring(a FROM 'tenders') FROM chairs", "tenders", False),
        ("SELECT 1 FROM (SELECT 1 FROM 'tenders')", "tenders", True),
        ("SELECT 1 FROM cafe\u0301", "caf\u00e9", True),
        ("SELECT 'say \"hi' FROM tenders WHERE note = 'x\"'", "tenders", True),
        ('SELECT 1 -- the " mark\nFROM tenders -- "', "tenders", True),
    ],
)
def test_a_table_counts_as_a_whole_identifier(metric: Callable[..., Metric], sql: str, table: Any, named: bool) -> None:
    """Quotes and case are ignored on both sides; parts of names, quoted or not, and blank names match nothing."""
    assert metric("retrieval_accuracy").score(asked(sql, 0, table)).detail["names_table"] is named


@pytest.mark.parametrize("sql", ["-- select 1", "/* select 1 */", "'select 1'", "no SQL -- would select nothing"])
def test_a_select_in_a_comment_or_literal_is_none(metric: Callable[..., Metric], sql: str) -> None:
    """A refusal that explains itself in a comment fetches nothing."""
    score = metric("retrieval_accuracy").score(asked(sql, 0, None, "out_of_scope", "out_of_scope"))
    assert (score.value, score.detail["has_select"]) == (1.0, False)


@pytest.mark.parametrize("table", [None, "", [], [" "], 5])
def test_a_case_without_a_table_says_so(metric: Callable[..., Metric], table: Any) -> None:
    """The check scores nothing and the detail notes why; the other two checks can still pass the row."""
    score = metric("retrieval_accuracy").score(asked("SELECT 1", 1, table))
    assert (score.value, score.detail["note"]) == (1.0, "expected_table_missing")
    assert "note" not in metric("retrieval_accuracy").score(asked("SELECT 1", 1)).detail


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (asked("DELETE FROM x", 0), "no_select, table_not_named, no_rows"),
        (asked("SELECT 1", None), "table_not_named, no_rows"),
        (asked("SELECT 1", 0, category=" Out_Of_Scope "), "data_was_fetched"),
        (asked(None, 1, category="out_of_scope"), "data_was_fetched"),
        (asked(None, None, status="error"), "agent_error"),
    ],
)
def test_a_wrong_row_says_why(metric: Callable[..., Metric], row: Row, reason: str) -> None:
    """The reason names the checks that failed; the category is trimmed and its case ignored."""
    assert metric("retrieval_accuracy").score(row).reason == reason


def test_an_agent_error_is_computed_from_what_the_row_holds(metric: Callable[..., Metric]) -> None:
    """An agent that failed after fetching has its points."""
    score = metric("retrieval_accuracy").score(asked(f"SELECT 1 FROM {TABLE}", 3, status="error"))
    assert (score.value, score.detail["points"]) == (1.0, 3)


def test_the_threshold_applies_to_the_share_of_right_rows(
    metric: Callable[..., Metric], fold: Callable[..., Any]
) -> None:
    """3 of 4 reaches 0.75."""
    rows = [asked(f"SELECT 1 FROM {TABLE}", 3)] * 3 + [asked(None, 0)]
    summary = fold(metric("retrieval_accuracy", threshold=0.75), rows)
    assert (summary.value, summary.meets_threshold, summary.passed_count, summary.failed_count) == (0.75, True, 3, 1)
    assert (summary.detail["right"], summary.detail["total"]) == (3, 4)
