"""Orchestrator, embedder and judge in this process behind the real wire, with the real model and an HTTP agent."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.judge_specs import judge_of

from assay.client.client import Client
from assay.embedder.v1 import embedder_pb2_grpc
from assay.judge.v1 import judge_pb2_grpc
from assay.metrics import complete_parameters
from assay.model.case import Case, Turn
from assay.model.run import AgentSpec, MetricSpec, Run, RunSpec, RunState, StateChanged
from assay.model.scope import LOCAL
from assay.rpc.channel import open_channel
from assay.rpc.server import RpcServer
from assay.testing.judges import says
from assay.testing.providers import ScriptedProvider
from assay_embedder.models import loading
from assay_embedder.registry import Registry
from assay_embedder.service import EmbedderService
from assay_embedder.settings import DEFAULT_MODEL
from assay_embedder.settings import Settings as EmbedderSettings
from assay_judge.resources import open_service
from assay_judge.settings import Settings as JudgeServiceSettings
from assay_orchestrator.engine.dispatcher_factory import open_dispatcher
from assay_orchestrator.runs.manager import RunManager
from assay_orchestrator.runs.planner import Planner
from assay_orchestrator.service.registration import registrations
from assay_orchestrator.settings import Settings
from assay_orchestrator.store.database import open_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from assay.storage.database import Database

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read once, by the first import of the hub's library
PRICES = "prices: [{model: '*', input: 1, output: 5}]"


class _AgentHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    server: AgentServer

    def do_POST(self) -> None:
        """Answer and record the headers."""
        self.rfile.read(int(self.headers["content-length"]))
        self.server.headers.append({name.lower(): value for name, value in self.headers.items()})
        body = json.dumps({"text": "four", "usage": {"input_tokens": 7, "output_tokens": 2}}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Log nothing."""


class AgentServer(ThreadingHTTPServer):
    """An agent over HTTP that answers "four" and records the headers of its questions."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _AgentHandler)
        self.headers: list[dict[str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/ask"


@dataclass
class Installation:
    """A running installation.

    Args:
        client: Of its orchestrator.
        database: Its store.
        agent: Under test.
        provider: The judge's model.
    """

    client: Client
    database: Database
    agent: AgentServer
    provider: ScriptedProvider

    def settings(self) -> RunSpec:
        """Return the settings of a run that needs an HTTP agent, the embedder and the judge."""
        metrics = ("semantic_similarity", "quality")
        return RunSpec(
            name="observed",
            agent=AgentSpec("http", self.agent.url, options={"response": {"text": "text", "usage": "usage"}}),
            metrics=tuple(MetricSpec(name, complete_parameters(name, {}, where=name)) for name in metrics),
            judges=(judge_of("openai", "judge-1", self.provider.openai_url, timeout_s=20.0, canary_rate=0.0),),
        )

    async def run(self, case_count: int) -> Run:
        """Run some cases to their end."""
        cases = [
            Case(f"c{at}", (Turn(f"how much is {at} and {at}?", references=("four",)),)) for at in range(case_count)
        ]
        dataset = await self.client.upload_dataset(cases, name="d")
        run = await self.client.create_run(self.settings(), dataset.dataset_id)
        async for event in self.client.watch_run(run.run_id):
            if isinstance(event, Run | StateChanged) and event.state in (RunState.COMPLETED, RunState.FAILED):
                break
        ended = await self.client.get_run(run.run_id)
        assert ended.state is RunState.COMPLETED, ended.state_message
        return ended


@pytest.fixture(scope="session")
def default_model() -> Any:
    """Return the real model, loaded once."""
    return loading.load(DEFAULT_MODEL, device="cpu")


@pytest.fixture
def agent() -> Iterator[AgentServer]:
    """Return a running agent."""
    server = AgentServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def installed(
    tmp_path: Path, agent: AgentServer, default_model: Any
) -> Callable[..., AbstractAsyncContextManager[Installation]]:
    """Return a function that serves an installation with settings for its orchestrator."""

    @asynccontextmanager
    async def serving(**changes: Any) -> AsyncIterator[Installation]:
        with ScriptedProvider(says({"reasoning": "It is right.", "score": 4})) as provider:
            async with AsyncExitStack() as stack:
                embedder = await _embedder(stack, tmp_path, default_model)
                judge = await _judge(stack, tmp_path)
                yield await _orchestrator(stack, tmp_path, embedder, judge, agent, provider, changes)

    return serving


async def _served(stack: AsyncExitStack, path: Path, name: str, add: Callable[[Any], None]) -> str:
    server = RpcServer()
    server.add(name, add)
    address = await server.start(f"unix:{path}")
    server.set_serving(True)
    stack.push_async_callback(server.stop, 0)
    return address


async def _embedder(stack: AsyncExitStack, folder: Path, model: Any) -> Any:
    registry = Registry(EmbedderSettings(), load=lambda *_, **__: model)
    stack.push_async_callback(registry.aclose)
    await registry.load_listed()

    service = EmbedderService(registry, stream_in_flight=16, stopping=asyncio.Event())
    name = "assay.embedder.v1.EmbedderService"
    address = await _served(
        stack, folder / "e.sock", name, lambda to: embedder_pb2_grpc.add_EmbedderServiceServicer_to_server(service, to)
    )
    return embedder_pb2_grpc.EmbedderServiceStub(await stack.enter_async_context(open_channel(address)))


async def _judge(stack: AsyncExitStack, folder: Path) -> Any:

    (folder / "prices.yaml").write_text(PRICES)
    every: dict[str, Any] = dict.fromkeys(("allow_judges", "allow_base_urls", "allow_key_variables"), ("*",))
    settings = JudgeServiceSettings(
        prices=folder / "prices.yaml", state_dir=folder / "judge", egress_networks=None, **every
    )
    service = await stack.enter_async_context(open_service(settings, {}, asyncio.Event()))
    name = "assay.judge.v1.JudgeService"
    address = await _served(
        stack, folder / "j.sock", name, lambda to: judge_pb2_grpc.add_JudgeServiceServicer_to_server(service, to)
    )
    return judge_pb2_grpc.JudgeServiceStub(await stack.enter_async_context(open_channel(address)))


async def _orchestrator(
    stack: AsyncExitStack, folder: Path, embedder: Any, judge: Any, agent: Any, provider: Any, changes: dict[str, Any]
) -> Installation:
    own: dict[str, Any] = {"listen": f"unix:{folder}/o.sock", "database": folder / "assay.db", "grace_s": 1.0}
    own |= {"embedder": f"unix:{folder}/e.sock", "judge": f"unix:{folder}/j.sock"}
    settings = Settings(**{**own, "http_hosts": ("127.0.0.1",), **changes})
    database = open_database(settings)
    stack.callback(database.close)
    manager = RunManager(database, settings, Planner(settings, embedder, judge), open_dispatcher(settings, database))
    server = RpcServer(settings.server_options)
    for name, register in registrations(database, manager, settings, server.stopping, LOCAL).items():
        server.add(name, register)
    address = await server.start(settings.listen)
    stack.push_async_callback(server.stop, 0)
    await manager.start()
    stack.push_async_callback(manager.aclose)
    server.set_serving(True)
    client = await stack.enter_async_context(Client(address, patience_s=60.0))
    return Installation(client, database, agent, provider)
