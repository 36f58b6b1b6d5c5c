"""The client of the embedder against a small embedder behind the real wire."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest

from assay.errors import NotFoundError, OverloadedError, UnavailableError
from assay.model.agent_response import AgentResponse
from assay.rpc.channel import open_channel
from assay.rpc.server import RpcServer
from assay.v1 import embedder_pb2 as pb
from assay.v1 import embedder_pb2_grpc
from assay_orchestrator.evidence.embedding_client import EmbeddingClient
from assay_orchestrator.runs.planner import Planner
from assay_orchestrator.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    import grpc.aio

    from assay.errors import AssayError
    from assay.metrics.core.score import EmbeddingEvidence
    from assay.model.run import RunSettings

    Serve = Callable[..., AbstractAsyncContextManager[EmbeddingClient]]


class Embedder(embedder_pb2_grpc.EmbedderServiceServicer):
    """Gives a text the vector (its length, its first letter); fails first with what is written in `problems`."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.problems: list[AssayError] = []
        self.always: AssayError | None = None
        self.short = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.called = asyncio.Event()

    async def Embed(  # noqa: N802
        self,
        request: pb.EmbedRequest,
        context: grpc.aio.ServicerContext[pb.EmbedRequest, pb.EmbedResponse],
    ) -> pb.EmbedResponse:
        texts = list(request.texts)
        self.calls.append(texts)
        self.called.set()
        await self.gate.wait()
        if self.always is not None:
            raise self.always
        if self.problems:
            raise self.problems.pop(0)
        vectors = np.array([[len(text), ord(text[0]) if text else 0] for text in texts], dtype="<f4")
        return pb.EmbedResponse(
            vectors=vectors[1:].tobytes() if self.short else vectors.tobytes(),
            dimension=2,
            truncated=[index for index, text in enumerate(texts) if len(text) > 50],
            model=pb.ModelInfo(name=request.model, revision="r1", english_only=True),
        )


@pytest.fixture
def embedder() -> Embedder:
    """Return the embedder that `serve` serves."""
    return Embedder()  # type: ignore[abstract]  # Embed alone is called


@pytest.fixture
def serve(tmp_path: Path, embedder: Embedder) -> Serve:
    """Return a function that serves the embedder and gives a client of it."""

    @asynccontextmanager
    async def serving(*, patience_s: float = 20.0, **options: int) -> AsyncIterator[EmbeddingClient]:
        server = RpcServer()
        server.add(
            "assay.v1.EmbedderService",
            lambda grpc: embedder_pb2_grpc.add_EmbedderServiceServicer_to_server(embedder, grpc),
        )
        address = await server.start(f"unix:{tmp_path}/e.sock")
        server.set_serving(True)
        try:
            async with open_channel(address) as channel:
                stub = embedder_pb2_grpc.EmbedderServiceStub(channel)
                client = EmbeddingClient(stub, "tiny", patience_s=patience_s, **options)
                yield client
                await client.aclose()
        finally:
            await server.stop(0)

    return serving


async def gather(client: EmbeddingClient, answer: str, *references: str) -> EmbeddingEvidence:
    """Return the evidence of one row."""
    return await client.gather(AgentResponse(text=answer), references)


def vectors(evidence: EmbeddingEvidence) -> list[list[float]]:
    """Return the vectors of the answer and its references."""
    assert evidence.error == ""
    assert evidence.answer is not None
    return [evidence.answer.tolist(), *(reference.tolist() for reference in evidence.references)]


async def test_a_row_gets_its_vectors_and_what_made_them(serve: Serve) -> None:
    """The evidence holds the answer's and every reference's vector, truncation, model and revision."""
    async with serve() as client:
        evidence = await gather(client, "abc", "b", "c" * 60)
    assert vectors(evidence) == [[3, ord("a")], [1, ord("b")], [60, ord("c")]]
    assert (evidence.answer_truncated, evidence.reference_truncated) == (False, True)
    assert (evidence.model, evidence.revision, evidence.english_only) == ("tiny", "r1", True)


