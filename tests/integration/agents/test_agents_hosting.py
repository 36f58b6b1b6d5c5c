"""The user's agent behind HostService: the client's end against the orchestrator's, over the real wire."""

from __future__ import annotations

import asyncio
import dataclasses
import signal
import sys
from collections import Counter
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tests.support.processes.waiting import until

from assay.agent.v1 import agent_pb2
from assay.agent_host.caller import AgentCaller
from assay.agent_host.serve_stream import AgentHost
from assay.client.client import Client
from assay.errors import UnavailableError
from assay.model.answers.agent_response import AgentErrorKind, AgentRequest, AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import AgentSpec, DatasetRef, Run, RunCounts, RunSpec, RunState
from assay.model.scope import LOCAL, Scope
from assay.rpc.channel import open_channel
from assay.rpc.server import RpcServer
from assay.v1 import host_pb2 as pb
from assay.v1 import host_pb2_grpc
from assay_orchestrator.agents.hosted import Attachment, HostedAgent
from assay_orchestrator.agents.retrying import RetryingAgent
from assay_orchestrator.service.host_service import HostService

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

CASE = Case("c", (Turn("q"),))
RUN = Run(
    run_id="run",
    spec=RunSpec("test", AgentSpec("python", "m:f"), metrics=(), gates=()),
    dataset=DatasetRef("d", "d", 1),
    state=RunState.RUNNING,
    state_message="",
    counts=RunCounts(total_count=1),
    created_at="2026-01-01T00:00:00Z",
)


class OneRun:
    """Stands where the orchestrator's runs are: one run, asked through one broker."""

    def __init__(self) -> None:
        self.agent = HostedAgent()

    async def get(self, scope: Scope, run_id: str) -> Run:
        """Return the run."""
        return RUN

    async def attach(self, scope: Scope, run: Run, concurrency: int) -> Attachment:
        """Take a client."""
        return self.agent.attach(concurrency)

    def detach(self, run_id: str, attachment: Attachment) -> None:
        """Let a client go."""
        attachment.close()


def add_agent_streams(
    server: RpcServer, serve: Callable[[AsyncIterator[pb.HostRequest]], AsyncIterator[pb.HostResponse]]
) -> None:
    """Let a server answer the clients that host agents, and nothing else."""
    handler = grpc.stream_stream_rpc_method_handler(
        lambda requests, context: serve(requests),
        request_deserializer=pb.HostRequest.FromString,
        response_serializer=pb.HostResponse.SerializeToString,
    )
    handlers = grpc.method_handlers_generic_handler("assay.v1.HostService", {"Host": handler})
    server.add("assay.v1.HostService", lambda grpc_server: grpc_server.add_generic_rpc_handlers((handlers,)))


class Bench:
    """An orchestrator's HostService and clients that host agents for it."""

    def __init__(self, address: str, runs: OneRun, stack: AsyncExitStack, server: RpcServer) -> None:
        self.address = address
        self.agent = runs.agent
        self.server = server
        self._stack = stack

    async def channel(self) -> grpc.aio.Channel:
        """Open a connection of its own."""
        return await self._stack.enter_async_context(open_channel(self.address))

    async def host(self, agent: Callable[..., Any], concurrency: int = 16) -> asyncio.Task[None]:
        """Host an agent until it is detached or the returned task is cancelled."""
        hosting = asyncio.create_task(_serve(await self.channel(), agent, concurrency))
        self._stack.push_async_callback(_ended, hosting)
        return hosting

    async def ask(self, *inputs: str, timeout_s: float = 30.0, retries: int = 0) -> list[AgentResponse]:
        """Ask all at once."""
        agent = RetryingAgent(self.agent, retries, jitter=lambda: 0.0)
        return await asyncio.gather(*(agent.answer(asked(text, timeout_s), CASE) for text in inputs))


async def _serve(channel: grpc.aio.Channel, agent: Callable[..., Any], concurrency: int) -> None:
    async with aclosing(AgentHost("run", AgentCaller(agent), concurrency=concurrency)) as host:
        await host.serve(channel)


