"""A bare two-hop gRPC loop over the cases of a dataset: the yardstick of `throughput.py` for `assay run`.

`python bare_loop.py DATASET AGENT CONCURRENCY` is the command. It starts a middle process, asks it every case in a
call of its own, at most CONCURRENCY at once, and answers the questions that the middle process sends back over a
stream, with the function `answer` of AGENT. Each question and each answer is one message, with the fields and the size
of those of `assay run`. Nothing is checked, scored, stored or reported: this is the simplest program that calls an
agent through a service.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from assay.agent.v1 import agent_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

SERVICE = "bare.Loop"
ASK, HOST = f"/{SERVICE}/Ask", f"/{SERVICE}/Host"


class Middle:
    """The middle process: passes each question on to the agent, and its answer back to the caller."""

    def __init__(self) -> None:
        self._questions: asyncio.Queue[pb.AgentRequest] = asyncio.Queue()
        self._waiting: dict[str, asyncio.Future[pb.AgentResponse]] = {}

    async def ask(self, request: pb.AgentRequest, context: object) -> pb.AgentResponse:
        """Return the agent's answer to one question."""
        answer: asyncio.Future[pb.AgentResponse] = asyncio.get_running_loop().create_future()
        self._waiting[request.request_id] = answer
        self._questions.put_nowait(request)
        return await answer

    async def host(
        self, answers: AsyncIterator[pb.AgentResponse], context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[pb.AgentRequest]:
        """Yield questions for the agent and receive its answers."""
        reading = asyncio.create_task(self._read(answers))
        try:
            while True:
                yield await self._questions.get()
        finally:
            reading.cancel()

    async def _read(self, answers: AsyncIterator[pb.AgentResponse]) -> None:
        async for answer in answers:
            self._waiting.pop(answer.request_id).set_result(answer)


async def serve(address: str) -> None:
    """Serve as the middle process until stdin is closed."""
    middle = Middle()
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
        "Ask": grpc.unary_unary_rpc_method_handler(
            middle.ask, pb.AgentRequest.FromString, pb.AgentResponse.SerializeToString
        ),
        "Host": grpc.stream_stream_rpc_method_handler(
            middle.host, pb.AgentResponse.FromString, pb.AgentRequest.SerializeToString
        ),
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    server.add_insecure_port(address)
    await server.start()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await server.stop(0)


async def command(dataset: Path, agent: Path, concurrency: int) -> None:
    """Ask every case of a dataset and write nothing."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/loop.sock"
        middle = await asyncio.create_subprocess_exec(
            sys.executable, __file__, "--serve", address, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert middle.stdin is not None, "it is piped"
        assert middle.stdout is not None, "it is piped"
        questions, answer = read_questions(dataset), load_answer(agent)
        await middle.stdout.readline()
        async with grpc.aio.insecure_channel(address) as channel:
            ask = channel.unary_unary(
                ASK,
                request_serializer=pb.AgentRequest.SerializeToString,
                response_deserializer=pb.AgentResponse.FromString,
            )
            slots = asyncio.Semaphore(concurrency)

            async def ask_one(question: pb.AgentRequest) -> pb.AgentResponse:
                async with slots:
                    return await ask(question)

            async with asyncio.TaskGroup() as tasks:  # an agent that fails ends the command
                hosting = tasks.create_task(host(channel, answer))
                answers = await asyncio.gather(*map(ask_one, questions))
                hosting.cancel()
        middle.stdin.close()
        await middle.wait()
    print(f"{sum(reply.status == pb.AGENT_STATUS_SUCCESS for reply in answers)} of {len(questions)} answered")


async def host(channel: grpc.aio.Channel, answer: Callable[[Any], Awaitable[str]]) -> None:
    """Answer the questions of the middle process until cancelled."""
    stream = channel.stream_stream(
        HOST, request_serializer=pb.AgentResponse.SerializeToString, response_deserializer=pb.AgentRequest.FromString
    )
    ready: asyncio.Queue[pb.AgentResponse] = asyncio.Queue()

    async def outgoing() -> AsyncIterator[pb.AgentResponse]:
        while True:
            yield await ready.get()

    async def answer_one(question: pb.AgentRequest) -> None:
        text = await answer(question)
        ready.put_nowait(
            pb.AgentResponse(request_id=question.request_id, text=text, status=pb.AGENT_STATUS_SUCCESS, latency_ms=0.1)
        )

    async with asyncio.TaskGroup() as tasks:
        async for question in stream(outgoing()):
            tasks.create_task(answer_one(question))


def read_questions(dataset: Path) -> list[pb.AgentRequest]:
    """Return one question per line of a dataset, with identifiers as long as those of a run."""
    run_id = "20260101T000000-0123456789ab"
    questions = []
    with dataset.open() as lines:
        for index, line in enumerate(lines):
            case = json.loads(line)
            row = f"{run_id}/{index}/0"
            questions.append(
                pb.AgentRequest(
                    request_id=f"{row}#0",
                    run_id=run_id,
                    case_id=case["id"],
                    input=case["question"],
                    session_id=row,
                    idempotency_key=row,
                    timeout_ms=60_000,
                    turn_count=1,
                )
            )
    return questions


def load_answer(agent: Path) -> Callable[[Any], Awaitable[str]]:
    """Return the function `answer` of a file."""
    spec = importlib.util.spec_from_file_location("agent", agent)
    assert spec is not None, "it is a Python file"
    assert spec.loader is not None, "it is a Python file"
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[[Any], Awaitable[str]] = module.answer
    return function


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        asyncio.run(serve(sys.argv[2]))
    else:
        asyncio.run(command(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
