"""Page tokens over the wire: what was not made for this very query, by this installation, is refused."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest

from assay.errors import ResumeExpiredError
from assay.model.answers.agent_response import AgentResponse, AgentStatus
from assay.model.case import Case, Turn
from assay.rpc.status import translated
from assay.v1 import row_pb2, run_pb2, run_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.run import RunSettings

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSettings]
    Stub = run_pb2_grpc.RunServiceAsyncStub

RIGHT = AgentResponse(AgentStatus.SUCCESS, text="yes")


def cases() -> list[Case]:
    """Return cases with recorded answers, three of which pass."""
    return [Case(case_id=f"c{n}", turns=(Turn(input="?", references=("yes",)),), recorded=RIGHT) for n in range(3)]


def stub_of(client: Client) -> Stub:
    return run_pb2_grpc.RunServiceStub(client._channel)


async def two_runs(client: Client, settings: RunSettings) -> list[str]:
    """Return the ids of two runs that have ended, with three results each."""
    dataset = await client.upload_dataset(cases(), name="d")
    made = [(await client.create_run(settings, dataset.dataset_id)).run_id for _ in range(2)]
    for run_id in made:
        async for _ in client.watch_run(run_id):
            pass
    return made


async def page(stub: Stub, run_id: str, token: str = "", *, failed_only: bool = False) -> row_pb2.ListResultsResponse:
    """Return one result and the token of the next."""
    request = row_pb2.ListResultsRequest(run_id=run_id, page_size=1, page_token=token, failed_only=failed_only)
    with translated():
        return await stub.ListResults(request)


def unsigned(*parts: object) -> str:
    """Return a token as anyone could make it who knows how it is built."""
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode()


async def test_a_token_continues_its_own_query_alone(serve: Serve, settings_of: SettingsOf) -> None:
    """That of one run is refused for another, with another filter and by another method; its own takes it."""
    async with serve() as client:
        first, second = await two_runs(client, settings_of())
        stub = stub_of(client)
        token = (await page(stub, first)).next_page_token
        assert [result.case_id for result in (await page(stub, first, token)).results] == ["c1"]
        for run_id, failed_only in ((second, False), (first, True)):
            with pytest.raises(ResumeExpiredError):
                await page(stub, run_id, token, failed_only=failed_only)
        with pytest.raises(ResumeExpiredError), translated():
            await stub.ListRuns(run_pb2.ListRunsRequest(page_token=token))
        runs_token = (await stub.ListRuns(run_pb2.ListRunsRequest(page_size=1))).next_page_token
        with pytest.raises(ResumeExpiredError):
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
            with pytest.raises(ResumeExpiredError):
                await page(stub, run_id, changed)


async def test_tokens_outlive_the_process_and_hold_at_every_other(serve: Serve, settings_of: SettingsOf) -> None:
    """The key is the installation's: another process at the same database takes a token as its own."""
    async with serve() as client:
        run_id = (await two_runs(client, settings_of()))[0]
        token = (await page(stub_of(client), run_id)).next_page_token
    async with serve() as client:
        assert [result.case_id for result in (await page(stub_of(client), run_id, token)).results] == ["c1"]


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
        with pytest.raises(ResumeExpiredError):
            await page(stub_of(client), run_id, token)
        with pytest.raises(ResumeExpiredError), translated():
            await stub_of(client).ListRuns(run_pb2.ListRunsRequest(page_token=token))