async def _ended(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def asked_key(text: str) -> str:
    """Return the idempotency key of a question."""
    return f"run/{text[:40]}"


def asked(text: str, timeout_s: float = 30.0) -> AgentRequest:
    """Return a question."""
    key = asked_key(text)
    return AgentRequest(
        request_id=f"{key}#0", run_id="run", case_id="c", input=text, idempotency_key=key, timeout_s=timeout_s
    )


@asynccontextmanager
async def benched(folder: Path) -> AsyncIterator[Bench]:
    """Serve one run whose agent clients host."""
    runs, server = OneRun(), RpcServer()
    address = f"unix:{folder}/o.sock"
    service = HostService(runs, server.stopping, LOCAL)
    server.add("assay.v1.HostService", lambda to: host_pb2_grpc.add_HostServiceServicer_to_server(service, to))
    await server.start(address)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop, 0)
        yield Bench(address, runs, stack, server)


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """Serve one run whose agent clients host."""
    async with benched(tmp_path) as bench:
        yield bench


def kinds(responses: list[AgentResponse]) -> list[AgentErrorKind | None]:
    """Return what went wrong in each answer."""
    return [response.error.kind if response.error else None for response in responses]


async def test_bad_questions_harm_no_other(bench: Bench) -> None:
    """A raising, hanging, leaving, garbage or huge answer fails its own case; all others are answered."""
    hang = asyncio.Event()

    async def agent(request: AgentRequest) -> Any:
        match request.input:
            case "raise":
                raise ValueError("bad")
            case "hang":
                await hang.wait()
            case "garbage":
                return {"text": "t", "output": object()}
            case "huge":
                return "x" * 200_000_000
            case "exit":
                raise SystemExit
            case "escapes":
                return {"text": "t", "output": "\x01" * 1_000_000}
        return request.input

    await bench.host(agent)
    bad = ["raise", "garbage", "huge", "exit", "escapes"]
    good = [f"good {number}" for number in range(100)]
    # Only the one that hangs has a short limit: how long the others take says how busy the machine is.
    responses, hung = await asyncio.gather(
        bench.ask(*good[:50], *bad, *good[50:], timeout_s=120.0), bench.ask("hang", timeout_s=1.0)
    )
    assert kinds(hung) == ["timeout"]
    assert kinds(responses[50:55]) == ["raised", "malformed", "too_large", "raised", "too_large"]
    assert [response.text for response in (*responses[:50], *responses[55:])] == good


async def test_texts_of_any_size_and_script_travel(bench: Bench) -> None:
    """Questions and answers that are large together are sent in messages that fit."""

    async def agent(request: AgentRequest) -> dict[str, Any]:
        return {"text": request.input, "output": {"half": "\ud800"}, "events": []}

    await bench.host(agent, concurrency=100)
    large = [f"{number} {'سؤال ' * 40_000}" for number in range(30)]
    responses = await bench.ask(*large)
    assert [response.text for response in responses] == large
    assert {(response.output["half"], response.retrieved) for response in responses} == {("\ufffd", ())}


async def test_a_failure_that_passes_is_asked_again_under_one_key(bench: Bench) -> None:
    """A retry has another request id and the same idempotency key."""
    seen: list[tuple[str, str]] = []

    def agent(request: AgentRequest) -> str:
        seen.append((request.request_id, request.idempotency_key))
        if len(seen) == 1:
            raise ConnectionError
        return "answer"

    await bench.host(agent)
    (response,) = await bench.ask("q", retries=1)
    assert (response.text, len(response.attempts)) == ("answer", 1)
    assert seen == [("run/q#0", "run/q"), ("run/q#1", "run/q")]


