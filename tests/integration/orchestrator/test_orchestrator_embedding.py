"""The client of the embedder against a small embedder behind the real wire."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from tests.integration.orchestrator.small_embedder import SmallEmbedder, cosine_of, vector_of

from assay.embedder.v1 import embedder_pb2_grpc
from assay.errors import NotFoundError, OverloadedError, UnavailableError
from assay.metrics.core.embedding import EmbeddingSettings
from assay.metrics.core.evidence import WantedTexts
from assay.model.answers.agent_response import AgentResponse
from assay.rpc.channel import open_channel
from assay.rpc.server import RpcServer
from assay_orchestrator.evidence.embedding_client import EmbeddingClient
from assay_orchestrator.runs.planner import Planner
from assay_orchestrator.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from assay.errors import AssayError
    from assay.metrics.core.score import EmbeddingEvidence
    from assay.model.run import RunSpec

    Serve = Callable[..., AbstractAsyncContextManager[EmbeddingClient]]

SETTINGS = EmbeddingSettings("tiny")


@pytest.fixture
def embedder() -> SmallEmbedder:
    """Return the embedder that `serve` serves."""
    return SmallEmbedder("packed")  # type: ignore[abstract]  # the methods that are called are there


def _server(embedder: SmallEmbedder) -> RpcServer:
    server = RpcServer()
    server.add(
        "assay.embedder.v1.EmbedderService",
        lambda grpc: embedder_pb2_grpc.add_EmbedderServiceServicer_to_server(embedder, grpc),
    )
    return server


@pytest.fixture
def serve(tmp_path: Path, embedder: SmallEmbedder) -> Serve:
    """Return a function that serves the embedder and gives a client of it."""

    @asynccontextmanager
    async def serving(*, patience_s: float = 20.0, **options: int) -> AsyncIterator[EmbeddingClient]:
        server = _server(embedder)
        address = await server.start(f"unix:{tmp_path}/e.sock")
        server.set_serving(True)
        try:
            async with open_channel(address) as channel:
                stub = embedder_pb2_grpc.EmbedderServiceStub(channel)
                client = EmbeddingClient(stub, SETTINGS, patience_s=patience_s, scope="red", **options)
                yield client
                await client.aclose()
        finally:
            await server.stop(0)

    return serving


async def gather(client: EmbeddingClient, answer: str, *references: str) -> EmbeddingEvidence:
    """Return the evidence of one row that is compared with references."""
    return await client.gather(AgentResponse(text=answer), WantedTexts(compared=references))


def cosines(evidence: EmbeddingEvidence) -> list[float | None]:
    """Return the cosines of an evidence without an error."""
    assert evidence.error == ""
    return list(evidence.cosines.values())


async def test_a_row_gets_its_cosines_and_what_made_them(serve: Serve, embedder: SmallEmbedder) -> None:
    """The evidence holds the cosine with every reference, bit for bit, what was truncated, and what made it."""
    async with serve() as client:
        evidence = await gather(client, "abc", "b", "c" * 60)
    assert cosines(evidence) == [cosine_of("abc", "b"), cosine_of("abc", "c" * 60)]
    assert evidence.truncated == {"c" * 60}
    assert evidence.answer is None
    assert evidence.origin == {"model": "tiny", "revision": "r1", "precision": "exact", "engine": "packed"}
    assert evidence.english_only
    assert (embedder.calls, embedder.scopes) == ([], {"red"})


async def test_vectors_are_asked_for_where_a_metric_reads_them(serve: Serve, embedder: SmallEmbedder) -> None:
    """Cosines come from the embedder in any case; the answer's vector and those of measured texts beside them."""
    async with serve() as client:
        kept = await client.gather(AgentResponse(text="abc"), WantedTexts(compared=("b",), keeps_answer=True))
        measured = await client.gather(AgentResponse(text="abc"), WantedTexts(measured=("x" * 60,)))
    assert kept.answer is not None
    assert kept.answer.tolist() == vector_of("abc").tolist()
    assert cosines(kept) == [cosine_of("abc", "b")]
    assert measured.others["x" * 60].tolist() == vector_of("x" * 60).tolist()
    assert measured.truncated == {"x" * 60}
    assert embedder.calls == [["abc"], ["x" * 60]]


async def test_pairs_of_many_rows_travel_together(serve: Serve, embedder: SmallEmbedder) -> None:
    """Rows that are ready together share calls of at most 64 pairs over one stream, and each gets its own cosine."""
    async with serve() as client:
        rows = await asyncio.gather(*(gather(client, "x" * (n + 1), f"y{n}") for n in range(200)))
    assert [cosines(row) for row in rows] == [[cosine_of("x" * (n + 1), f"y{n}")] for n in range(200)]
    assert max(len(call) for call in embedder.pair_calls) == 64
    assert len(embedder.pair_calls) <= 6
    assert embedder.streams == 1


