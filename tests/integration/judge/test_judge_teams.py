"""Teams at the judge: what one has paid for is neither found nor used up by another; what is older is found still."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.judge.conftest import ALLOWED, GOOD, KEY, PRICES, Judge

from assay.judge.v1 import judge_pb2, judge_pb2_grpc
from assay.model.scope import Scope
from assay.rpc.channel import open_channel
from assay.rpc.server import RpcServer
from assay.testing.judges import says, user_of
from assay_judge.batches.store import BatchStore
from assay_judge.judges import JudgeChoice
from assay_judge.resources import open_service
from assay_judge.service import SERVICE_NAME
from assay_judge.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from assay.testing.providers import Reply, ScriptedProvider

    StartTeams = Callable[..., Any]

A, B = Scope("a"), Scope("b")
COST_USD = 0.00195  # of one verdict
QUICK: dict[str, Any] = {"batch_base_urls": ("http://127.0.0.1:*",), "batch_wait_s": 0.05, "batch_poll_s": 0.02}


@dataclasses.dataclass
class TeamJudge(Judge):
    """A judge service that one team asks."""

    scope: str = ""

    async def grade(self, *arguments: Any, **fields: Any) -> Any:
        """Return the answer to a request of the team."""
        return await super().grade(*arguments, scope=self.scope, **fields)


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of an empty PostgreSQL database; empty for a SQLite file."""
    return str(request.getfixturevalue("postgres_url")) if request.param == "postgres" else ""


@pytest.fixture
async def start_teams(
    tmp_path: Path, scripted: Callable[..., ScriptedProvider], database_url: str
) -> AsyncIterator[StartTeams]:
    """Return a function that starts one judge service, and returns a client of it for each of two teams."""
    async with AsyncExitStack() as stack:

        async def start(*replies: Any, **changes: Any) -> list[Judge]:
            provider = scripted(*replies)
            (tmp_path / "prices.yaml").write_text(PRICES)
            own: dict[str, Any] = {
                **dataclasses.asdict(JudgeChoice("openai", "judge-1", provider.openai_url, "JUDGE_KEY")),
                **dict.fromkeys(ALLOWED, ("*",)),
                "prices": tmp_path / "prices.yaml",
                "database_url": database_url,
            }
            settings = Settings(**own, **changes)
            stopping = asyncio.Event()
            service = await stack.enter_async_context(open_service(settings, {"JUDGE_KEY": KEY}, stopping))
            server = RpcServer()
            server.add(SERVICE_NAME, lambda to: judge_pb2_grpc.add_JudgeServiceServicer_to_server(service, to))
            address = await server.start(f"unix:{tmp_path}/judge.sock")
            stack.push_async_callback(server.stop, 0)
            server.set_serving(True)
            stub = judge_pb2_grpc.JudgeServiceStub(await stack.enter_async_context(open_channel(address)))
            return [TeamJudge(stub, provider, server, scope.team) for scope in (A, B)]

        yield start


async def test_a_team_pays_for_its_own_verdicts(start_teams: StartTeams) -> None:
    """The verdict that one team has paid for is a cache hit for that team alone."""
    first, second = await start_teams(says(GOOD))
    assert [(await judge.grade()).verdict.cached for judge in (first, second, first, second)] == [
        False, False, True, True
    ]  # fmt: skip
    assert len(first.provider.requests) == 2


async def test_requests_of_two_teams_at_once_are_two_calls(start_teams: StartTeams) -> None:
    """Neither joins the call of the other, also where they name the same run."""
    first, second = await start_teams(says(GOOD))
    found = await asyncio.gather(*(judge.grade(run_id="r") for judge in (first, second)))
    assert [response.verdict.cached for response in found] == [False, False]
    assert [response.spending.spent_nano_usd / 1e9 for response in found] == [pytest.approx(COST_USD)] * 2


async def test_a_team_uses_up_no_cap_of_another(start_teams: StartTeams) -> None:
    """The same run id is an account of each team: neither sees nor spends what the other has."""
    first, second = await start_teams(says(GOOD))
    assert (await first.grade(run_id="r")).spending.spent_nano_usd / 1e9 == pytest.approx(COST_USD)
    assert (await second.grade("", run_id="r")).spending.spent_nano_usd == 0