async def test_the_questions_of_a_client_that_dies_are_asked_elsewhere(bench: Bench) -> None:
    """Whoever is attached next gets them, under the same idempotency key, and no attempt is counted."""
    keys: list[str] = []
    taken = asyncio.Event()

    async def hangs(request: AgentRequest) -> str:
        keys.append(request.idempotency_key)
        if len(keys) == 3:
            taken.set()
        await asyncio.Event().wait()
        return ""

    async def answers(request: AgentRequest) -> str:
        keys.append(request.idempotency_key)
        return request.input

    dying = await bench.host(hangs)
    asking = asyncio.create_task(bench.ask("a", "b", "c"))
    await taken.wait()
    await _ended(dying)
    await bench.host(answers, concurrency=1)
    responses = await asking
    assert [(response.text, response.attempts) for response in responses] == [("a", ()), ("b", ()), ("c", ())]
    assert keys[3:] == keys[:3]


@asynccontextmanager
async def hosted_by_a_client(folder: Path, agent: Callable[..., Any]) -> AsyncIterator[None]:
    """Host an agent as commands do, over one orchestrator after the other."""
    async with Client(f"unix:{folder}/o.sock", patience_s=60.0) as client:
        hosting = asyncio.create_task(client.host_agent("run", AgentCaller(agent), concurrency=16))
        try:
            yield
        finally:
            await _ended(hosting)


async def test_answers_that_an_orchestrator_lost_are_not_asked_for_again(tmp_path: Path) -> None:
    """The next one asks from the first attempt on, and gets what the client answered before: the failures, too.

    What the first orchestrator has stored it is not asked by a run: the client has forgotten it.
    """
    asked: Counter[str] = Counter()

    async def agent(request: AgentRequest) -> str:
        asked[request.request_id] += 1
        if request.request_id == f"{asked_key('fails once')}#0":
            raise ConnectionError("away")
        return f"{request.input} {asked.total()}"

    stored = [f"stored {number}" for number in range(64)]
    async with hosted_by_a_client(tmp_path, agent):
        async with benched(tmp_path) as first:
            answers = await first.ask("fails once", "answers", retries=1)
            once = Counter(asked)
            await first.ask(*stored)
            first.agent.stored([asked_key(text) for text in stored])
            await first.ask("later")  # sent after the client was told
        async with benched(tmp_path) as second:
            assert await second.ask("fails once", "answers", retries=1) == answers
            assert [answer.text for answer in answers] == ["fails once 3", "answers 2"]
            assert [len(answer.attempts) for answer in answers] == [1, 0]
            assert {name: asked[name] for name in once} == once
            await second.ask(*stored)
    assert len(once) == 3
    assert {asked[f"{asked_key(text)}#0"] for text in stored} == {2}


async def test_a_call_outlasts_the_orchestrator_that_asked(tmp_path: Path) -> None:
    """It continues while no orchestrator is there, and the next one gets its answer; one that is cancelled ends."""
    asked: list[str] = []
    ended: list[str] = []
    go = asyncio.Event()

    async def agent(request: AgentRequest) -> str:
        asked.append(request.input)
        try:
            await go.wait()
        finally:
            ended.append(request.input)
        return request.input

    async with hosted_by_a_client(tmp_path, agent):
        async with benched(tmp_path) as first:
            asking = asyncio.create_task(first.ask("a", "b"))
            await until(lambda: len(asked) == 2)
        await _ended(asking)
        async with benched(tmp_path) as second:
            late = asyncio.create_task(second.ask("a"))
            unwanted = asyncio.create_task(second.ask("b"))
            await until(lambda: any(len(at._asked) == 2 and not at._outgoing for at in second.agent._attachments))
            await _ended(unwanted)
            await until(lambda: ended == ["b"])
            go.set()
            assert [response.text for response in await late] == ["a"]
    assert asked == ["a", "b"]


async def test_more_clients_share_the_questions(bench: Bench) -> None:
    """Two clients of one place each answer at once: they meet."""
    meeting = asyncio.Barrier(2)

    async def agent(request: AgentRequest) -> str:
        await meeting.wait()
        return request.input

    await bench.host(agent, concurrency=1)
    await bench.host(agent, concurrency=1)
    assert [response.text for response in await bench.ask("a", "b")] == ["a", "b"]