async def test_pairs_gather_while_calls_are_in_flight(serve: Serve, embedder: SmallEmbedder) -> None:
    """At most three calls are in flight; what comes meanwhile leaves in one further call."""
    embedder.gate.clear()
    async with serve() as client:
        rows = []
        for n in range(3):
            embedder.called.clear()
            rows.append(asyncio.ensure_future(gather(client, f"first{n}", "r")))
            await embedder.called.wait()
        later = [asyncio.ensure_future(gather(client, f"later{n}", "r")) for n in range(20)]
        await asyncio.sleep(0)
        embedder.gate.set()
        await asyncio.gather(*rows, *later)
    assert [len(call) for call in embedder.pair_calls] == [1, 1, 1, 20]


async def test_runs_of_a_group_share_cosines(serve: Serve, embedder: SmallEmbedder) -> None:
    """Equal pairs of two variants are computed once; the client serves until both have closed it, and then no run."""
    async with serve() as client:
        assert client.join()
        first, second = [cosines(await gather(client, "the same answer", "reference")) for _ in range(2)]
        assert first == second
        assert embedder.pairs == [("the same answer", "reference")]
        await client.aclose()
        await gather(client, "another answer", "reference")
        assert embedder.pairs[1:] == [("another answer", "reference")]
    assert not client.join()


async def test_only_runs_of_one_group_and_team_share_a_client(
    tmp_path: Path, settings_of: Callable[..., RunSpec]
) -> None:
    """Another team with the same group's name has its own, as have runs without a group; an ended group begins anew."""
    settings = Settings(database=tmp_path / "assay.db")
    planner = Planner(settings, embedder_pb2_grpc.EmbedderServiceStub(open_channel(f"unix:{tmp_path}/none")))
    try:

        def of(team: str, group_id: str, model: str = "tiny") -> EmbeddingClient:
            wanted = dataclasses.replace(settings_of(), team=team, group_id=group_id)
            embedding = EmbeddingSettings(model)
            return planner._embedders(wanted, [embedding], "")[embedding]

        first = of("a", "g")
        assert of("a", "g") is first
        others = [of("b", "g"), of("a", "h"), of("a", "g", "large"), of("a", ""), of("a", "")]
        assert len({id(client) for client in (first, *others)}) == 6
        await first.aclose()
        assert of("a", "g") is first
        for _ in range(2):
            await first.aclose()
        assert of("a", "g") is not first
        assert [each._scope for each in (first, others[0], of("", ""))] == ["a", "b", "local"]
    finally:
        await planner.aclose()


async def test_a_pair_is_computed_once(serve: Serve, embedder: SmallEmbedder) -> None:
    """Repeats of a case with the same answer, at once or later, share its cosine."""
    async with serve() as client:
        await asyncio.gather(*(gather(client, f"answer {n % 2}", "the reference") for n in range(5)))
        await gather(client, "answer 1", "the reference")
    assert sorted(embedder.pairs) == [("answer 0", "the reference"), ("answer 1", "the reference")]


async def test_cosines_are_forgotten_once_they_take_too_much_room(serve: Serve, embedder: SmallEmbedder) -> None:
    """The cache is bounded: the pair that was used least lately is computed again."""
    async with serve(cache_bytes=2 * (512 + 20)) as client:
        for reference in ("a", "b", "a", "c", "a", "b"):
            await gather(client, "answer"[:2], reference)
    assert [second for _, second in embedder.pairs] == ["a", "b", "c", "b"]


@pytest.mark.parametrize("problem", [OverloadedError("full", retry_after_s=0.01), UnavailableError("starting")])
async def test_a_busy_embedder_is_asked_again(serve: Serve, embedder: SmallEmbedder, problem: AssayError) -> None:
    """RESOURCE_EXHAUSTED and UNAVAILABLE are waited out, in a stream and in a call."""
    embedder.problems = [problem, problem, problem, problem]
    async with serve() as client:
        found = await client.gather(AgentResponse(text="abc"), WantedTexts(compared=("b",), keeps_answer=True))
    assert cosines(found) == [cosine_of("abc", "b")]
    assert len(embedder.calls) + len(embedder.pair_calls) == 6


async def test_requests_of_a_lost_stream_are_repeated(serve: Serve, embedder: SmallEmbedder) -> None:
    """A stream that ends before its answers costs time alone: the next one carries the same requests."""
    embedder.lose_streams = 2
    async with serve() as client:
        rows = await asyncio.gather(*(gather(client, "x" * (n + 1), "r") for n in range(5)))
    assert [cosines(row) for row in rows] == [[cosine_of("x" * (n + 1), "r")] for n in range(5)]
    assert embedder.streams == 3


