"""Rows found over the wire, on both databases: filters, orders, totals, facets, one case; what is refused, and how."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.services.ended_runs import await_end

from assay.errors import DeadlineError, InvalidInputError, NotFoundError
from assay.filters.conditions import quoted
from assay.filters.pages import RowFacets
from assay.filters.row_filter import EVERY_ROW, FAILING_ROWS, RowOutcome
from assay.filters.row_text import parse_row_order
from assay.model.answers.agent_response import AgentError, AgentErrorKind, AgentResponse, AgentStatus
from assay.model.case import Case, Turn
from assay.model.run import DatasetRef, RowResult, Score, ScoreStatus
from assay.model.scope import LOCAL
from assay.model.views import RowView
from assay.rpc.status import translated
from assay.storage.time_limits import time_limit
from assay.v1 import row_pb2 as pb
from assay.v1 import run_pb2_grpc
from assay_orchestrator.store.rows import found_rows, results
from assay_orchestrator.store.rows.found_rows import RowQuery
from assay_orchestrator.store.runs import datasets, runs
from assay_orchestrator.store.runs.runs import RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    import sqlalchemy as sa

    from assay.client.client import Client
    from assay.model.run import RunSpec
    from assay.storage.database import Database

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSpec]

HOSTILE = "100%_\\ \"' [x]^ \u202e\nПривет"


def case(index: int, answer: AgentResponse, **changes: Any) -> Case:
    made = Case(f"c{index}", (Turn(f"question {index}", references=("yes",)),), recordings=((answer,),))
    return dataclasses.replace(made, **changes)


def cases() -> list[Case]:
    """Return six cases: two pass, two fail, one has an agent error, one no reference and so no verdict."""
    broken = AgentResponse(AgentStatus.ERROR, error=AgentError(AgentErrorKind.RAISED, "broke"))
    return [
        case(0, AgentResponse(text="yes", latency_ms=30.0), category="a", tags=("x", "y"), weight=2.0),
        case(1, AgentResponse(text="no", latency_ms=10.0), category="a", tags=("x",), metadata={"id": 7}),
        case(2, broken, category="b"),
        case(3, AgentResponse(text="Yes", latency_ms=20.0), category="b", contexts=("passage",)),
        case(4, AgentResponse(text=HOSTILE, latency_ms=20.0)),
        case(5, AgentResponse(text="maybe"), turns=(Turn("nothing to compare with"),)),
    ]


async def finished_run(client: Client, settings: RunSpec) -> str:
    """Return the id of a run over `cases` that has ended."""
    dataset = await client.upload_dataset(cases(), name="d")
    run_id = (await client.create_run(settings, dataset.dataset_id)).run_id
    await await_end(client, run_id)
    return run_id


async def found(client: Client, run_id: str, where: str = "", order_by: str = "", **more: Any) -> list[str]:
    return [row.case_id async for row in client.list_rows(run_id, where=where, order_by=order_by, **more)]


async def test_rows_are_filtered_sorted_and_counted(serve: Serve, settings_of: SettingsOf) -> None:
    """Conditions hold together with each other and with the older ones; totals and facets are of what they find."""
    async with serve() as client:
        run_id = await finished_run(client, settings_of())
        everything = {row.case_id: row async for row in client.list_rows(run_id)}
        passed = [name for name, row in everything.items() if row.passed and row.status is not AgentStatus.ERROR]
        assert await found(client, run_id, "passed") == passed
        assert await found(client, run_id, "agent_error") == ["c2"]
        assert await found(client, run_id, "no_verdict") == ["c5"]
        assert await found(client, run_id, "category:a tag:y") == ["c0"]
        assert await found(client, run_id, "exact_match<1 category:a") == ["c1"]
        assert await found(client, run_id, "exact_match==none") == ["c5"]
        assert await found(client, run_id, "latency>=20ms", "-latency") == ["c0", "c3", "c4"]
        assert await found(client, run_id, f"category:a {FAILING_ROWS}") == ["c1"]
        assert await found(client, run_id, FAILING_ROWS) == ["c1", "c2", "c4"]
        assert await found(client, run_id, "category:a case:c3") == []
        assert await found(client, run_id, "case:c4,c1", "-dataset") == ["c4", "c1"]
        assert await found(client, run_id, "question~NOTHING") == ["c5"]
        lean = [row async for row in client.list_rows(run_id, where="passed", view=RowView.BASIC)]
        assert [(row.response, row.input) for row in lean] == [(None, "")] * len(lean)

        page = await client.row_page(
            run_id, where="category:a,b", page_size=1, include_total_count=True, include_facets=True
        )  # fmt: skip
        assert (len(page.results), page.total_count) == (1, 4)
        assert page.facets is not None
        assert page.facets.categories == {"a": 2, "b": 2}
        assert page.facets.tags == {"x": 2, "y": 1}
        assert page.facets.repeats == {1: 4}
        assert page.facets.outcomes[RowOutcome.AGENT_ERROR] == 1
        empty = await client.row_page(
            run_id, where="category:zzz", order_by="exact_match", include_total_count=True, include_facets=True
        )  # fmt: skip
        assert (empty.results, empty.next_page_token, empty.total_count) == ([], "", 0)
        assert empty.facets == RowFacets()


@pytest.mark.parametrize(
    "text",
    ["100%", "%_", "_\\", '" ', "' [", "[x]^", "\u202e\n", "привет", "Y", "%%", "[^x]", "\\\\", "x\0", "' OR 1=1 --"],
)
async def test_hostile_texts_are_searched_as_they_are(serve: Serve, settings_of: SettingsOf, text: str) -> None:
    """No sign of a text is a wildcard, an escape or SQL; upper and lower case are the same."""
    async with serve() as client:
        run_id = await finished_run(client, settings_of())
        wanted = f"answer~{quoted(text)}"
        answers = {"c0": "yes", "c1": "no", "c3": "Yes", "c4": HOSTILE, "c5": "maybe"}
        assert await found(client, run_id, wanted) == [
            name for name, answer in answers.items() if text.lower() in answer.lower()
        ]


async def test_what_cannot_be_searched_is_refused_with_every_problem(serve: Serve, settings_of: SettingsOf) -> None:
    """The server reads filter and order itself, and names each problem with its position and field."""
    async with serve() as client:
        run_id = await finished_run(client, settings_of())
        stub = run_pb2_grpc.RunServiceStub(client._channel)
        request = pb.ListRowsRequest(run_id=run_id, filter="exact_mach<1 faild answer~x latency<fast", order_by="rouge")
        with pytest.raises(InvalidInputError) as refusal, translated():
            await stub.ListRows(request)
        assert [(problem.field, problem.message.partition("; ")[0]) for problem in refusal.value.problems] == [
            ("filter", "character 1: unknown metric 'exact_mach'"),
            ("filter", "character 14: unknown word 'faild'"),
            ("filter", "character 29: 'fast' is no duration: write a number with ms, s, m or h, such as 500ms"),
            ("order_by", "unknown metric 'rouge'"),
        ]
        assert "metrics of this run: exact_match, latency" in str(refusal.value)
        with (
            pytest.raises(InvalidInputError, match="filter: character 1: the filter has 20001 characters"),
            translated(),
        ):
            await stub.GetCase(pb.GetCaseRequest(run_id=run_id, case_id="c1", filter=" " * 20_001))


async def test_tokens_belong_to_filter_and_order(serve: Serve, settings_of: SettingsOf) -> None:
    """A token continues its own query alone, whatever differs."""
    async with serve() as client:
        run_id = await finished_run(client, settings_of())
        where, order = "category:a,b", "-latency"
        token = (await client.row_page(run_id, where=where, order_by=order, page_size=1)).next_page_token
        rest = await client.row_page(run_id, where=where, order_by=order, page_token=token)
        assert [row.case_id for row in rest.results] == ["c3", "c1", "c2"]
        for other, by in (("", order), (where, ""), (where, "latency"), (f"failed {where}", order)):
            with pytest.raises(InvalidInputError, match="page_token: does not belong to this query"):
                await client.row_page(run_id, where=other, order_by=by, page_token=token)


async def test_a_case_comes_with_its_rows_and_neighbours(serve: Serve, settings_of: SettingsOf) -> None:
    """The case is as it was uploaded; neighbours follow filter and order, and the case need not meet the filter."""
    async with serve() as client:
        run_id = await finished_run(client, dataclasses.replace(settings_of(), repeats=2))
        detail = await client.get_case(run_id, "c1")
        assert detail.case == cases()[1]
        assert (detail.case_index, detail.previous_case_id, detail.next_case_id) == (1, "c0", "c2")
        answers = [row.response.text if row.response is not None else "" for row in detail.results]
        assert [(row.repeat, text) for row, text in zip(detail.results, answers, strict=True)] == [
            (1, "no"),
            (2, "no"),
        ]
        around = await client.get_case(run_id, "c3", where="category:a", order_by="-dataset")
        assert (around.previous_case_id, around.next_case_id) == ("", "c1")
        slowest = await client.get_case(run_id, "c0", order_by="-latency")
        assert (slowest.previous_case_id, slowest.next_case_id) == ("", "c3")
        with pytest.raises(NotFoundError) as refusal:
            await client.get_case(run_id, "c9")
        assert refusal.value.reason == "CASE_NOT_FOUND"
        with pytest.raises(NotFoundError) as refusal:
            await client.get_case("none", "c1")
        assert refusal.value.reason == "RUN_NOT_FOUND"


async def test_a_run_without_rows_has_none_to_find(serve: Serve, settings_of: SettingsOf) -> None:
    """A run that has not begun has empty pages and zero counts, and its cases have no neighbours."""
    async with serve() as client:
        dataset = await client.upload_dataset(cases(), name="d")
        run_id = (await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)).run_id
        page = await client.row_page(
            run_id, where="failed", order_by="-exact_match", include_total_count=True, include_facets=True
        )  # fmt: skip
        assert (page.results, page.total_count, page.facets) == ([], 0, RowFacets())
        detail = await client.get_case(run_id, "c1", order_by="exact_match")
        assert (detail.case.case_id, detail.results, detail.previous_case_id, detail.next_case_id) == ("c1", [], "", "")


def store_run(connection: sa.Connection, stored: Sequence[Case]) -> None:
    """Store a run `r` over some cases."""
    datasets.add_cases(connection, "u", 0, [(each.case_id, datasets.case_text(each)) for each in stored])
    datasets.finish_upload(connection, LOCAL, "u", DatasetRef("d", "d", len(stored)))
    record = RunRecord("r", "q", "h", {"name": "n"}, "d", 40, "0.1.0", "2026-05-01T00:00:00.000Z", "local")
    runs.create_run(connection, record)


@pytest.mark.parametrize("order_by", ["", "-dataset", "latency", "-exact_match", "case"])
async def test_pages_of_a_growing_run_lose_and_repeat_no_row(
    open_store: Callable[[], Database], engine: sa.Engine, order_by: str
) -> None:
    """Rows that were there when the first page was read come exactly once; rows stored since at most once."""
    open_store().close()
    order = parse_row_order(order_by)

    def row(index: int) -> RowResult:
        score = Score("exact_match", ScoreStatus.SCORED, float(index % 3))
        return RowResult(f"c{index:02}", index, 1, "", AgentStatus.SUCCESS, True, (score,), float(index % 5), "")

    with engine.begin() as connection:
        plain = [Case(f"c{index:02}", (Turn("q"),)) for index in range(40)]
        store_run(connection, plain)
        results.put_rows(connection, "r", [], [row(index) for index in range(0, 40, 4)], {})
    begun = {(index, 1) for index in range(0, 40, 4)}
    seen: list[tuple[int, int]] = []
    after, added = None, iter(index for index in range(40) if index % 4)
    while True:
        with engine.begin() as connection:
            page: Sequence[Any] = found_rows.find_rows(connection, LOCAL, "r", RowQuery(EVERY_ROW, order), after, 3)
            seen += [(result.case_index, result.repeat) for result, _ in page]
            if len(page) < 3:
                break
            after = page[-1][1]
            results.put_rows(connection, "r", [], [row(index) for _, index in zip(range(2), added, strict=False)], {})
    assert len(seen) == len(set(seen))
    assert begun <= set(seen)


async def test_a_query_that_takes_too_long_is_interrupted(
    open_store: Callable[[], Database], engine: sa.Engine
) -> None:
    """The limit ends a statement with a sentence, and the connection serves the next one."""
    endless = {
        "sqlite": "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
        "postgresql": "SELECT pg_sleep(600)",
    }
    database = open_store()

    def slow(connection: sa.Connection) -> None:
        with time_limit(connection, 0.05, "search for less"):
            connection.exec_driver_sql(endless[engine.dialect.name]).all()

    try:
        with pytest.raises(DeadlineError, match=r"^the query took longer than 0.05 s: search for less$") as refusal:
            await database.read(slow)
        assert refusal.value.reason == "QUERY_TIMEOUT"
        assert await database.read(lambda c: c.exec_driver_sql("SELECT 1").scalar_one()) == 1
    finally:
        database.close()
