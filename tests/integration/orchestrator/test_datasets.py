"""Stored datasets: identity, names with their history, pages, cases and deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.services.ended_runs import await_end
from tests.support.services.shared_installation import shared_installation

from assay.client import admin
from assay.errors import DatasetError, InvalidInputError, NotFoundError, PermissionDeniedError, WrongStateError
from assay.identity.quotas import Quota
from assay.identity.rights import Role
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Assertion, Case, ExpectedTool, Turn
from assay.rpc.status import translated
from assay.v1 import dataset_pb2, dataset_pb2_grpc
from assay.wire.pages import MAX_PAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from assay.client.client import Client
    from assay.model.run import RunSpec

    Serve = Callable[[], AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSpec]


def cases(count: int, text: str = "q") -> list[Case]:
    """Return cases with recorded answers."""
    return [
        Case(f"c{number}", (Turn(f"{text}{number}", references=("a",)),), recordings=((AgentResponse(text="a"),),))
        for number in range(count)
    ]


async def test_a_dataset_is_its_cases(serve: Serve) -> None:
    """Equal cases have one id under any name and note; their order and every field count."""
    async with serve() as client:
        first = await client.upload_dataset(cases(3), name="a", note="drawn by hand")
        other = await client.upload_dataset(cases(3), name="b")
        assert (first.name, first.note, first.case_count) == ("a", "drawn by hand", 3)
        assert (other.name, other.note, other.dataset_id) == ("b", "", first.dataset_id)
        changed = [cases(3)[::-1], cases(2), cases(3, "r")]
        ids = {(await client.upload_dataset(each, name="a")).dataset_id for each in changed}
        assert len(ids | {first.dataset_id}) == 4
        assert (await client.get_dataset(first.dataset_id)).name == "b"


async def test_a_name_moves_and_keeps_its_history(serve: Serve) -> None:
    """The newest upload is the current version; a version appears once, and keeps its note unless it gets another."""
    async with serve() as client:
        old = await client.upload_dataset(cases(1), name="qa", note="first", parent_ids=["imported"])
        new = await client.upload_dataset(cases(2), name="qa", parent_ids=[old.dataset_id])
        await client.upload_dataset(cases(3), name="other")
        versions = await client.list_datasets(name="qa")
        assert [(each.dataset_id, each.parent_ids) for each in versions] == [
            (new.dataset_id, (old.dataset_id,)),
            (old.dataset_id, ("imported",)),
        ]
        back = await client.upload_dataset(cases(1), name="qa")
        assert (back.note, back.parent_ids, back.created_at) == ("first", ("imported",), old.created_at)
        assert back.uploaded_at > new.uploaded_at
        assert [each.dataset_id for each in await client.list_datasets(name="qa")] == [old.dataset_id, new.dataset_id]
        assert (await client.upload_dataset(cases(1), name="qa", note="second")).note == "second"
        assert [each.name for each in await client.list_datasets()] == ["qa", "other", "qa"]
        assert await client.list_datasets(name="no such name") == []


async def test_a_header_that_is_wrong_is_refused(serve: Serve) -> None:
    """Name, note and parents are refused together, each with its field."""
    async with serve() as client:
        with pytest.raises(DatasetError) as refusal:
            await client.upload_dataset(cases(1), name="", note="x" * 2001, parent_ids=["ok", "a\nb"])
        fields = [problem.field for problem in refusal.value.problems]
        assert fields == ["header.name", "header.note", "header.parent_ids[1]"]


async def test_datasets_are_paged(serve: Serve) -> None:
    """Pages follow one another without gaps; a token continues its own query alone."""
    async with serve() as client:
        for number in range(5):
            await client.upload_dataset(cases(number + 1), name=f"d{number % 2}")
        stub = dataset_pb2_grpc.DatasetServiceStub(client._channel)
        seen, token = [], ""
        while True:
            page = await stub.ListDatasets(dataset_pb2.ListDatasetsRequest(page_size=2, page_token=token))
            seen += [each.case_count for each in page.datasets]
            if not (token := page.next_page_token):
                break
            last = token
        assert seen == [5, 4, 3, 2, 1]
        with pytest.raises(InvalidInputError), translated():
            await stub.ListDatasets(dataset_pb2.ListDatasetsRequest(name="d0", page_token=last))


async def test_cases_come_back_as_they_were(serve: Serve) -> None:
    """Every page fits in a message, and together they are the cases that were uploaded."""
    tool = ExpectedTool("search", {"q": [1]}, "unordered")
    talk = Case(
        "talk",
        (Turn("one", expected_tools=(tool,)), Turn("two", references=("r",))),
        assertions=(Assertion("contains", "a", group="tone"),),
        human_labels={"good": True},
        recordings=((AgentResponse(text="1"), AgentResponse(text="2")), (AgentResponse(text="3"),) * 2),
    )
    large = [Case(f"large{n}", (Turn("x" * 900_000),)) for n in range(6)]
    uploaded = [talk, *large, *cases(1200)]
    async with serve() as client:
        stored = await client.upload_dataset(uploaded, name="d")
        assert [case async for case in client.list_cases(stored.dataset_id)] == uploaded
        stub = dataset_pb2_grpc.DatasetServiceStub(client._channel)
        page = await stub.ListCases(dataset_pb2.ListCasesRequest(dataset_id=stored.dataset_id))
        assert (len(page.cases), page.ByteSize() < MAX_PAGE_BYTES + 1000) == (4, True)
        small = await client.upload_dataset(cases(3), name="d")
        whole = await stub.ListCases(dataset_pb2.ListCasesRequest(dataset_id=small.dataset_id, page_size=3))
        assert (len(whole.cases), whole.next_page_token) == (3, "")


async def test_a_used_dataset_is_not_deleted(serve: Serve, settings_of: SettingsOf) -> None:
    """The refusal names the runs; without runs, the cases and every name of the dataset go."""
    async with serve() as client:
        stored = await client.upload_dataset(cases(3), name="a")
        await client.upload_dataset(cases(3), name="b")
        run = await client.create_run(settings_of(), stored.dataset_id)
        await await_end(client, run.run_id)
        assert (run.dataset.name, (await client.get_dataset(stored.dataset_id)).run_count) == ("b", 1)
        await client.upload_dataset(cases(3), name="c")
        assert (await client.get_run(run.run_id)).dataset.name == "b", "a run keeps the name that it was created with"
        for validate_only in (True, False):
            with pytest.raises(WrongStateError, match=f"used by 1 run: {run.run_id}") as refusal:
                await client.delete_dataset(stored.dataset_id, validate_only=validate_only)
            assert refusal.value.reason == "DATASET_IN_USE"
        await client.delete_run(run.run_id)
        assert (await client.delete_dataset(stored.dataset_id, validate_only=True)).case_count == 3
        assert (await client.delete_dataset(stored.dataset_id)).name == "c"
        assert await client.list_datasets() == []
        for call in (client.get_dataset, client.delete_dataset):
            with pytest.raises(NotFoundError, match="there is no dataset"):
                await call(stored.dataset_id)


async def test_roles_and_quotas_of_datasets(tmp_path: Path) -> None:
    """A viewer reads datasets and deletes none; equal cases count once, and deleted cases not at all."""
    async with shared_installation(tmp_path) as shared:
        runner, viewer = await shared.member("search", Role.RUNNER), await shared.member("search", Role.VIEWER)
        operator = await shared.member("ops", Role.OPERATOR)

        async def used() -> int:
            [usage] = await admin.list_team_usage(operator, "search")
            return usage.used[Quota.STORED_BYTES]

        stored = await runner.upload_dataset(cases(2, "ü"), name="a")
        assert await used() == stored.size_bytes
        await runner.upload_dataset(cases(2, "ü"), name="b")
        assert await used() == stored.size_bytes
        assert [case async for case in viewer.list_cases(stored.dataset_id)] == cases(2, "ü")
        assert len(await viewer.list_datasets()) == 2
        with pytest.raises(PermissionDeniedError):
            await viewer.delete_dataset(stored.dataset_id)
        await runner.delete_dataset(stored.dataset_id)
        assert await used() == 0
