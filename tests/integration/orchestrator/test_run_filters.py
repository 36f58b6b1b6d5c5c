"""Listing runs by id prefix, name, labels and state, page by page, and the page tokens of every list."""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.services.ended_runs import await_end

from assay.client.run_references import find_run_id
from assay.errors import InvalidInputError, NotFoundError, SpecError
from assay.filters.run_filter import RunFilter
from assay.model.answers.agent_response import AgentResponse, AgentStatus
from assay.model.case import Case, Turn
from assay.model.run import CaseSelection, DatasetRef, RunSpec
from assay.model.scope import LOCAL
from assay.model.views import RunView
from assay.rpc.status import translated
from assay.v1 import row_pb2, run_pb2, run_pb2_grpc
from assay_orchestrator.runs.run_lists import RunLists, RunQuery
from assay_orchestrator.store.runs import datasets, runs
from assay_orchestrator.store.runs.runs import RunRecord

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    import sqlalchemy as sa

    from assay.client.client import Client
    from assay.storage.database import Database

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSpec]
    Stub = run_pb2_grpc.RunServiceAsyncStub


async def test_runs_are_found_by_all_conditions_page_by_page(
    serve_at: Callable[..., AbstractAsyncContextManager[Client]],
    tmp_path: Path,
    settings_of: Callable[..., RunSpec],
) -> None:
    """Each page holds as many runs as were asked for while there are more, however few of those read match."""
    async with serve_at(tmp_path) as client:
        dataset = await client.upload_dataset([Case("c", (Turn("q", references=("a",)),))], name="d")
        ids = []
        for index in range(12):
            marked = dataclasses.replace(
                settings_of("python", "m:f"),
                name="third" if index % 3 == 0 else "A%_",
                labels={"even": str(index % 2 == 0), "all": ""},
            )
            ids.append((await client.create_run(marked, dataset.dataset_id)).run_id)
        await client.cancel_run(ids[6])

        async def found(where: str = "", limit: int = 50) -> list[int]:
            return [ids.index(run.run_id) for run in await client.list_runs(limit, where=where)]

        assert await found("name:third") == [9, 6, 3, 0]
        assert await found("name:third", 3) == [9, 6, 3]
        assert await found("label:even=True label:all= name:third") == [6, 0]
        assert await found("label:all=x") == await found("label:none=") == []
        assert await found("state:cancelled") == [6]
        assert await found(f"run:{ids[4][:-1]}") == [4]
        assert await found("run:A%") == await found("run:THIRD") == []
        assert await found() == list(range(11, -1, -1))

        assert await find_run_id(client, "latest") == ids[11]
        assert await find_run_id(client, ids[3][:-2]) == await find_run_id(client, ids[3]) == ids[3]
        assert await find_run_id(client, "zzz") == "zzz"
        assert await find_run_id(client, "") == ""
        with pytest.raises(InvalidInputError, match=rf"^'third' begins the ids of several runs: {ids[9]}, {ids[6]}, "):
            await find_run_id(client, "third")


async def test_latest_of_no_runs_is_a_sentence(
    serve_at: Callable[..., AbstractAsyncContextManager[Client]], tmp_path: Path
) -> None:
    """Before the first run there is no latest one."""
    async with serve_at(tmp_path) as client:
        with pytest.raises(NotFoundError, match="no runs yet"):
            await find_run_id(client, "latest")


async def test_labels_notes_and_selections_are_bounded(
    serve_at: Callable[..., AbstractAsyncContextManager[Client]],
    tmp_path: Path,
    settings_of: Callable[..., RunSpec],
) -> None:
    """The orchestrator checks what any client sends, and says all of it at once."""
    async with serve_at(tmp_path) as client:
        dataset = await client.upload_dataset([Case("c", (Turn("q", references=("a",)),))], name="d")
        wrong = dataclasses.replace(
            settings_of("python", "m:f"),
            labels={"-k": "", "k": "x\x1b"},
            note="n" * 2001,
            selection=CaseSelection(cases=["c" * 200] * 3000),
        )
        with pytest.raises(SpecError) as refusal:
            await client.create_run(wrong, dataset.dataset_id)
        assert sorted(problem.field for problem in refusal.value.problems) == [
            "labels",
            "labels.k",
            "note",
            "selection",
        ]


