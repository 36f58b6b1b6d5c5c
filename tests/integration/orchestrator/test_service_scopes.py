"""By which names an orchestrator asks the embedder and the judge for its teams."""

from __future__ import annotations

import asyncio
import re
from contextlib import AsyncExitStack, closing
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest

from assay.embedder.v1 import embedder_pb2_grpc
from assay.errors import UnavailableError
from assay.judge.v1 import judge_pb2_grpc
from assay.model.scope import Scope
from assay.rpc.server import RpcServer
from assay_embedder import service as embedder_service
from assay_embedder.caches.vector_cache import KeyMaker
from assay_embedder.queues.jobs import Computed
from assay_embedder.registry import Registry
from assay_embedder.settings import Settings as EmbedderSettings
from assay_judge import service as judge_service
from assay_judge.resources import open_service
from assay_judge.settings import Settings as JudgeSpec
from assay_orchestrator.identity.service_scopes import ServiceScopes
from assay_orchestrator.runs.team_services import replicas, services_of_teams
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
        assert await ServiceScopes(database).of("local") == ""


async def test_a_team_is_deleted_by_the_name_that_they_know(tmp_path: Path) -> None:
    """The judge and each embedder delete, and count again, what they have under the name of the team, and no other."""
    stopping = asyncio.Event()
    async with AsyncExitStack() as stack:
        judge = await stack.enter_async_context(open_service(JudgeSpec(state_dir=tmp_path / "judge"), {}, stopping))
        addresses = []
        for number in range(2):
            registry = Registry(EmbedderSettings(cache_dir=tmp_path / f"embedder{number}"))
            stack.push_async_callback(registry.aclose)
            embedder = embedder_service.EmbedderService(registry, stream_in_flight=1, stopping=stopping)
            server = RpcServer()
            server.add(judge_service.SERVICE_NAME, partial(judge_pb2_grpc.add_JudgeServiceServicer_to_server, judge))
            server.add(
                embedder_service.SERVICE_NAME,
                partial(embedder_pb2_grpc.add_EmbedderServiceServicer_to_server, embedder),
            )
            addresses.append(await server.start("127.0.0.1:0"))
            stack.push_async_callback(server.stop, 0)
        settings = Settings(database=tmp_path / "assay.db", judge=addresses[0], embedder=f"ipv4:{','.join(addresses)}")
        database = stack.enter_context(closing(open_database(settings)))
        name = await ServiceScopes(database).of("search")
        for scope in (name, "other~name"):
            await judge.store.put_verdict(scope, "k", {"score": 1})
        key = KeyMaker(("m",)).keys(["t"], scope=name, windowed=False)["t"]
        registry._cache.put(key, Computed(np.zeros(2, np.float32), 1, 1, False))  # of the second one
        found = {each.name: await each.delete("search") for each in services_of_teams(database, settings)}
        nothing = dict.fromkeys(("verdicts", "spending", "reservations", "claims", "orders"), 0)
        assert found == {
            "embedder": ({"memory": 1, "disk": 0}, {"memory": 0, "disk": 0}),
            "judge": ({**nothing, "verdicts": 1}, nothing),
        }
        assert await judge.store.verdict(Scope("other~name"), "k") == {"score": 1}


async def test_the_replicas_of_a_name_are_all_asked() -> None:
    """A name stands for its addresses, each with the name for its certificate; another address for itself."""
    assert ("ipv4:127.0.0.1:7071", "localhost:7071") in await replicas("dns:///localhost:7071")
    listed = await replicas("ipv4:10.0.0.1:1,10.0.0.2:2")
    assert listed == [("ipv4:10.0.0.1:1", "10.0.0.1:1"), ("ipv4:10.0.0.2:2", "10.0.0.1:1")]
    assert await replicas("unix:/e.sock") == [("unix:/e.sock", "")]
    assert await replicas("embedder:7071") == [("embedder:7071", "")]
    with pytest.raises(UnavailableError, match="cannot be resolved"):
        await replicas("dns:///no..host:7071")
