"""Scoring with an embedder that runs already, over the real wire."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Any

import pytest

import assay
from assay.embedder.v1 import embedder_pb2, embedder_pb2_grpc
from assay.errors import OverloadedError, UnavailableError
from assay.metrics.core.embedding import EmbeddingSettings
from assay.rpc.server import RpcServer
from assay.scoring.vectors import ServiceVectors

if TYPE_CHECKING:
    from pathlib import Path

SERVICE = "assay.embedder.v1.EmbedderService"


class CountingEmbedder(embedder_pb2_grpc.EmbedderServiceServicer):
    """Answers with the length of each text; refuses the first call as overloaded."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    async def Embed(self, request: Any, context: Any) -> embedder_pb2.EmbedResponse:  # noqa: N802
        """Return one vector per text."""
        self.calls.append(len(request.texts))
        if len(self.calls) == 1:
            raise OverloadedError("too many texts wait", retry_after_s=0.01)
        return embedder_pb2.EmbedResponse(
            vectors=b"".join(struct.pack("<2f", 1.0, len(text)) for text in request.texts),
            dimension=2,
            truncated=[0],
            model=embedder_pb2.ModelInfo(name=request.model, revision="r1", english_only=True),
        )


async def test_rows_are_scored_with_an_embedder_that_runs(tmp_path: Path) -> None:
    """A busy embedder is asked again; texts travel at most 64 a call; what it says of the model is in the score."""
    service = CountingEmbedder()  # type: ignore[abstract]  # the other methods answer UNIMPLEMENTED
    server = RpcServer()
    server.add(SERVICE, lambda grpc: embedder_pb2_grpc.add_EmbedderServiceServicer_to_server(service, grpc))
    address = await server.start(f"unix:{tmp_path / 'e.sock'}")
    server.set_serving(True)
    rows = [{"answer": f"answer {i:02}", "reference": [f"right {i:02}", f"other right {i:02}"]} for i in range(32)]
    try:
        scores = await asyncio.to_thread(
            lambda: list(assay.score_many("semantic_similarity", rows, embedder=address, parameters={"model": "m"}))
        )
    finally:
        await server.stop(0)
    assert service.calls == [64, 64, 32]
    assert all(score.value is not None and score.value > 0.9 for score in scores)
    assert (scores[0].detail["model"], scores[0].detail["revision"]) == ("m", "r1")
    assert [score.detail["truncated"] for score in scores[:2]] == [True, False]


async def test_an_embedder_that_does_not_answer_is_named(tmp_path: Path) -> None:
    """Nothing is scored, and the message says which address was tried; nothing is left open."""
    embedder = ServiceVectors(f"unix:{tmp_path / 'gone.sock'}", [], server_timeout_s=0.2)
    with pytest.raises(UnavailableError, match=r"no embedder answers at unix:.*gone\.sock"):
        await asyncio.to_thread(embedder.embed, ["a"], EmbeddingSettings("m"))
