"""The EmbedderService: protobuf messages on the outside, texts and arrays inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.errors import AssayError, InvalidInputError, Problem
from assay.rpc.interceptors import presentable
from assay.rpc.status import code_of
from assay.rpc.streams import answered
from assay.v1 import embedder_pb2, embedder_pb2_grpc
from assay_embedder.settings import MAX_TEXTS
from assay_embedder.similarity import cosine

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Sequence

    from assay_embedder.batcher import Embedded
    from assay_embedder.models import Description
    from assay_embedder.registry import Registry

SERVICE_NAME = "assay.v1.EmbedderService"
MAX_PAIRS = 256
MAX_TEXT_CHARS = 100_000
_MAX_VECTOR_BYTES = 4 * 1024 * 1024 - 64 * 1024  # what one answer holds, beside its other fields


class EmbedderService(embedder_pb2_grpc.EmbedderServiceServicer):
    """Answers for the models of a registry.

    Args:
        registry: The models.
        stream_in_flight: Requests of one stream that are worked on at once.
        stopping: Set when the process stops; streams then end.
    """

    def __init__(self, registry: Registry, *, stream_in_flight: int, stopping: asyncio.Event) -> None:
        self._registry = registry
        self._stream_in_flight = stream_in_flight
        self._stopping = stopping

    async def Embed(self, request: embedder_pb2.EmbedRequest, context: Any) -> embedder_pb2.EmbedResponse:  # noqa: N802
        """Return one vector per text."""
        return await self._embed(request)

    async def Similarity(  # noqa: N802
        self, request: embedder_pb2.SimilarityRequest, context: Any
    ) -> embedder_pb2.SimilarityResponse:
        """Return the cosine of each pair."""
        return await self._similarity(request)

    async def EmbedStream(  # noqa: N802
        self, request_iterator: Any, context: Any
    ) -> AsyncIterator[embedder_pb2.EmbedStreamResponse]:
        """Answer each request as soon as it is ready."""

        async def answer(request: embedder_pb2.EmbedStreamRequest) -> embedder_pb2.EmbedStreamResponse:
            response = embedder_pb2.EmbedStreamResponse(request_id=request.request_id)
            try:
                response.embed.CopyFrom(await self._embed(request.embed))
            except Exception as error:  # noqa: BLE001 - the boundary of a request: `presentable` logs a defect
                response.error.CopyFrom(_error(error, "EmbedStream"))
            return response

        async for response in self._answered(request_iterator, answer):
            yield response

    async def SimilarityStream(  # noqa: N802
        self, request_iterator: Any, context: Any
    ) -> AsyncIterator[embedder_pb2.SimilarityStreamResponse]:
        """Answer each request as soon as it is ready."""

        async def answer(request: embedder_pb2.SimilarityStreamRequest) -> embedder_pb2.SimilarityStreamResponse:
            response = embedder_pb2.SimilarityStreamResponse(request_id=request.request_id)
            try:
                response.similarity.CopyFrom(await self._similarity(request.similarity))
            except Exception as error:  # noqa: BLE001 - the boundary of a request: `presentable` logs a defect
                response.error.CopyFrom(_error(error, "SimilarityStream"))
            return response

        async for response in self._answered(request_iterator, answer):
            yield response

    async def ListModels(  # noqa: N802
        self, request: embedder_pb2.ListModelsRequest, context: Any
    ) -> embedder_pb2.ListModelsResponse:
        """Name the models that are listed or loaded."""
        found = [
            _model_info(description) if description else embedder_pb2.ModelInfo(name=name)
            for name, description in self._registry.listed()
        ]
        return embedder_pb2.ListModelsResponse(models=found)

    async def _embed(self, request: embedder_pb2.EmbedRequest) -> embedder_pb2.EmbedResponse:
        texts = list(request.texts)
        _check_count("texts", len(texts), MAX_TEXTS)
        _check_lengths([(f"texts[{at}]", text) for at, text in enumerate(texts)])
        served = await self._registry.get(request.model)
        _check_count("texts", len(texts), _MAX_VECTOR_BYTES // (4 * served.description.dimension))
        embedded = await served.embed(texts)
        return embedder_pb2.EmbedResponse(
            vectors=embedded.vectors.astype("<f4").tobytes(),
            dimension=embedded.vectors.shape[1],
            truncated=embedded.truncated,
            model=_model_info(served.description),
            timing=_timing(embedded),
        )

    async def _similarity(self, request: embedder_pb2.SimilarityRequest) -> embedder_pb2.SimilarityResponse:
        _check_count("pairs", len(request.pairs), MAX_PAIRS)
        named = [
            (f"pairs[{at}].{side}", text)
            for at, pair in enumerate(request.pairs)
            for side, text in (("first", pair.first), ("second", pair.second))
        ]
        _check_lengths(named)
        served = await self._registry.get(request.model)
        embedded = await served.embed([text for _, text in named])
        truncated = set(embedded.truncated)
        return embedder_pb2.SimilarityResponse(
            similarities=[
                embedder_pb2.PairSimilarity(
                    cosine=cosine(embedded.vectors[at], embedded.vectors[at + 1]),
                    first_truncated=at in truncated,
                    second_truncated=at + 1 in truncated,
                )
                for at in range(0, len(named), 2)
            ],
            model=_model_info(served.description),
            timing=_timing(embedded),
        )

    def _answered(self, requests: Any, answer: Any) -> AsyncIterator[Any]:
        return answered(requests, answer, in_flight=self._stream_in_flight, stopping=self._stopping)


def _check_count(field: str, count: int, most: int) -> None:
    if not 1 <= count <= most:
        raise InvalidInputError([Problem(f"{count} are given; give 1 to {most}", field=field)])


def _check_lengths(named: Sequence[tuple[str, str]]) -> None:
    problems = [
        Problem(f"has {len(text)} characters; at most {MAX_TEXT_CHARS} are taken", field=field)
        for field, text in named
        if len(text) > MAX_TEXT_CHARS
    ]
    if problems:
        raise InvalidInputError(problems)


def _model_info(description: Description) -> embedder_pb2.ModelInfo:
    return embedder_pb2.ModelInfo(
        name=description.name,
        revision=description.revision,
        dimension=description.dimension,
        max_tokens=description.max_tokens,
        device=description.device,
        precision=description.precision,
        prefix=description.prefix,
        english_only=description.english_only,
        loaded=True,
    )


def _timing(embedded: Embedded) -> embedder_pb2.EmbedTiming:
    return embedder_pb2.EmbedTiming(
        queue_ms=embedded.queue_ms, tokenize_ms=embedded.tokenize_ms, inference_ms=embedded.inference_ms
    )


def _error(error: Exception, method: str) -> embedder_pb2.EmbedError:
    shown: AssayError = presentable(error, method)
    code: int = code_of(shown).value[0]
    return embedder_pb2.EmbedError(code=code, reason=shown.reason, message=shown.message)