async def test_no_more_questions_than_the_client_takes(bench: Bench) -> None:
    """The client's concurrency is never exceeded."""
    running = most = 0

    async def agent(request: AgentRequest) -> str:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return "answer"

    await bench.host(agent, concurrency=3)
    await bench.ask(*(str(number) for number in range(60)))
    assert most <= 3


async def test_an_agent_is_stopped_when_its_answer_is_no_longer_wanted(bench: Bench) -> None:
    """Cancelling a question cancels the agent's code, and its place is free again."""
    started, stopped = asyncio.Event(), asyncio.Event()

    async def agent(request: AgentRequest) -> str:
        if request.input == "other":
            return "answer"
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    await bench.host(agent, concurrency=1)
    asking = asyncio.create_task(bench.ask("unwanted"))
    await started.wait()
    await _ended(asking)
    await stopped.wait()
    assert [response.text for response in await bench.ask("other")] == ["answer"]


async def test_hosting_ends_when_the_run_asks_no_more(bench: Bench) -> None:
    """Detached clients return, even from an agent that does not let itself be cancelled."""
    started, release = asyncio.Event(), asyncio.Event()

    async def stubborn(request: AgentRequest) -> str:
        started.set()
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "answer"

    hosting = await bench.host(stubborn)
    asking = asyncio.create_task(bench.ask("q"))
    await started.wait()
    bench.agent.detach_all("the run was cancelled")
    await hosting
    release.set()
    await _ended(asking)


@pytest.mark.parametrize("stop", ["begin_stopping", "stop"])
async def test_a_lost_orchestrator_is_told_from_a_finished_run(bench: Bench, stop: str) -> None:
    """A server that stops or vanishes raises UnavailableError, so that the client attaches again."""

    async def agent(request: AgentRequest) -> str:
        return "answer"

    hosting = await bench.host(agent)
    await bench.ask("q")
    if stop == "stop":
        await bench.server.stop(0)
    else:
        bench.server.begin_stopping()
    with pytest.raises(UnavailableError):
        await hosting


@asynccontextmanager
async def answering(folder: Path, *streams: list[pb.HostResponse]) -> AsyncIterator[str]:
    """Serve an orchestrator that sends each client the next of these streams and ends it."""
    waiting = list(streams)

    async def serve_agent(requests: AsyncIterator[pb.HostRequest]) -> AsyncIterator[pb.HostResponse]:
        for message in waiting.pop(0):
            yield message

    server = RpcServer()
    add_agent_streams(server, serve_agent)
    await server.start(f"unix:{folder}/o.sock")
    try:
        yield f"unix:{folder}/o.sock"
    finally:
        await server.stop(0)


ATTACHED = pb.HostResponse(attached=pb.AgentAttached())
DETACHED = pb.HostResponse(detached=pb.AgentDetached(message="done"))


async def test_an_orchestrator_that_ends_the_stream_without_a_word_is_not_a_finished_run(tmp_path: Path) -> None:
    """Only `detached` means that nothing more will be asked."""
    async with answering(tmp_path, [ATTACHED]) as address, open_channel(address) as channel:
        with pytest.raises(UnavailableError, match="before the run was done"):
            await _serve(channel, len, concurrency=1)


async def test_patience_is_for_one_interruption_not_for_the_whole_run(tmp_path: Path) -> None:
    """Connections that are lost again and again are taken up, as long as each could be attached."""
    streams = [[ATTACHED]] * 4 + [[ATTACHED, DETACHED]]
    async with answering(tmp_path, *streams) as address, Client(address, patience_s=0.3) as client:
        await client.host_agent("run", AgentCaller(len), concurrency=1)
    async with answering(tmp_path, *([[]] * 9)) as address, Client(address, patience_s=0.3) as client:
        with pytest.raises(UnavailableError):
            await client.host_agent("run", AgentCaller(len), concurrency=1)