async def test_texts_are_sent_ahead_once(serve: Serve, embedder: SmallEmbedder) -> None:
    """References of rows in flight are computed while the agent is asked, each once; it changes no result."""
    async with serve() as client:
        await gather(client, "abc", "first")
        for _ in range(3):
            client.prefetch(["later", "first"])
        await asyncio.sleep(0)
        after = await gather(client, "abc", "later")
    assert cosines(after) == [cosine_of("abc", "later")]
    assert sorted(embedder.pairs) == [("abc", "first"), ("abc", "later"), ("first", "first"), ("later", "later")]


async def test_a_prefetch_that_fails_changes_no_result(serve: Serve, embedder: SmallEmbedder) -> None:
    """It is dropped silently; the row that needs the text asks as if nothing had been sent ahead."""
    async with serve(patience_s=0.0) as client:
        await gather(client, "abc", "first")
        embedder.always = UnavailableError("away")
        embedder.called.clear()
        client.prefetch(["later"])
        await embedder.called.wait()
        assert (await gather(client, "other", "first")).error == "embedder_unavailable"
        embedder.always = None
        assert cosines(await gather(client, "later", "later")) == [cosine_of("later", "later")]


async def test_patience_ends_in_an_error_of_the_row(serve: Serve, embedder: SmallEmbedder) -> None:
    """An embedder that stays away costs the rows their evidence, with a reason, and no exception."""
    embedder.always = UnavailableError("starting")
    async with serve(patience_s=0.0) as client:
        rows = await asyncio.gather(*(gather(client, f"answer {n}", "reference") for n in range(3)))
    assert [(row.error, dict(row.cosines), row.settings) for row in rows] == [
        ("embedder_unavailable", {}, SETTINGS)
    ] * 3


async def test_a_pair_that_failed_is_asked_for_again(serve: Serve, embedder: SmallEmbedder) -> None:
    """A failure is not kept in the place of a cosine, nor does it take room in the cache for ever."""
    embedder.always = OverloadedError("full", retry_after_s=0.01)
    async with serve(patience_s=0.0) as client:
        for _ in range(3):
            assert (await gather(client, "a", "reference")).error == "embedder_unavailable"
        embedder.always = None
        assert cosines(await gather(client, "a", "reference")) == [cosine_of("a", "reference")]
        assert client._cosines._kept_bytes == 4 * len("areference") + 512


async def test_an_error_that_a_retry_cannot_mend_is_final(serve: Serve, embedder: SmallEmbedder) -> None:
    """Other errors are not retried; their reason is the evidence's error."""
    embedder.always = NotFoundError("no such model", reason="MODEL_NOT_FOUND")
    async with serve() as client:
        assert (await gather(client, "a", "b")).error == "model_not_found"
    assert len(embedder.pair_calls) == 1


async def test_an_answer_that_does_not_fit_the_request_is_an_error(serve: Serve, embedder: SmallEmbedder) -> None:
    """Too few cosines or bytes of vectors cost the rows of that call, and no row waits for ever."""
    embedder.short = True
    async with serve() as client:
        assert (await gather(client, "a", "b")).error == "embedder_answer_invalid"
        found = await client.gather(AgentResponse(text="a"), WantedTexts(keeps_answer=True))
        assert found.error == "embedder_answer_invalid"
        embedder.short = False
        assert cosines(await gather(client, "a", "b")) == [cosine_of("a", "b")]


async def test_an_embedder_that_starts_late_is_waited_for(tmp_path: Path, embedder: SmallEmbedder) -> None:
    """A client that is there before its embedder gets its cosines once that listens."""
    server = _server(embedder)
    async with open_channel(f"unix:{tmp_path}/late.sock") as channel:
        client = EmbeddingClient(embedder_pb2_grpc.EmbedderServiceStub(channel), SETTINGS, patience_s=20.0)
        row = asyncio.ensure_future(gather(client, "abc", "b"))
        await asyncio.sleep(0)
        await server.start(f"unix:{tmp_path}/late.sock")
        assert cosines(await row) == [cosine_of("abc", "b")]
        await client.aclose()
    await server.stop(0)


async def test_closing_lets_no_row_wait(serve: Serve, embedder: SmallEmbedder) -> None:
    """Closing cancels rows whose texts are in flight as well as those that have not left yet."""
    embedder.gate.clear()
    async with serve() as client:
        rows = []
        for n in range(3):
            embedder.called.clear()
            rows.append(asyncio.ensure_future(gather(client, f"sent {n}", "reference")))
            await embedder.called.wait()
        rows.append(asyncio.ensure_future(gather(client, "not sent", "reference")))
        await asyncio.sleep(0)
        await client.aclose()
        async with asyncio.timeout(20):
            outcomes = await asyncio.gather(*rows, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 4
        embedder.gate.set()