async def test_texts_of_many_rows_travel_together(serve: Serve, embedder: Embedder) -> None:
    """Rows that are ready together share calls of at most 64 texts, and each gets its own vectors."""
    async with serve() as client:
        rows = await asyncio.gather(*(gather(client, "x" * (n + 1), "y" * (n + 1)) for n in range(200)))
    assert [vectors(row) for row in rows] == [[[n + 1, ord("x")], [n + 1, ord("y")]] for n in range(200)]
    assert max(len(call) for call in embedder.calls) == 64
    assert len(embedder.calls) <= 9


async def test_texts_gather_while_calls_are_under_way(serve: Serve, embedder: Embedder) -> None:
    """At most three calls are under way; what comes meanwhile leaves in one further call."""
    embedder.gate.clear()
    async with serve() as client:
        rows = []
        for n in range(3):
            embedder.called.clear()
            rows.append(asyncio.ensure_future(gather(client, f"first{n}")))
            await embedder.called.wait()
        later = [asyncio.ensure_future(gather(client, f"later{n}")) for n in range(20)]
        await asyncio.sleep(0)
        embedder.gate.set()
        await asyncio.gather(*rows, *later)
    assert [len(call) for call in embedder.calls] == [1, 1, 1, 20]


async def test_runs_of_a_group_share_vectors(serve: Serve, embedder: Embedder) -> None:
    """Equal texts of two variants are embedded once; the client serves until both have closed it, and then no run."""
    async with serve() as client:
        assert client.join()
        first, second = [vectors(await gather(client, "the same answer", "reference")) for _ in range(2)]
        assert first == second
        assert embedder.calls == [["the same answer", "reference"]]
        await client.aclose()
        assert vectors(await gather(client, "another answer", "reference"))[1] == first[1]
        assert embedder.calls[1:] == [["another answer"]]
    assert not client.join()


async def test_only_runs_of_one_group_and_team_share_a_client(
    tmp_path: Path, settings_of: Callable[..., RunSettings]
) -> None:
    """Another team with the same group's name has its own, as have runs without a group; an ended group begins anew."""
    settings = Settings(database=tmp_path / "assay.db")
    planner = Planner(settings, embedder_pb2_grpc.EmbedderServiceStub(open_channel(f"unix:{tmp_path}/none")))
    try:

        def of(team: str, group_id: str, model: str = "tiny") -> EmbeddingClient:
            wanted = dataclasses.replace(settings_of(), team=team, group_id=group_id)
            return planner._embedders(wanted, [model])[model]

        first = of("a", "g")
        assert of("a", "g") is first
        others = [of("b", "g"), of("a", "h"), of("a", "g", "large"), of("a", ""), of("a", "")]
        assert len({id(client) for client in (first, *others)}) == 6
        await first.aclose()
        assert of("a", "g") is first
        for _ in range(2):
            await first.aclose()
        assert of("a", "g") is not first
    finally:
        await planner.aclose()


async def test_a_reference_is_embedded_once(serve: Serve, embedder: Embedder) -> None:
    """Repeats of a case, at once or later, share the vector of their reference."""
    async with serve() as client:
        await asyncio.gather(*(gather(client, f"answer {n}", "the reference") for n in range(5)))
        await gather(client, "later", "the reference")
    sent = [text for call in embedder.calls for text in call]
    assert sent.count("the reference") == 1
    assert len(sent) == 7


async def test_references_are_forgotten_once_they_take_too_much_room(serve: Serve, embedder: Embedder) -> None:
    """The cache is bounded: the reference that was used least lately is embedded again."""
    async with serve(cache_bytes=3 * (4096 + 10)) as client:
        for reference in ("a", "b", "a", "c", "a", "b"):
            await gather(client, "answer", reference)
    sent = [text for call in embedder.calls for text in call if text != "answer"]
    assert sent == ["a", "b", "c", "b"]