async def test_teams_order_verdicts_of_their_own(start_teams: StartTeams) -> None:
    """An order of one team is neither joined nor fetched by another."""
    first, second = await start_teams(says(GOOD), **QUICK)
    fields = {"batch": True, "run_id": "r"}
    found = await asyncio.gather(*(judge.grade(**fields) for judge in (first, second)))
    assert [response.verdict.usage.requests for response in found] == [1, 1]
    assert len(first.provider.batches.paid) == 2
    assert [(await judge.grade("", run_id="r")).spending.spent_nano_usd / 1e9 for judge in (first, second)] == [
        pytest.approx(COST_USD / 2)
    ] * 2


async def test_nothing_of_a_deleted_team_is_left(start_teams: StartTeams, tmp_path: Path, database_url: str) -> None:
    """Verdicts, accounts and orders of one team are gone, from the file as well; the other finds its own."""
    first, second = await start_teams(says(GOOD), state_dir=None if database_url else tmp_path / "state", **QUICK)
    for judge in (first, second):
        await judge.grade(f"answer of {judge.scope}-team", run_id=f"run-of-{judge.scope}-team")
        await judge.grade(f"batched answer of {judge.scope}-team", run_id=f"run-of-{judge.scope}-team", batch=True)
    request = judge_pb2.DeleteScopeRequest(scope=A.team)
    found = await first.stub.DeleteScope(request)
    assert found.deleted_counts["verdicts"] >= 1
    assert found.deleted_counts["spending"] == 1
    assert {"verdicts", "spending", "orders"} <= set(found.remaining_counts)
    assert not any(found.remaining_counts.values())
    assert not any((await first.stub.DeleteScope(request)).deleted_counts.values())
    if not database_url:
        kept = b"".join(await asyncio.to_thread(files_of, tmp_path / "state"))
        assert b"run-of-a-team" not in kept
        assert b"run-of-b-team" in kept
    asked = len(first.provider.requests)
    cached = [(await judge.grade(f"answer of {judge.scope}-team")).verdict.cached for judge in (first, second)]
    assert cached == [False, True]
    assert len(first.provider.requests) == asked + 1


@pytest.mark.parametrize("asks_again", [False, True])
async def test_the_deletion_of_a_team_leaves_no_order_of_another_without_its_verdict(
    start_teams: StartTeams, monkeypatch: pytest.MonkeyPatch, asks_again: bool
) -> None:
    """One team is deleted as results of a batch are stored, which holds orders of both: nothing comes back of it.

    What its order was answered is no verdict, so that it would be ordered again. An order that the team makes after
    its deletion is another one, which these results do not touch.
    """

    def script(request: Any) -> Reply:
        return says({**GOOD, "score": 9} if "answer of a" in user_of(request) else GOOD)(request)

    stored, is_about_to_store, may_store = BatchStore.finish, asyncio.Event(), asyncio.Event()

    async def finish(*arguments: Any) -> None:
        is_about_to_store.set()
        await may_store.wait()
        await stored(*arguments)

    monkeypatch.setattr(BatchStore, "finish", finish)
    first, second = await start_teams(script, **{**QUICK, "batch_wait_s": 60.0}, batch_requests=2)
    deleted, asking = (
        asyncio.ensure_future(judge.grade(f"answer of {judge.scope}", run_id=f"of {judge.scope}", batch=True))
        for judge in (first, second)
    )
    await is_about_to_store.wait()
    request = judge_pb2.DeleteScopeRequest(scope=A.team)
    assert (await first.stub.DeleteScope(request)).deleted_counts["orders"] == 1
    if asks_again:
        anew = await first.grade("answer of a", run_id="of a", batch=True, timeout_ms=1)
        assert anew.verdict.reason == "batch_pending"
    may_store.set()
    assert dict((await asking).verdict.scores) == {"score": 4.0}
    assert (await deleted).verdict.reason == "batch_pending"
    assert (await second.grade("", run_id="of b")).spending.spent_nano_usd / 1e9 == pytest.approx(COST_USD / 2)
    if asks_again:
        spending = (await first.grade("", run_id="of a")).spending
        assert (spending.spent_nano_usd / 1e9, spending.reserved_nano_usd > 0) == (0, True)
    found = (await first.stub.DeleteScope(request)).deleted_counts
    assert found["orders"] == asks_again
    assert any(found.values()) == asks_again


def files_of(folder: Path) -> list[bytes]:
    """Return what the files of a judge's state hold."""
    return [file.read_bytes() for file in folder.iterdir()]
