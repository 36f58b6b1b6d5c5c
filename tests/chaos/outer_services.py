"""What the processes under test call: an agent that counts, an embedder that computes the same vectors each time."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from assay.embedder.v1 import embedder_pb2 as pb
from assay.embedder.v1 import embedder_pb2_grpc
from assay.metrics.core.similarity import cosine
from assay.rpc.server import RpcServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from types import TracebackType

    import grpc.aio

    from assay.model.answers.agent_response import AgentRequest

MODEL = "stable"
_DIMENSION = 8


@dataclass(frozen=True, slots=True)
class Call:
    """A question that reached the agent.

    Args:
        key: Its idempotency key.
        began_at: When it came, in seconds since 1970.
    """

    key: str
    began_at: float


def answer_text(question: str) -> str:
    """Return the agent's answer: right, nearly right or wrong, always the same to the same question."""
    kind = hashlib.sha256(question.encode()).digest()[0] % 4
    words = [f"w{byte % 32}" for byte in hashlib.sha256(question.encode()).digest()[1 : 6 + kind]]
    return question.replace("q", "a", 1) if kind else " ".join(["not", *words])


class CountingAgent:
    """An agent behind HTTP on this machine, which remembers every question that it was asked.

    It answers questions that begin with "err" with status 500, unless the question is asked once more by
    `--retry-errors`, which marks the key with "@".

    Args:
        delay_s: How long an answer takes.
        doubles_every: Every so many replies one is sent twice; 0 for never.
        reply: Returns the answer to a question.
    """

    def __init__(
        self, delay_s: float = 0.003, doubles_every: int = 0, reply: Callable[[str], str] = answer_text
    ) -> None:
        self.calls: list[Call] = []
        self.delay_s = delay_s
        self.doubles_every = doubles_every
        self.reply = reply
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._awaited: list[tuple[int, asyncio.Event]] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=1000)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """Where it is."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/answer"

    async def until_asked(self, count: int) -> None:
        """Wait until the agent was asked so many questions in all."""
        enough = asyncio.Event()
        self._awaited.append((count, enough))
        if len(self.calls) >= count:
            enough.set()
        await enough.wait()

    async def answer(self, request: AgentRequest) -> str:
        """Return the answer to a question that a client of this process was asked."""
        self._remember(Call(request.idempotency_key, time.time()))
        await asyncio.sleep(self.delay_s)
        return self.reply(request.input)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._answer(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # whoever asked was killed
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")[1:-2]
        except asyncio.IncompleteReadError:
            return False
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head)}
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        key = headers["idempotency-key"]
        self._remember(Call(key, time.time()))
        await asyncio.sleep(self.delay_s)
        fails = body["input"].startswith("err") and "@" not in key
        reply = json.dumps({"error": "out of order"} if fails else {"text": self.reply(body["input"])}).encode()
        status = "500 Internal Server Error" if fails else "200 OK"
        head_text = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(reply)}\r\n\r\n"
        is_doubled = self.doubles_every and len(self.calls) % self.doubles_every == 0
        writer.write((head_text.encode() + reply) * (2 if is_doubled else 1))
        await writer.drain()
        return True

    def _remember(self, call: Call) -> None:
        self.calls.append(call)
        for count, enough in self._awaited:
            if len(self.calls) >= count:
                enough.set()


class StableEmbedder(embedder_pb2_grpc.EmbedderServiceServicer):
    """Gives every text a vector that follows from its characters alone."""

    async def Embed(  # noqa: N802 - the contract's name
        self, request: pb.EmbedRequest, context: grpc.aio.ServicerContext[pb.EmbedRequest, pb.EmbedResponse]
    ) -> pb.EmbedResponse:
        """Return a vector per text."""
        vectors = np.array([_vector(text) for text in request.texts], dtype="<f4")
        return pb.EmbedResponse(
            vectors=vectors.tobytes(),
            dimension=_DIMENSION,
            model=_model(request.model),
        )

    async def Similarity(  # noqa: N802
        self,
        request: pb.SimilarityRequest,
        context: grpc.aio.ServicerContext[pb.SimilarityRequest, pb.SimilarityResponse],
    ) -> pb.SimilarityResponse:
        """Return a cosine per pair."""
        return _similarity(request)

    async def SimilarityStream(  # noqa: N802
        self, request_iterator: Any, context: Any
    ) -> AsyncIterator[pb.SimilarityStreamResponse]:
        """Answer each request, in order."""
        async for request in request_iterator:
            yield pb.SimilarityStreamResponse(request_id=request.request_id, similarity=_similarity(request.similarity))


def _model(name: str) -> pb.ModelInfo:
    return pb.ModelInfo(name=name, revision="r1", precision="exact", engine="stable", english_only=True)


def _similarity(request: pb.SimilarityRequest) -> pb.SimilarityResponse:
    vectors = [[np.array(_vector(text), dtype="<f4") for text in (each.first, each.second)] for each in request.pairs]
    return pb.SimilarityResponse(
        similarities=[pb.PairSimilarity(cosine=cosine(first, second)) for first, second in vectors],
        model=_model(request.model),
    )


def _vector(text: str) -> list[float]:
    vector = [0.0] * _DIMENSION
    for position, letter in enumerate(text):
        vector[(ord(letter) + position) % _DIMENSION] += 1.0 + ord(letter) / 97
    return vector


async def serve_embedder(address: str) -> RpcServer:
    """Serve a StableEmbedder; whoever calls this stops it."""
    server = RpcServer()
    embedder = StableEmbedder()  # type: ignore[abstract]  # the methods that are called are there
    server.add(
        "assay.embedder.v1.EmbedderService",
        lambda grpc: embedder_pb2_grpc.add_EmbedderServiceServicer_to_server(embedder, grpc),
    )
    await server.start(address)
    server.set_serving(True)
    return server
