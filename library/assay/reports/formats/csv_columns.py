"""Columns of the CSV report: common columns and one per metric, or those of the preset sql-agent."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from assay.reports.words.expected_text import expected_parts
from assay.statistics.exact_sum import exact_mean
from assay.text.csv_text import plain_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Row = Mapping[str, Any]
    Cell = str | int | float | None

SQL_METRICS = ("retrieval_accuracy", "generation_fidelity")
"""Kinds of metrics with their own column in the preset sql-agent."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Args:
        name: As the heading has it, untrusted.
        cell: Returns the value of a row; an untrusted text, a number, or None for an empty cell.
    """

    name: str
    cell: Callable[[Row], Cell]


def row_columns(head: Mapping[str, Any]) -> Sequence[Column]:
    """Return the columns of a run.

    Numbers of queries are counted while rows are read, so the columns serve one reading.

    Args:
        head: Of the document.
    """
    kinds = metric_kinds(head)
    is_sql = head["config"].get("preset") == "sql-agent"
    repeated = [Column("Repeat", itemgetter("repeat"))] if head["config"]["repeats"] > 1 else []
    own = ("latency", *(SQL_METRICS if is_sql else ()))
    # As in data frames, a metric with the name of a common column gets a prefix.
    others = [
        _metric_column(name, f"score.{name}" if name in _TAKEN else name)
        for name, kind in kinds.items()
        if kind not in own
    ]
    others += _group_columns(head, kinds)
    if is_sql:
        sql = [_metric_column(name_of_kind(kind, kinds), kind.replace("_", " ").title()) for kind in SQL_METRICS]
        return [*_start(), *_QUESTION, *_SQL, *sql, *_END, *others, *repeated, *_WHY]
    start = _start()
    return [*start, _CASE, *repeated, *_QUESTION, *_PLAIN, *others, *_END, *_WHY]


def metric_kinds(head: Mapping[str, Any]) -> dict[str, str]:
    """Return the kind of each metric of a run by its name."""
    return {name: result["kind"] for name, result in head["results"].items()}


def name_of_kind(kind: str, kinds: Mapping[str, str]) -> str:
    """Return the name of a run's first metric of a kind; the kind itself if there is none."""
    return next((name for name, kind_of_metric in kinds.items() if kind_of_metric == kind), kind)


def _metric_column(metric: str, name: str) -> Column:
    return Column(name, lambda row: plain_number(row["scores"].get(metric, {}).get("value")))


def _group_columns(head: Mapping[str, Any], kinds: Mapping[str, str]) -> list[Column]:
    """Return a column for each group of checks: the mean of the row's checks in it."""
    names = [name for name, kind in kinds.items() if kind == "assertions"]
    groups = [(name, group) for name in names for group in head["results"][name].get("groups") or ()]
    taken = _TAKEN | kinds.keys()
    return [
        Column(f"group.{group}" if group in taken else group, partial(_group_mean, name, group))
        for name, group in groups
    ]


def _group_mean(metric: str, group: str, row: Row) -> Cell:
    checks = (row["scores"].get(metric, {}).get("detail") or {}).get("checks") or ()
    scores = [check["score"] for check in checks if check.get("group") == group and check.get("score") is not None]
    return plain_number(exact_mean(scores)) if scores else None


def _start() -> list[Column]:
    return [Column("Query #", _query_number()), Column("Timestamp", lambda row: row.get("started_at"))]


def _query_number() -> Callable[[Row], int]:
    """Return a function that numbers queries from 1; repeats of a case have the same number."""
    numbers, last, number = itertools.count(1), object(), 0

    def count(row: Row) -> int:
        nonlocal last, number
        if row["case_id"] != last:
            last, number = row["case_id"], next(numbers)
        return number

    return count


def _seconds(row: Row) -> str | None:
    """Format a row's latency to the nanosecond, without trailing zeros and exponent."""
    if row["latency_ms"] is None:
        return None
    return f"{row['latency_ms'] / 1000:.9f}".rstrip("0").rstrip(".")


def _passed(row: Row) -> str | None:
    return None if row["passed"] is None else str(row["passed"])


def _expected_table(row: Row) -> str:
    details = [(score.get("detail") or {}).get("expected_tables") for score in row["scores"].values()]
    tables = [
        str(table) for tables_of_score in details if isinstance(tables_of_score, list) for table in tables_of_score
    ]
    return ", ".join(dict.fromkeys(tables))


_CASE = Column("Case", lambda row: row["case_id"])
_STATUS = Column("Status", lambda row: row["status"])
_QUESTION = (Column("Question", lambda row: row["question"]), Column("Category", lambda row: row["category"]))
_SQL = (
    Column("Expected Table", _expected_table),
    _STATUS,
    Column("SQL Generated", lambda row: row["response"].get("sql")),
    Column("Data Rows", lambda row: row["response"].get("data_rows")),
    Column("Insights", lambda row: row["answer"]),
)
_PLAIN = (
    _STATUS,
    Column("Answer", lambda row: row["answer"]),
    Column("Reference", lambda row: "\n".join(row["references"])),
)
_END = (Column("Latency (s)", _seconds), Column("Overall Passed", _passed))
_WHY = (
    Column(
        "Expected", lambda row: "\n".join(f"{name}: {text}" for name, text in expected_parts(row.get("expected") or {}))
    ),
    Column("Message", lambda row: row.get("message")),
)
_TAKEN = {column.name for column in (*_start(), _CASE, *_QUESTION, *_SQL, *_PLAIN, *_END, *_WHY)} | {"Repeat"}
