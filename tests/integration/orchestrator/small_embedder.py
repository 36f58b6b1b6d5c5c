"""An embedder for tests: its vectors are made of a text's length and first letter."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.embedder.v1 import embedder_pb2 as pb
from assay.embedder.v1 import embedder_pb2_grpc
from assay.errors import AssayError
from assay.metrics.core.similarity import cosine
from assay.rpc.status import to_status
from assay.rpc.streams import answered

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from numpy.typing import NDArray

WINDOW = 50


def vector_of(text: str) -> NDArray[np.float32]:
    """Return a text's vector."""
    return np.array([len(text), ord(text[0]) if text else 0], dtype="<f4")


def cosine_of(first: str, second: str) -> float | None:
    """Return the cosine of two texts."""
    return cosine(vector_of(first), vector_of(second))


class SmallEmbedder(embedder_pb2_grpc.EmbedderServiceServicer):
    """Records its requests; fails first with what `problems` holds, then with `always` where that is set.

    Args:
        engine: The engine that it names; empty for one that names none.
    """

    def __init__(self, engine: str = "") -> None:
        self.engine = engine
        self.calls: list[list[str]] = []
        self.pair_calls: list[list[tuple[str, str]]] = []
        self.scopes: set[str] = set()
        self.streams = 0
        self.problems: list[AssayError] = []
        self.always: AssayError | None = None
        self.preflight: Exception | None = None
        self.short = False
        self.lose_streams = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.called = asyncio.Event()

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """All pairs that were asked for, in order."""
        return [pair for call in self.pair_calls for pair in call]

    async def Embed(self, request: pb.EmbedRequest, context: Any) -> pb.EmbedResponse:  # noqa: N802
        """Return the vectors of some texts."""
        texts = list(request.texts)
        self.calls.append(texts)
        await self._admit(request.scope)
        vectors = np.stack([vector_of(text) for text in texts])
        return pb.EmbedResponse(
            vectors=vectors[1:].tobytes() if self.short else vectors.tobytes(),
            dimension=2,
            truncated=[index for index, text in enumerate(texts) if len(text) > WINDOW],
            model=self._model(request.model),
        )

    async def Similarity(self, request: pb.SimilarityRequest, context: Any) -> pb.SimilarityResponse:  # noqa: N802
        """Answer the preflight check; runs stream."""
        if self.preflight is not None:
            raise self.preflight
        return pb.SimilarityResponse(model=self._model(request.model))

    async def SimilarityStream(  # noqa: N802
        self, request_iterator: Any, context: Any
    ) -> AsyncIterator[pb.SimilarityStreamResponse]:
        """Answer each request of a stream; `lose_streams` of them end with their first request instead."""
        self.streams += 1
        is_lost = self.streams <= self.lose_streams

        async def answer(request: pb.SimilarityStreamRequest) -> pb.SimilarityStreamResponse:
            if is_lost:
                raise ConnectionResetError
            return await self._answer(request)

        try:
            async for response in answered(request_iterator, answer, in_flight=16, stopping=asyncio.Event()):
                yield response
        except ConnectionResetError:
            return

    async def _answer(self, request: pb.SimilarityStreamRequest) -> pb.SimilarityStreamResponse:
        pairs = [(pair.first, pair.second) for pair in request.similarity.pairs]
        self.pair_calls.append(pairs)
        response = pb.SimilarityStreamResponse(request_id=request.request_id)
        try:
            await self._admit(request.similarity.scope)
        except AssayError as problem:
            response.error.CopyFrom(to_status(problem))
            return response
        found = [
            pb.PairSimilarity(
                cosine=cosine_of(first, second),
                first_truncated=len(first) > WINDOW,
                second_truncated=len(second) > WINDOW,
            )
            for first, second in pairs
        ]
        response.similarity.CopyFrom(
            pb.SimilarityResponse(similarities=found[self.short :], model=self._model(request.similarity.model))
        )
        return response

    async def _admit(self, scope: str) -> None:
        self.scopes.add(scope)
        self.called.set()
        await self.gate.wait()
        if self.problems:
            raise self.problems.pop(0)
        if self.always is not None:
            raise self.always

    def _model(self, name: str) -> pb.ModelInfo:
        return pb.ModelInfo(name=name, revision="r1", precision="exact", engine=self.engine, english_only=True)
