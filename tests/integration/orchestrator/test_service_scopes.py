"""By which names an orchestrator asks the embedder and the judge for its teams."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack, closing
from typing import TYPE_CHECKING

from assay.rpc.channel import open_channel
from assay.rpc.server import RpcServer
from assay.v1 import embedder_pb2_grpc, judge_pb2_grpc
from assay_embedder import service as embedder_service
from assay_embedder.registry import Registry
from assay_embedder.settings import Settings as EmbedderSettings
from assay_judge import service as judge_service
from assay_judge.resources import open_service
from assay_judge.settings import Settings as JudgeSettings
from assay_orchestrator.identity.service_scopes import ServiceScopes
from assay_orchestrator.runs.team_services import services_of_teams
from assay_orchestrator.settings import Settings
from assay_orchestrator.store.database import open_database

if TYPE_CHECKING:
    from pathlib import Path


async def test_each_team_has_a_name_that_this_installation_alone_can_make(tmp_path: Path) -> None:
    """Names are the same in all processes, differ between teams that begin alike, and between installations."""
    teams = ["search", "s" * 62 + "a", "s" * 62 + "b"]
    with closing(open_database(Settings(database=tmp_path / "assay.db"))) as database:
        found = [[await scopes.of(team) for team in teams] for scopes in (ServiceScopes(database) for _ in range(2))]
    with closing(open_database(Settings(database=tmp_path / "other.db"))) as other:
        found.append([await ServiceScopes(other).of(team) for team in teams])
    assert found[0] == found[1]
    assert len({name for names in found for name in names}) == 2 * len(teams)
    assert all(re.fullmatch(r"[a-z]{1,31}~[0-9a-f]{32}", name) for name in found[0])


async def test_without_identities_nothing_is_named(tmp_path: Path) -> None:
    """So that caches of a laptop, and of before, are found still."""
    with closing(open_database(Settings(database=tmp_path / "assay.db"))) as database:
        assert [await ServiceScopes(database).of(team) for team in ("local", "default")] == ["", ""]


async def test_a_team_is_deleted_by_the_name_that_they_know(tmp_path: Path) -> None:
    """The judge and the embedder delete, and count again, what they have under the name of the team, and no other."""
    stopping = asyncio.Event()
    async with AsyncExitStack() as stack:
        database = stack.enter_context(closing(open_database(Settings(database=tmp_path / "assay.db"))))
        judge = await stack.enter_async_context(open_service(JudgeSettings(state_dir=tmp_path / "judge"), {}, stopping))
        registry = Registry(EmbedderSettings(cache_dir=tmp_path / "embedder"))
        stack.push_async_callback(registry.aclose)
        embedder = embedder_service.EmbedderService(registry, stream_in_flight=1, stopping=stopping)
        server = RpcServer()
        server.add(judge_service.SERVICE_NAME, lambda to: judge_pb2_grpc.add_JudgeServiceServicer_to_server(judge, to))
        server.add(
            embedder_service.SERVICE_NAME,
            lambda to: embedder_pb2_grpc.add_EmbedderServiceServicer_to_server(embedder, to),
        )
        address = await server.start(f"unix:{tmp_path}/services.sock")
        stack.push_async_callback(server.stop, 0)
        channel = await stack.enter_async_context(open_channel(address))
        stubs = embedder_pb2_grpc.EmbedderServiceStub(channel), judge_pb2_grpc.JudgeServiceStub(channel)
        for team in ("search", "other"):
            await judge._store.put_verdict(await ServiceScopes(database).of(team), "k", {"score": 1})
        found = {each.name: await each.delete("search") for each in services_of_teams(database, *stubs)}
        assert found == {
            "embedder": ({"memory": 0, "disk": 0}, {"memory": 0, "disk": 0}),
            "judge": ({"verdicts": 1, "spending": 0, "orders": 0}, {"verdicts": 0, "spending": 0, "orders": 0}),
        }
        other = [await each.delete("other") for each in services_of_teams(database, None, stubs[1])]
        assert other[0][0]["verdicts"] == 1
