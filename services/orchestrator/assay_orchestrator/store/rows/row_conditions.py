"""Row filters and orders as SQL, for both databases; `assay.filters.matching` defines their meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from assay.filters.matching import case_variants
from assay.filters.row_filter import Operator, RowKey, RowOutcome, TextField
from assay.model.answers.agent_response import FAILED_STATUSES, clean_text
from assay.statistics.thresholds import TOLERANCE
from assay.storage.texts import CleanText
from assay_orchestrator.store import schema
from assay_orchestrator.store.runs import datasets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.filters.row_filter import LatencyCondition, MetricCondition, RowFilter, RowOrder, TextCondition

Condition = sa.ColumnElement[bool]

_ROWS = schema.results
_ESCAPE = "\\"
_IS_ERROR = _ROWS.c.status.in_(FAILED_STATUSES)
OUTCOME = sa.case(
    (_IS_ERROR, RowOutcome.AGENT_ERROR.value),
    (_ROWS.c.passed.is_(True), RowOutcome.PASSED.value),
    (_ROWS.c.passed.is_(False), RowOutcome.FAILED.value),
    (_ROWS.c.message != "", RowOutcome.UNDECIDED.value),
    else_=RowOutcome.NO_VERDICT.value,
)
"""The outcome of a row."""


class RowConditions:
    """Builds SQL for one database.

    Args:
        connection: A connection to the database.
        run_id: The run whose rows are filtered.
    """

    def __init__(self, connection: sa.Connection, run_id: str) -> None:
        self._connection = connection
        self._is_postgres = connection.dialect.name == "postgresql"
        self.run_id = run_id

    def met_by(self, row_filter: RowFilter) -> list[Condition]:
        """Return the conditions that select the run's rows matching a filter."""
        rows = _ROWS.c
        lists: list[tuple[sa.ColumnElement[Any], Sequence[Any]]] = [
            (OUTCOME, [outcome.value for outcome in row_filter.outcomes]),
            (rows.status, [status.value for status in row_filter.statuses]),
            (rows.category, row_filter.categories),
            (rows.repeat, row_filter.repeats),
        ]
        return [
            rows.run_id == self.run_id,
            *(column.in_(values) for column, values in lists if values),
            *([rows.case_index.in_(self._positions(row_filter.case_ids))] if row_filter.case_ids else ()),
            *([self._has_tag(row_filter.tags)] if row_filter.tags else ()),
            *(_compared(rows.latency_ms, condition) for condition in row_filter.latencies),
            *(self._has_value(condition) for condition in row_filter.metrics),
            *(self._has_text(condition) for condition in row_filter.texts),
        ]

    def sort_value(self, order: RowOrder) -> sa.ColumnElement[Any]:
        """Return the sort value of rows."""
        match order.key:
            case RowKey.METRIC:
                return self._value(order.metric)
            case RowKey.LATENCY:
                return _ROWS.c.latency_ms
            case RowKey.CASE:  # by code points, as SQLite does by default
                return sa.collate(_ROWS.c.case_id, "C") if self._is_postgres else _ROWS.c.case_id
            case RowKey.DATASET:
                return _ROWS.c.case_index

    def _positions(self, case_ids: Sequence[str]) -> sa.Select[Any]:
        """Return the positions of cases in the run's dataset; rows are stored by position."""
        cases = schema.dataset_cases.c
        upload_id = datasets.upload_of_run(self.run_id)
        return sa.select(cases.case_index).where(cases.upload_id == upload_id, cases.case_id.in_(case_ids))

    def _has_tag(self, tags: Sequence[str]) -> Condition:
        cleaned = list(map(clean_text, tags))
        if self._is_postgres:
            # Imported here: a file needs no part of PostgreSQL, and its dialect is a tenth of SQLAlchemy's import time.
            from sqlalchemy.dialects.postgresql import JSONB, array

            has_any: Condition = sa.cast(_ROWS.c.tags_json, JSONB).has_any(array(cleaned, type_=sa.Text))
            return has_any
        tag = sa.func.json_each(_ROWS.c.tags_json).table_valued("value")
        return sa.exists(sa.select(sa.literal(1)).select_from(tag).where(tag.c.value.in_(cleaned)))

    def _value(self, metric: str) -> sa.ColumnElement[float]:
        """Return the value of a metric; NULL if it has none."""
        if self._is_postgres:
            return sa.cast(sa.cast(_ROWS.c.values_json, sa.JSON)[metric].as_string(), sa.Float)
        return sa.func.json_extract(_ROWS.c.values_json, f"$.{metric}", type_=sa.Float)

    def _has_value(self, condition: MetricCondition) -> Condition:
        value = self._value(condition.metric)
        if condition.value is None:
            return value.is_(None) if condition.operator is Operator.EQUAL else value.is_not(None)
        bound = condition.value
        match condition.operator:
            case Operator.LESS:
                return value < bound - TOLERANCE
            case Operator.LESS_OR_EQUAL:
                return value <= bound + TOLERANCE
            case Operator.GREATER:
                return value > bound + TOLERANCE
            case Operator.GREATER_OR_EQUAL:
                return value >= bound - TOLERANCE
            case Operator.EQUAL:
                return value.between(bound - TOLERANCE, bound + TOLERANCE)
            case Operator.NOT_EQUAL:
                return ~value.between(bound - TOLERANCE, bound + TOLERANCE)

    def _has_text(self, condition: TextCondition) -> Condition:
        text = clean_text(condition.text)
        rows = sa.tuple_(_ROWS.c.case_index, _ROWS.c.repeat)
        match condition.field:
            case TextField.QUESTION:
                return _ROWS.c.case_index.in_(self._asked(text))
            case TextField.ANSWER if self._is_postgres:
                return rows.in_(self._answered(text))
            case TextField.ANSWER:
                return self._own_answer_holds(text)
            case TextField.ANY:
                own = _ROWS.alias()
                answered_rows = sa.select(own.c.case_index, own.c.repeat)
                by_question = answered_rows.where(own.c.run_id == self.run_id, own.c.case_index.in_(self._asked(text)))
                # One list rather than two conditions joined by OR, for which PostgreSQL might compare every pair.
                return rows.in_(sa.union_all(self._answered(text), by_question))

    def _own_answer_holds(self, text: str) -> Condition:
        """Return whether an answer of the row contains a text, row by row.

        A list would make SQLite first collect all matching rows, even for a page that ends after a few.
        """
        answers = schema.answers.c
        own = sa.and_(answers.case_index == _ROWS.c.case_index, answers.repeat == _ROWS.c.repeat)
        return self._answered(text).where(own).correlate(_ROWS).exists()

    def _answered(self, text: str) -> sa.Select[Any]:
        """Return the rows with an answer, in any turn, that contains a text."""
        answers = schema.answers.c
        return sa.select(answers.case_index, answers.repeat).where(
            answers.run_id == self.run_id, self._holds(answers.answer_text, text)
        )

    def _asked(self, text: str) -> sa.Select[Any]:
        """Return the cases with a question, in any turn, that contains a text."""
        cases = schema.dataset_cases.c
        cases_asking = sa.select(cases.case_index).where(
            cases.upload_id == datasets.upload_of_run(self.run_id), self._holds(cases.question_text, text)
        )
        return cases_asking.where(self._is_within_a_turn(text)) if datasets.BETWEEN_TURNS in text else cases_asking

    def _is_within_a_turn(self, text: str) -> Condition:
        """Return whether the text occurs within a single turn of a question that contains the separator of turns."""
        cases = schema.dataset_cases.c
        if self._is_postgres:
            turns = sa.func.json_array_elements(sa.cast(cases.case_json, sa.JSON)["turns"])
        else:
            turns = sa.func.json_each(cases.case_json, "$.turns")
        turn = turns.table_valued("value")
        question = sa.func.nullif(schema.json_field(self._connection, turn.c.value, "input"), "")
        # The JSON text of the variables, where there is no input.
        variables = schema.json_field(self._connection, cases.case_json, "variables")
        contains = self._holds(sa.func.coalesce(question, variables), text)
        return sa.exists(sa.select(sa.literal(1)).select_from(turn).where(contains).correlate(schema.dataset_cases))

    def _holds(self, column: sa.ColumnElement[Any], text: str) -> Condition:
        """Return whether a column contains a text, ignoring case."""
        if all(char.isascii() or len(case_variants(char)) == 1 for char in text):
            if not self._is_postgres:  # LIKE of SQLite ignores the case of ASCII letters
                return column.like(sa.literal(_like(text), CleanText), escape=_ESCAPE)
            lower = sa.literal("".join(char.lower() if char.isascii() else char for char in text), CleanText)
            # With the collation "C", only ASCII letters become lower case.
            return sa.func.strpos(sa.func.lower(sa.collate(sa.type_coerce(column, sa.Text), "C")), lower) > 0
        operator, pattern = ("~", _regex(text)) if self._is_postgres else ("GLOB", _glob(text))
        return column.op(operator, is_comparison=True)(sa.literal(pattern, CleanText))