async def test_damaged_settings_break_no_search(open_store: Callable[[], Database]) -> None:
    """Stored settings that cannot be read have neither name nor labels."""
    database = open_store()
    damaged: list[Any] = [
        None,
        [],
        {},
        {"labels": 3},
        {"name": 3, "labels": {"k": ["v"]}},
        {"name": "n", "labels": {"k": "v"}},
    ]

    def fill(connection: sa.Connection) -> None:
        datasets.add_cases(connection, "u", 0, [("c", datasets.case_text(Case("c", (Turn("q"),))))])
        datasets.finish_upload(connection, LOCAL, "u", DatasetRef("d", "d", 1))
        for index, spec in enumerate(damaged):
            run = RunRecord(f"r{index}", f"q{index}", "h", spec, "d", 1, "0.1.0", f"2026-05-0{index + 1}", "local")
            runs.create_run(connection, run)

    async def found(wanted: RunFilter) -> list[str]:
        query = RunQuery(wanted, with_total=True)
        page = await RunLists(database, lambda run_id: "").read(LOCAL, query, None, 9)
        assert page.total_count == len(page.runs)
        return [run.run_id for run in page.runs]

    try:
        await database.write(fill)
        assert await found(RunFilter(labels={"k": "v"})) == ["r5"]
        assert await found(RunFilter(name="n")) == ["r5"]
        assert await found(RunFilter()) == ["r5", "r4", "r3", "r2", "r1", "r0"]
    finally:
        database.close()


async def test_runs_are_sorted_counted_and_shown_with_figures(
    serve: Callable[..., AbstractAsyncContextManager[Client]], settings_of: Callable[..., RunSpec]
) -> None:
    """Pages of any order hold each run once, runs without a value last; figures come without further calls."""
    right, wrong = AgentResponse(text="yes"), AgentResponse(text="no")
    async with serve() as client:
        ids = []
        for name, answers in (("b", [right, wrong]), ("a", [right, right]), ("c", [wrong, wrong])):
            cases = [
                Case(f"c{n}", (Turn("?", references=("yes",)),), recordings=((each,),))
                for n, each in enumerate(answers)
            ]
            dataset = await client.upload_dataset(cases, name=f"{name}.json")
            settings = dataclasses.replace(settings_of(), name=name, team=f"team-{name}")
            ids.append((await client.create_run(settings, dataset.dataset_id)).run_id)
            await await_end(client, ids[-1])
        hosted = dataclasses.replace(settings_of("python", "m:f"), name="d")
        ids.append((await client.create_run(hosted, dataset.dataset_id)).run_id)

        async def found(where: str = "", order: str = "") -> list[int]:
            token, listed = "", list[int]()
            while True:
                page = await client.run_page(
                    where=where, order_by=order, page_size=1, page_token=token, include_total_count=True
                )
                listed += [ids.index(run.run_id) for run in page.runs]
                token = page.next_page_token
                if not token:
                    assert page.total_count == len(listed)
                    return listed

        assert await found() == await found(order="-created") == [3, 2, 1, 0]
        assert await found(order="created") == [0, 1, 2, 3]
        assert await found(order="name") == [1, 0, 2, 3]
        assert await found(order="-pass_rate") == [1, 0, 2, 3]
        assert await found(order="pass_rate") == [2, 0, 1, 3]
        assert await found(order="ended") == [0, 1, 2, 3]
        assert await found("team:team-a,team-c") == [2, 1]
        assert await found("dataset:b.json") == await found("dataset:x,b.json since:2020-01-01") == [0]
        assert await found("until:2020-01-01") == []
        assert await found("verdict:PASS") == [1, 0]
        assert await found("verdict:FAIL pass_rate<0.5") == [2]
        assert await found("exact_match>=0.5") == await found("exact_match.pass_rate>=0.5") == [1, 0]
        assert await found("exact_match!=none", order="-exact_match") == [1, 0, 2]
        assert await found(order="exact_match") == [2, 0, 1, 3]
        assert await found("latency.p95<1h") == await found("latency.p95>=0") == []
        assert await found("pass_rate==none") == await found("rouge==none state:pending,running") == [3]
        assert await found("rouge<1") == await found("agent_errors>0") == []
        first = await client.run_page(where="team:team-a,team-c", page_size=1)
        with pytest.raises(InvalidInputError, match="page_token: does not belong to this query"):
            await client.run_page(where="team:team-a", page_token=first.next_page_token)
        with pytest.raises(InvalidInputError) as refusal, translated():
            await stub_of(client).ListRuns(run_pb2.ListRunsRequest(filter="sate:failed name:", order_by="-"))
        assert [(problem.field, problem.message) for problem in refusal.value.problems] == [
            ("filter", "character 1: unknown condition 'sate'; did you mean 'state'?"),
            ("filter", "character 18: a value is missing after ':'"),
            (
                "order_by",
                "'-' is no order: write created, ended, name, pass_rate or a metric, behind - for the largest first",
            ),
        ]

        shown = {run.spec.name: run.summary for run in await client.list_runs(view=RunView.FIGURES)}
        assert shown["d"] is None
        passing, failing = shown["a"], shown["c"]
        assert passing is not None
        assert failing is not None
        assert (passing.verdict, passing.pass_rate) == ("PASS", 1.0)
        assert (failing.verdict, failing.pass_rate) == ("FAIL", 0.0)
        assert (passing.metrics[0].metric, passing.metrics[0].value) == ("exact_match", 1.0)
        assert all(run.summary is None for run in await client.list_runs())


