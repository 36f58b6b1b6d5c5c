"""The real service on a unix socket, with both providers' packages and a scripted provider on a port."""

from __future__ import annotations

import itertools
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.processes.fork_server import ForkServer

from assay.judge.v1 import judge_pb2 as pb
from assay.judge.v1 import judge_pb2_grpc
from assay.rpc.channel import open_channel, read_stream
from assay.rpc.server import RpcServer
from assay.testing.judges import says
from assay.testing.providers import ScriptedProvider
from assay_judge.clock import SYSTEM_CLOCK
from assay_judge.judges import JudgeChoice
from assay_judge.resources import open_service
from assay_judge.service import SERVICE_NAME
from assay_judge.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from assay_judge.clock import Clock

KEY = "sk-planted-0123456789-abcdefghij"
GOOD = {"reasoning": "It is right.", "score": 4}
ALLOWED = ("allow_judges", "allow_base_urls", "allow_key_variables")
PRICES = "prices: [{model: '*', input: 1, output: 5}]"


@dataclass
class Judge:
    """A running service and a client of it."""

    stub: Any
    provider: ScriptedProvider
    server: RpcServer

    async def grade(self, answer: str = "Paris", **fields: Any) -> pb.GradeResponse:
        """Return the response to one request."""
        asked = {"rubric": "quality", "question": "Capital of France?", "reference": "Paris", **fields}
        response: pb.GradeResponse = await self.stub.Grade(pb.GradeRequest(answer=answer, **asked), timeout=180)
        return response

    async def grade_all(self, asked: list[dict[str, Any]]) -> list[pb.Verdict]:
        """Return the verdicts of a stream in the order of its requests."""
        requests = [
            pb.GradeStreamRequest(request_id=str(index), grade=pb.GradeRequest(**fields))
            for index, fields in enumerate(asked)
        ]
        async with read_stream(self.stub.GradeStream(iter(requests))) as responses:
            found = {int(response.request_id): response.grade.verdict async for response in responses}
        return [found[index] for index in range(len(asked))]


@pytest.fixture(scope="session")
def judges() -> Iterator[ForkServer]:
    """Return the server that forks judges."""
    server = ForkServer("assay_judge")
    yield server
    server.close()


@pytest.fixture
def scripted() -> Iterator[Callable[..., ScriptedProvider]]:
    """Start scripted providers; they end with the test."""
    running: list[ScriptedProvider] = []

    def start(*replies: Any) -> ScriptedProvider:
        provider = ScriptedProvider(*replies)
        provider.__enter__()
        running.append(provider)
        return provider

    yield start
    for provider in running:
        provider.__exit__(None, None, None)


@pytest.fixture
async def start(tmp_path: Path, scripted: Callable[..., ScriptedProvider]) -> AsyncIterator[Callable[..., Any]]:
    """Start a service whose judge is a scripted provider that speaks one of the protocols."""
    numbers = itertools.count()
    async with AsyncExitStack() as stack:

        async def starter(
            *replies: Any,
            protocol: str = "openai",
            judge: Any = None,
            clock: Clock = SYSTEM_CLOCK,
            **settings: Any,
        ) -> Judge:
            provider = scripted(*(replies or (says(GOOD),)))
            url = provider.openai_url if protocol == "openai" else provider.url
            choice = judge or JudgeChoice(protocol, "judge-1", url, "JUDGE_KEY")
            (tmp_path / "prices.yaml").write_text(PRICES)
            own = {**asdict(choice), "prices": tmp_path / "prices.yaml", **dict.fromkeys(ALLOWED, ("*",))}
            own |= {"egress_networks": None, **settings}
            server = RpcServer()
            service = await stack.enter_async_context(
                open_service(Settings(**own), {"JUDGE_KEY": KEY}, server.stopping, clock)
            )
            server.add(SERVICE_NAME, lambda to: judge_pb2_grpc.add_JudgeServiceServicer_to_server(service, to))
            # Channels of one process share connections by address.
            address = await server.start(f"unix:{tmp_path / f'{next(numbers)}.sock'}")
            stack.push_async_callback(server.stop, 0)
            server.set_serving(True)
            channel = await stack.enter_async_context(open_channel(address))
            return Judge(judge_pb2_grpc.JudgeServiceStub(channel), provider, server)

        yield starter