def _compared(column: sa.ColumnElement[float], condition: LatencyCondition) -> Condition:
    if condition.latency_ms is None:
        return column.is_(None) if condition.operator is Operator.EQUAL else column.is_not(None)
    bound = sa.literal(condition.latency_ms, sa.Float)
    compare = {
        Operator.LESS: column.__lt__,
        Operator.LESS_OR_EQUAL: column.__le__,
        Operator.GREATER: column.__gt__,
        Operator.GREATER_OR_EQUAL: column.__ge__,
        Operator.EQUAL: column.__eq__,
        Operator.NOT_EQUAL: column.__ne__,
    }
    return compare[condition.operator](bound)


def _regex(text: str) -> str:
    """Return a PostgreSQL regular expression that matches the text literally."""
    return "".join(
        f"[{forms}]" if len(forms := case_variants(char)) > 1 else f"\\{char}" if char.isascii() else char
        for char in text
    )


def _glob(text: str) -> str:
    """Return a pattern of SQLite's GLOB that matches the text literally."""
    return f"*{''.join(char if char == '^' else f'[{case_variants(char)}]' for char in text)}*"


def _like(text: str) -> str:
    """Return a pattern of SQLite's LIKE that matches the text literally."""
    return f"%{text.translate({ord(sign): f'{_ESCAPE}{sign}' for sign in ('%', '_', _ESCAPE)})}%"