async def test_a_run_that_has_finished_asks_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attaching to a run that ended meanwhile is no failure."""
    from assay.errors import WrongStateError

    def finished(self: OneRun, scope: Scope, run: Run, concurrency: int) -> Attachment:
        raise WrongStateError("run run has already completed", reason="RUN_ENDED")

    monkeypatch.setattr(OneRun, "attach", finished)
    async with Client(bench.address) as client:
        await client.host_agent("run", AgentCaller(len), concurrency=1)


@pytest.mark.parametrize(
    "broken",
    [
        agent_pb2.AgentResponse(text="t", output_json="{"),
        agent_pb2.AgentResponse(text="t", output_json='{"a": NaN}'),
        agent_pb2.AgentResponse(text="t", output_json="[" * 100_000),
        agent_pb2.AgentResponse(text="t", metadata_json="[]"),
        agent_pb2.AgentResponse(text="t", latency_ms=float("nan")),
        agent_pb2.AgentResponse(text="t", data_rows=2**53),
        agent_pb2.AgentResponse(text="t", sources=[agent_pb2.Source(score=float("inf"))]),
        agent_pb2.AgentResponse(text="t", usage=agent_pb2.Usage(cost_usd=float("nan"))),
    ],
)
async def test_a_client_that_breaks_the_contract_harms_its_own_answer(
    bench: Bench, broken: agent_pb2.AgentResponse
) -> None:
    """An answer that could be neither stored nor sent on is malformed; the stream goes on."""
    stub = host_pb2_grpc.HostServiceStub(await bench.channel())
    call = stub.Host()
    await call.write(pb.HostRequest(attach=pb.AttachAgent(run_id="run", concurrency=2)))
    try:
        asking = asyncio.create_task(bench.ask("bad", "good"))
        questions = 0
        while questions < 2:
            message = await call.read()
            assert isinstance(message, pb.HostResponse)
            for request in message.requests.requests:
                questions += 1
                good = agent_pb2.AgentResponse(text="fine")
                answer = agent_pb2.AgentResponse()
                answer.CopyFrom(broken if request.input == "bad" else good)
                answer.request_id = request.request_id
                await call.write(pb.HostRequest(responses=pb.AgentResponses(responses=[answer])))
        bad, fine = await asking
    finally:
        call.cancel()
    assert kinds([bad]) == [AgentErrorKind.MALFORMED]
    assert dataclasses.replace(fine, latency_ms=None) == AgentResponse(text="fine")


_HOST = """
import asyncio, sys
from assay.agent_host.caller import AgentCaller
from assay.agent_host.serve_stream import AgentHost
from assay.rpc.channel import open_channel

def answer(request):
    with open(sys.argv[2], "a") as asked:
        asked.write(request.input + "\\n")
    return request.input

async def main():
    async with open_channel(sys.argv[1]) as channel:
        await AgentHost("run", AgentCaller(answer), concurrency=100).serve(channel)

asyncio.run(main())
"""


async def test_a_host_that_was_suspended_begins_no_question_that_is_over(bench: Bench, tmp_path: Path) -> None:
    """Its questions timed out meanwhile; once it runs again, it asks its agent only what is still open."""
    asked_file = tmp_path / "asked"
    host = await asyncio.create_subprocess_exec(sys.executable, "-c", _HOST, bench.address, str(asked_file))
    try:
        assert [response.text for response in await bench.ask("before")] == ["before"]
        host.send_signal(signal.SIGSTOP)
        over = [f"over {number}" for number in range(50)]
        assert kinds(await bench.ask(*over, timeout_s=0.5)) == ["timeout"] * 50
        open_question = asyncio.ensure_future(bench.ask("open", timeout_s=600.0))
        (attached,) = bench.agent._attachments
        await until(lambda: "run/open#0" in attached._asked and not attached._outgoing)  # it was sent
        host.send_signal(signal.SIGCONT)
        assert [response.text for response in await open_question] == ["open"]
        assert [response.text for response in await bench.ask("after")] == ["after"]
    finally:
        host.kill()
        await host.wait()
    assert asked_file.read_text().splitlines() == ["before", "open", "after"]