RIGHT = AgentResponse(AgentStatus.SUCCESS, text="yes")


def cases() -> list[Case]:
    """Return cases with recorded answers, three of which pass."""
    return [
        Case(case_id=f"c{n}", turns=(Turn(input="?", references=("yes",)),), recordings=((RIGHT,),)) for n in range(3)
    ]


def stub_of(client: Client) -> Stub:
    return run_pb2_grpc.RunServiceStub(client._channel)


async def two_runs(client: Client, settings: RunSpec) -> list[str]:
    """Return the ids of two runs that have ended, with three results each."""
    dataset = await client.upload_dataset(cases(), name="d")
    made = [(await client.create_run(settings, dataset.dataset_id)).run_id for _ in range(2)]
    for run_id in made:
        await await_end(client, run_id)
    return made


async def page(stub: Stub, run_id: str, token: str = "", *, where: str = "") -> row_pb2.ListRowsResponse:
    """Return one result and the token of the next."""
    request = row_pb2.ListRowsRequest(run_id=run_id, page_size=1, page_token=token, filter=where)
    with translated():
        return await stub.ListRows(request)


def unsigned(*parts: object) -> str:
    """Return a token as anyone could make it who knows how it is built."""
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()


async def test_a_token_continues_its_own_query_alone(serve: Serve, settings_of: SettingsOf) -> None:
    """That of one run is refused for another, with another filter and by another method; its own takes it."""
    async with serve() as client:
        first, second = await two_runs(client, settings_of())
        stub = stub_of(client)
        token = (await page(stub, first)).next_page_token
        assert [result.case_id for result in (await page(stub, first, token)).rows] == ["c1"]
        for run_id, where in ((second, ""), (first, "failed")):
            with pytest.raises(InvalidInputError, match="page_token: does not belong to this query"):
                await page(stub, run_id, token, where=where)
        with pytest.raises(InvalidInputError, match="page_token: does not belong to this query"), translated():
            await stub.ListRuns(run_pb2.ListRunsRequest(page_token=token))
        runs_token = (await stub.ListRuns(run_pb2.ListRunsRequest(page_size=1))).next_page_token
        with pytest.raises(InvalidInputError, match="page_token: does not belong to this query"):
            await page(stub, first, runs_token)


async def test_a_token_with_any_bit_changed_is_refused(serve: Serve, settings_of: SettingsOf) -> None:
    """Neither its position nor its signature can be altered, nor is there a second spelling of it."""
    async with serve() as client:
        run_id = (await two_runs(client, settings_of()))[0]
        stub = stub_of(client)
        token = (await page(stub, run_id)).next_page_token
        flipped = [
            token[:at] + chr(ord(token[at]) ^ bit) + token[at + 1 :] for at in range(len(token)) for bit in (1, 2, 4)
        ]
        for changed in [*flipped, token + "=", token + "A", token[:-1], " " + token]:
            with pytest.raises(InvalidInputError, match="page_token: does not belong to this query"):
                await page(stub, run_id, changed)


async def test_tokens_outlive_the_process_and_hold_at_every_other(serve: Serve, settings_of: SettingsOf) -> None:
    """The key is the installation's: another process at the same database takes a token as its own."""
    async with serve() as client:
        run_id = (await two_runs(client, settings_of()))[0]
        token = (await page(stub_of(client), run_id)).next_page_token
    async with serve() as client:
        assert [result.case_id for result in (await page(stub_of(client), run_id, token)).rows] == ["c1"]


@pytest.mark.parametrize(
    "token",
    [
        base64.urlsafe_b64encode(b"[" * 5_000 + b"]" * 5_000).decode(),
        unsigned("runs", "2026-01-01", "x"),
        unsigned("results/r/False", 2**63, 2**70),
        unsigned("runs", "\x00", "\x00"),
        "A" * 1_000_000,
        "é" * 10,
        "====",
        "A",
        "\x00",
    ],
    ids=["nested", "unsigned", "beyond-64-bits", "nul", "a-megabyte", "no-ascii", "padding", "short", "one-nul"],
)
async def test_what_is_no_token_is_refused_like_one_of_another_query(
    serve: Serve, settings_of: SettingsOf, token: str
) -> None:
    """Nothing in a token is read before its signature was found to be right."""
    async with serve() as client:
        run_id = (await two_runs(client, settings_of()))[0]
        with pytest.raises(InvalidInputError, match="page_token: does not belong to this query"):
            await page(stub_of(client), run_id, token)
        with pytest.raises(InvalidInputError, match="page_token: does not belong to this query"), translated():
            await stub_of(client).ListRuns(run_pb2.ListRunsRequest(page_token=token))