@pytest.mark.parametrize("problem", [OverloadedError("full", retry_after_s=0.01), UnavailableError("starting")])
async def test_an_embedder_that_is_busy_is_asked_again(serve: Serve, embedder: Embedder, problem: AssayError) -> None:
    """RESOURCE_EXHAUSTED and UNAVAILABLE are waited out."""
    embedder.problems = [problem, problem]
    async with serve() as client:
        assert vectors(await gather(client, "abc")) == [[3, ord("a")]]
    assert len(embedder.calls) == 3


async def test_patience_ends_in_an_error_of_the_row(serve: Serve, embedder: Embedder) -> None:
    """An embedder that stays away costs the rows their evidence, with a reason, and no exception."""
    embedder.always = UnavailableError("starting")
    async with serve(patience_s=0.0) as client:
        rows = await asyncio.gather(*(gather(client, f"answer {n}", "reference") for n in range(3)))
    assert [(row.error, row.answer, row.references) for row in rows] == [("embedder_unavailable", None, ())] * 3
    assert rows[0].model == "tiny"


async def test_a_reference_that_failed_is_asked_for_again(serve: Serve, embedder: Embedder) -> None:
    """A failure is not kept in the place of a vector, nor does it take room in the cache for ever."""
    embedder.always = OverloadedError("full", retry_after_s=0.01)
    async with serve(patience_s=0.0) as client:
        for _ in range(3):
            assert (await gather(client, "a", "reference")).error == "embedder_unavailable"
        embedder.always = None
        assert vectors(await gather(client, "a", "reference"))[1] == [9, ord("r")]
        assert client._kept_bytes == len("a") + len("reference") + 2 * 4096


async def test_an_answer_that_asking_again_cannot_mend_is_final(serve: Serve, embedder: Embedder) -> None:
    """Other errors are not retried; their reason is the evidence's error."""
    embedder.always = NotFoundError("no such model", reason="MODEL_NOT_FOUND")
    async with serve() as client:
        assert (await gather(client, "a", "b")).error == "model_not_found"
    assert len(embedder.calls) <= 2


async def test_vectors_that_do_not_fit_the_texts_are_an_error(serve: Serve, embedder: Embedder) -> None:
    """An embedder that answers with too few bytes costs the rows of that call, and nobody waits for ever."""
    embedder.short = True
    async with serve() as client:
        assert (await gather(client, "a", "b")).error == "embedder_answer_invalid"
        embedder.short = False
        assert vectors(await gather(client, "a")) == [[1, ord("a")]]


async def test_an_embedder_that_starts_late_is_waited_for(tmp_path: Path, embedder: Embedder) -> None:
    """A client that is there before its embedder gets its vectors once that listens."""
    server = RpcServer()
    server.add(
        "assay.v1.EmbedderService",
        lambda grpc: embedder_pb2_grpc.add_EmbedderServiceServicer_to_server(embedder, grpc),
    )
    async with open_channel(f"unix:{tmp_path}/late.sock") as channel:
        client = EmbeddingClient(embedder_pb2_grpc.EmbedderServiceStub(channel), "tiny", patience_s=20.0)
        row = asyncio.ensure_future(gather(client, "abc"))
        await asyncio.sleep(0)
        await server.start(f"unix:{tmp_path}/late.sock")
        assert vectors(await row) == [[3, ord("a")]]
        await client.aclose()
    await server.stop(0)


async def test_closing_lets_nobody_wait(serve: Serve, embedder: Embedder) -> None:
    """Closing cancels rows whose texts are under way as well as those that have not left yet."""
    embedder.gate.clear()
    async with serve() as client:
        rows = []
        for n in range(3):
            embedder.called.clear()
            rows.append(asyncio.ensure_future(gather(client, f"sent {n}", "reference")))
            await embedder.called.wait()
        rows.append(asyncio.ensure_future(gather(client, "not sent")))
        await asyncio.sleep(0)
        await client.aclose()
        async with asyncio.timeout(20):
            outcomes = await asyncio.gather(*rows, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 4
        embedder.gate.set()
