"""`assay.agent_server`: any Python agent behind gRPC, as its callers see it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.support.docs.guides import blocks

import assay
from assay.agent.v1 import agent_pb2 as pb
from assay.agent.v1 import agent_pb2_grpc
from assay.agent_host.agent_server import AgentService
from assay.agent_host.caller import AgentCaller
from assay.errors import InvalidInputError, SetupError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SERVICE = "assay.agent.v1.AgentService"


def question(text: str = "q", timeout_ms: int = 30_000, **fields: Any) -> pb.AnswerRequest:
    """Return the request of a question."""
    return pb.AnswerRequest(request=pb.AgentRequest(request_id="id", input=text, timeout_ms=timeout_ms, **fields))


@pytest.fixture
def connect() -> Iterator[Callable[[str], Any]]:
    """Return a function that makes a stub of an address."""
    channels: list[grpc.Channel] = []

    def make(address: str) -> Any:
        channels.append(grpc.insecure_channel(address))
        return agent_pb2_grpc.AgentServiceStub(channels[-1])

    yield make
    for channel in channels:
        channel.close()


def test_any_python_agent_is_served(connect: Callable[[str], Any], tmp_path: Path, monkeypatch: Any) -> None:
    """A function of a text or of the request, asynchronous, a generator, one in a file; a failure is an answer."""

    async def asynchronous(request: assay.AgentRequest) -> dict[str, Any]:
        return {"text": request.input, "output": request.variables, "events": ["e"]}

    async def in_pieces(text: str) -> Any:
        yield "a"
        yield "b"

    def failing(text: str) -> str:
        raise KeyError(text)

    (tmp_path / "served_bot.py").write_text("def answer(text):\n    return text.upper()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    found = []
    for agent in (lambda text: f"{text}!", asynchronous, in_pieces, "served_bot.py:answer", failing):
        with assay.agent_server(agent) as server:
            found.append(connect(server.address).Answer(question(variables_json='{"v": 1}'), timeout=30).response)
    assert [response.text for response in found] == ["q!", "q", "ab", "Q", ""]
    assert {response.request_id for response in found} == {"id"}
    assert (found[1].output_json, found[1].retrieved.items[0].title) == ('{"v": 1}', "e")
    assert (found[2].HasField("time_to_first_token_ms"), found[0].HasField("time_to_first_token_ms")) == (True, False)
    assert (found[4].status, found[4].error.type, "in failing" in found[4].error.traceback) == (
        pb.AGENT_STATUS_ERROR, "KeyError", True
    )  # fmt: skip
    assert all(response.HasField("reported_latency_ms") and not response.HasField("latency_ms") for response in found)


def test_pieces_are_sent_as_they_are_made(connect: Callable[[str], Any]) -> None:
    """The first one arrives while the agent waits; the last message has no text a second time."""
    goes_on = threading.Event()

    async def in_pieces(text: str) -> Any:
        yield "first"
        await asyncio.to_thread(goes_on.wait, 30)
        yield "second"

    with assay.agent_server(in_pieces) as server:
        stub = connect(server.address)
        stream = stub.AnswerStream(pb.AnswerStreamRequest(request=question().request), timeout=30)
        assert next(stream).piece == "first"
        goes_on.set()
        assert next(stream).piece == "second"
        last = next(stream).response
        assert (last.request_id, last.text, last.HasField("time_to_first_token_ms")) == ("id", "", True)
        assert list(stream) == []
    with assay.agent_server(lambda text: "whole") as server:
        (only,) = connect(server.address).AnswerStream(pb.AnswerStreamRequest(request=question().request), timeout=30)
        assert only.response.text == "whole"


class Unlimited:
    """A call without a deadline."""

    def time_remaining(self) -> None:
        """Return that there is none."""


async def test_no_more_calls_than_wanted_run_at_once() -> None:
    """Further ones wait and are answered: of eight that have all begun, two reach the agent at a time."""
    running, most, two_run, goes_on = 0, 0, asyncio.Event(), asyncio.Event()

    async def agent(text: str) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 2:
            two_run.set()
        await goes_on.wait()
        running -= 1
        return text

    service = AgentService(AgentCaller(agent), 2)
    context: Any = Unlimited()
    calls = [asyncio.create_task(service.Answer(question(str(number)), context)) for number in range(8)]
    await two_run.wait()
    goes_on.set()
    answers = await asyncio.gather(*calls)
    assert [answer.response.text for answer in answers] == [str(number) for number in range(8)]
    assert most == 2


@pytest.mark.parametrize(("timeout_ms", "deadline_s"), [(100, 30.0), (30_000, 1.5), (0, 1.5)])
def test_the_agents_time_ends_before_the_deadline(
    connect: Callable[[str], Any], timeout_ms: int, deadline_s: float
) -> None:
    """The caller is sent the reason, whichever of both limits is shorter; the next call has its answer."""
    released = threading.Event()

    def agent(text: str) -> str:
        if text == "hang":
            released.wait(30)
        return text

    with assay.agent_server(agent, concurrency=1) as server:
        stub = connect(server.address)
        # The deadline is not spent connecting.
        assert stub.Answer(question("first"), timeout=30).response.text == "first"
        response = stub.Answer(question("hang", timeout_ms), timeout=deadline_s).response
        assert (response.error.kind, response.error.retryable) == (pb.AGENT_ERROR_KIND_TIMEOUT, True)
        assert "no answer within" in response.error.message
        assert stub.Answer(question("next"), timeout=30).response.text == "next"
        released.set()


def test_health_and_reflection_are_served() -> None:
    """The preflight check of a run, probes of containers and tools such as grpcurl find the service."""
    with assay.agent_server(lambda text: text) as server, grpc.insecure_channel(server.address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        for service in ("", SERVICE):
            status = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=30).status
            assert status == health_pb2.HealthCheckResponse.SERVING
        stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
        asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        (listed,) = stub.ServerReflectionInfo(asked, timeout=30)
        assert SERVICE in [service.name for service in listed.list_services_response.service]


@pytest.mark.parametrize(
    "request_bytes",
    [b"\xff", b"", pb.AnswerRequest(request=pb.AgentRequest(variables_json="[1]")).SerializeToString()],
)
def test_a_request_that_is_no_question_runs_no_agent(request_bytes: bytes) -> None:
    """It is an INVALID_ARGUMENT with a sentence, in both methods."""
    asked: list[str] = []
    with assay.agent_server(asked.append) as server, grpc.insecure_channel(server.address) as channel:
        for method in ("Answer", "AnswerStream"):
            call: Any = channel.unary_unary(f"/{SERVICE}/{method}")
            with pytest.raises(grpc.RpcError) as caught:
                call(request_bytes, timeout=30)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert asked == []


def test_wrong_arguments_are_refused_at_once() -> None:
    """All of them, before anything is opened."""
    with pytest.raises(InvalidInputError) as caught:
        assay.agent_server("nothing", port=70_000, concurrency=0)
    assert [problem.field for problem in caught.value.problems] == ["agent", "port", "concurrency"]
    wrong: list[tuple[Any, str]] = [
        (str, "is a class"), (3, "cannot be called"), (lambda: "", "takes"), ("os:nothing", "has no")
    ]  # fmt: skip
    for agent, said in wrong:
        with pytest.raises(InvalidInputError, match=said):
            assay.agent_server(agent)


def test_a_taken_port_is_refused_and_nothing_is_left_running() -> None:
    """Neither of the server that could not start nor of one whose block has ended."""
    before = set(threading.enumerate())
    with assay.agent_server(lambda text: text) as server:
        port = int(server.address.rpartition(":")[2])
        for other in (
            assay.agent_server(lambda text: text, port=port),
            assay.agent_server(len, host="no.such.invalid"),
        ):
            with pytest.raises(SetupError, match="Cannot listen at"), other:
                pass
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert "agent server" not in left


def test_the_five_lines_of_the_guide_serve_until_a_signal(connect: Callable[[str], Any], tmp_path: Path) -> None:
    """As printed in docs/agent-service.md; a call that runs when SIGTERM comes still has its answer."""
    (block,) = [one for one in blocks("docs/agent-service.md", "python") if ".serve()" in one.text]
    assert len(block.text.strip().splitlines()) <= 8
    stopping = "import os; os.kill(os.getpid(), 15); return "
    script = block.text.replace("port=50051", "port=0").replace("return ", stopping)
    assert "port=0" in script
    (tmp_path / "served.py").write_text(script)
    process = subprocess.Popen([sys.executable, "served.py"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        stub = connect(said.removeprefix("agent served at ").partition(" ")[0])
        assert stub.Answer(question("q"), timeout=30, wait_for_ready=True).response.text
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()
