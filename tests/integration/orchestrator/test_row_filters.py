"""Filters, orders, counts and neighbours of rows in SQL, on both databases, against `assay.filters.matching`."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.services.row_order import sort_rows

from assay.filters.matching import matches
from assay.filters.row_filter import (
    EVERY_ROW,
    LatencyCondition,
    MetricCondition,
    Operator,
    RowFilter,
    RowKey,
    RowOrder,
    RowOutcome,
    TextCondition,
    TextField,
    outcome_of,
)
from assay.model.answers.agent_response import AgentResponse, AgentStatus
from assay.model.case import Case, Turn
from assay.model.run import DatasetRef, RowResult, Score, ScoreStatus
from assay.model.scope import LOCAL
from assay.wire.run import result_from_wire
from assay_orchestrator.store import history, schema
from assay_orchestrator.store.rows import found_rows, results
from assay_orchestrator.store.rows.found_rows import Position, RowQuery
from assay_orchestrator.store.rows.results import AnswerRecord
from assay_orchestrator.store.runs import datasets, runs
from assay_orchestrator.store.runs.runs import RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.filters.pages import RowFacets
    from assay.storage.database import Database

SIGNS = "aAbBkK\u212aßẞσςΣıİIi日%_\\\"'^[]*?-.,:{}\n\t \x1e\0\ud800\U0001f600"
TEXTS = st.text(alphabet=SIGNS, max_size=6)
NEEDLES = st.text(alphabet=SIGNS, min_size=1, max_size=3)
NAMES = st.sampled_from(["", "a", "A", ",", "b c", "日", '"', "%"])
VALUES = st.one_of(st.none(), st.sampled_from([0.0, 0.5, 0.5 + 1e-10, 1.0, -3.0, 1e15, 0.1 + 0.2]), st.floats(-5, 5))
METRICS = ("m", "n")


@st.composite
def turns(draw: st.DrawFn) -> tuple[list[Turn], dict[str, Any]]:
    """Return turns, and the variables that stand for an input that is empty."""
    variables = draw(
        st.one_of(st.just({}), st.dictionaries(TEXTS, st.one_of(TEXTS, st.integers(), VALUES), max_size=2))
    )
    return [Turn(text) for text in draw(st.lists(TEXTS, min_size=1, max_size=2))], variables


@st.composite
def stored_rows(draw: st.DrawFn) -> tuple[list[Case], list[AnswerRecord], list[RowResult]]:
    """Return cases with answers and results of some of their repeats."""
    cases, answers, rows = [], [], []
    for index in range(draw(st.integers(1, 5))):
        texts, variables = draw(turns())
        tags = tuple(draw(st.lists(NAMES, max_size=2, unique=True)))
        case = Case(f"{draw(NAMES)}c{index}", tuple(texts), variables=variables, category=draw(NAMES), tags=tags)
        cases.append(case)
        for repeat in range(1, draw(st.integers(1, 3))):
            answers += [
                AnswerRecord(index, repeat, turn, AgentResponse(text=draw(TEXTS))) for turn in range(len(texts))
            ]
            scores = [
                Score(name, ScoreStatus.SKIPPED if value is None else ScoreStatus.SCORED, value)
                for name, value in zip(METRICS, draw(st.tuples(VALUES, VALUES)), strict=True)
            ]
            rows.append(
                RowResult(
                    case.case_id,
                    index,
                    repeat,
                    case.category,
                    draw(st.sampled_from(list(AgentStatus))),
                    draw(st.sampled_from([True, False, None])),
                    scores,
                    draw(st.one_of(st.none(), st.sampled_from([0.0, 1.5, 2.0]))),
                    draw(st.sampled_from(["", "failed"])),
                    tags=tags,
                )
            )
    return cases, answers, rows


OPERATORS = st.sampled_from(list(Operator))
METRIC_CONDITIONS = st.one_of(
    st.builds(MetricCondition, st.sampled_from(METRICS), OPERATORS, VALUES.filter(lambda value: value is not None)),
    st.builds(
        MetricCondition, st.sampled_from(METRICS), st.sampled_from([Operator.EQUAL, Operator.NOT_EQUAL]), st.none()
    ),
)
LATENCY_CONDITIONS = st.one_of(
    st.builds(LatencyCondition, OPERATORS, st.sampled_from([0.0, 1.5, 3.0])),
    st.builds(LatencyCondition, st.sampled_from([Operator.EQUAL, Operator.NOT_EQUAL]), st.none()),
)
FILTERS = st.builds(
    RowFilter,
    outcomes=st.lists(st.sampled_from(list(RowOutcome)), max_size=2).map(tuple),
    categories=st.lists(NAMES, max_size=2).map(tuple),
    tags=st.lists(NAMES, max_size=2).map(tuple),
    case_ids=st.lists(st.sampled_from(["c0", "ac0", "%c1", "c2"]), max_size=1).map(tuple),
    repeats=st.lists(st.integers(1, 3), max_size=2).map(tuple),
    texts=st.lists(st.builds(TextCondition, st.sampled_from(list(TextField)), NEEDLES), max_size=1).map(tuple),
    metrics=st.lists(METRIC_CONDITIONS, max_size=2).map(tuple),
    latencies=st.lists(LATENCY_CONDITIONS, max_size=1).map(tuple),
)
LEAN_FILTERS = st.one_of(
    st.builds(RowFilter, texts=st.tuples(st.builds(TextCondition, st.sampled_from(list(TextField)), NEEDLES))),
    st.builds(RowFilter, metrics=st.tuples(METRIC_CONDITIONS)),
    st.builds(RowFilter, tags=st.tuples(NAMES)),
    st.builds(RowFilter, outcomes=st.tuples(st.sampled_from(list(RowOutcome)))),
    st.just(EVERY_ROW),
    FILTERS,
)
ORDERS = st.builds(
    lambda key, metric, down: RowOrder(key, metric if key is RowKey.METRIC else "", down),
    st.sampled_from(list(RowKey)),
    st.sampled_from(METRICS),
    st.booleans(),
)


def fill(
    connection: sa.Connection, cases: Sequence[Case], answers: Sequence[AnswerRecord], rows: Sequence[RowResult]
) -> None:
    """Replace the run `r` by one over some cases."""
    stored = schema.score_values, schema.results, schema.answers, schema.runs, schema.datasets, schema.dataset_cases
    for table in stored:
        connection.execute(table.delete())
    datasets.add_cases(connection, "u", 0, [(case.case_id, datasets.case_text(case)) for case in cases])
    datasets.finish_upload(connection, LOCAL, "u", DatasetRef("d", "d", len(cases)))
    record = RunRecord("r", "q", "h", {"name": "n"}, "d", 9, "0.1.0", "2026-05-01T00:00:00.000Z", "local")
    runs.create_run(connection, record)
    results.put_rows(connection, "r", answers, rows, {})


def walk(connection: sa.Connection, query: RowQuery, size: int) -> list[RowResult]:
    """Return all rows of a query, read in pages."""
    found: list[RowResult] = []
    position: Position | None = None
    while True:
        page, position = history.read_page(connection, LOCAL, "r", query, position, size)
        found += map(result_from_wire, page)
        if position is None:
            return found


def keys(rows: Sequence[RowResult]) -> list[tuple[int, int]]:
    return [(row.case_index, row.repeat) for row in rows]


def test_the_database_finds_what_the_reference_finds(open_store: Callable[[], Database], engine: sa.Engine) -> None:
    """Pages in any order hold the rows that `matches` accepts, each once; counts, facets and neighbours agree."""
    open_store().close()
    examples = 50 if engine.dialect.name == "sqlite" else 25  # which take six times as long

    @settings(max_examples=examples)
    @given(stored_rows(), LEAN_FILTERS, ORDERS, st.integers(1, 3))
    def check(
        stored: tuple[list[Case], list[AnswerRecord], list[RowResult]], wanted: RowFilter, order: RowOrder, size: int
    ) -> None:
        with engine.connect() as connection:
            fill(connection, *stored)
            everything = walk(connection, RowQuery(), 100)
            assert len(everything) == len(stored[2])
            due = [row for row in sort_rows(everything, order) if matches(wanted, row)]
            query = RowQuery(wanted, order)
            assert keys(walk(connection, query, size)) == keys(due)
            assert found_rows.count_rows(connection, LOCAL, "r", query) == len(due)
            check_facets(found_rows.count_facets(connection, LOCAL, "r", query), due)
            for index in range(len(stored[0])):
                around = found_rows.find_neighbours(connection, LOCAL, "r", query, index)
                assert around == neighbours(everything, due, order, index)
            connection.rollback()

    check()


def test_an_answer_is_found_in_its_own_repeat_and_case(open_store: Callable[[], Database], engine: sa.Engine) -> None:
    """A text of one answer finds no other repeat, nor the same repeat of another case."""
    open_store().close()
    cases = [Case(f"c{index}", (Turn("q"),)) for index in range(2)]
    places = [(case, repeat) for case in range(2) for repeat in (1, 2)]
    answers = [AnswerRecord(*place, 0, AgentResponse(text=f"<{place}>")) for place in places]
    rows = [RowResult(f"c{case}", case, repeat, "", AgentStatus.SUCCESS, True, (), 1.0, "") for case, repeat in places]
    with engine.connect() as connection:
        fill(connection, cases, answers, rows)
        for field in (TextField.ANSWER, TextField.ANY):
            for place in places:
                query = RowQuery(RowFilter(texts=(TextCondition(field, f"<{place}>"),)))
                assert keys(walk(connection, query, 9)) == [place]
                assert found_rows.count_rows(connection, LOCAL, "r", query) == 1
        connection.rollback()


def test_what_separates_turns_is_found_only_where_a_turn_has_it(
    open_store: Callable[[], Database], engine: sa.Engine
) -> None:
    """Questions of a conversation are stored as one text; no search finds where two of them meet."""
    open_store().close()
    mark = datasets.BETWEEN_TURNS
    cases = [Case("c0", (Turn("ab"), Turn("bc"))), Case("c1", (Turn(f"ab{mark}bc"), Turn("x")))]
    rows = [RowResult(case.case_id, i, 1, "", AgentStatus.SUCCESS, True, (), 1.0, "") for i, case in enumerate(cases)]
    with engine.connect() as connection:
        fill(connection, cases, [], rows)
        for text, found in ((mark, [1]), (f"B{mark}b", [1]), (f"c{mark}", []), ("ab", [0, 1])):
            query = RowQuery(RowFilter(texts=(TextCondition(TextField.QUESTION, text),)))
            assert [case for case, _ in keys(walk(connection, query, 9))] == found
        connection.rollback()


def test_a_replaced_row_is_sorted_by_its_new_value(open_store: Callable[[], Database], engine: sa.Engine) -> None:
    """A row that is retried leaves no value behind; the values of other rows and repeats stay."""
    open_store().close()
    rows = [RowResult("c0", 0, repeat, "", AgentStatus.SUCCESS, True, scored(value), 1.0, "")
            for repeat, value in enumerate((0.1 + 0.2, 0.5, None), 1)]  # fmt: skip
    query = RowQuery(order=RowOrder(RowKey.METRIC, "m"))
    with engine.connect() as connection:
        fill(connection, [Case("c0", (Turn("q"),))], [], rows)
        results.remove_rows(connection, "r", rows[:1])
        assert keys(walk(connection, query, 1)) == [(0, 2), (0, 3)]
        results.put_rows(connection, "r", [], [dataclasses.replace(rows[0], scores=scored(0.75))], {})
        assert keys(walk(connection, query, 1)) == [(0, 2), (0, 1), (0, 3)]
        connection.rollback()


def scored(value: float | None) -> tuple[Score, ...]:
    status = ScoreStatus.SKIPPED if value is None else ScoreStatus.SCORED
    return (Score("m", status, value), Score("n", ScoreStatus.SCORED, 0.0))


def check_facets(facets: RowFacets, due: Sequence[RowResult]) -> None:
    assert facets.outcomes == Counter(map(outcome_of, due))
    assert facets.categories == Counter(row.category for row in due)
    assert facets.tags == Counter(tag for row in due for tag in row.tags)
    assert facets.repeats == Counter(row.repeat for row in due)


def neighbours(
    everything: Sequence[RowResult], due: Sequence[RowResult], order: RowOrder, index: int
) -> tuple[str, str]:
    """Return the cases around one.

    It stands where its own rows do, whether they meet the filter or not; without rows last, in dataset order by index.
    """
    own = [row for row in everything if row.case_index == index]
    others = [row for row in due if row.case_index != index]
    without_value = RowResult("", index, 1, "", AgentStatus.SUCCESS, None, (), None, "")
    if own or order.key is not RowKey.CASE:
        placed = [row.case_index for row in sort_rows([*others, *(own or [without_value])], order)]
    else:
        placed = [*(row.case_index for row in sort_rows(others, order)), index]
    placed = list(dict.fromkeys(placed))
    names = {row.case_index: row.case_id for row in others}
    at = placed.index(index)
    before = names[placed[at - 1]] if at else ""
    after = names[placed[at + 1]] if at + 1 < len(placed) else ""
    return before, after
