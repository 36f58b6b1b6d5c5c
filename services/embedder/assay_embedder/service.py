"""The gRPC EmbedderService, which turns protobuf messages into texts and arrays and back."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from assay.embedder.v1 import embedder_pb2, embedder_pb2_grpc
from assay.errors import InvalidInputError, Problem
from assay.rpc.interceptors import presentable
from assay.rpc.status import to_status
from assay.rpc.streams import answered
from assay.telemetry.tracing import span
from assay_embedder.embeddings import EmbedOptions, offered_dimensions
from assay_embedder.settings import MAX_TEXTS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from assay_embedder.models.loading import Description
    from assay_embedder.queues.jobs import Computed, Timing
    from assay_embedder.registry import Registry

SERVICE_NAME = "assay.embedder.v1.EmbedderService"
MAX_PAIRS = 256
MAX_TEXT_CHARS = 100_000
MAX_SCOPE_CHARS = 256
_MAX_VECTOR_BYTES = 4 * 1024 * 1024 - 64 * 1024  # what one answer holds, beside its other fields


if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from numpy.typing import NDArray

    Name = TypeVar("Name", bound=Hashable)


def cosine(first: NDArray[Any], second: NDArray[Any]) -> float | None:
    """Return u·v / (‖u‖‖v‖), computed in float64 and clamped to [-1, 1].

    Args:
        first: A vector.
        second: A vector of the same dimension.

    Returns:
        The cosine; None when a vector is all zero, because its direction is undefined.
    """
    return cosines({0: first, 1: second}, [(0, 1)])[0]


def cosines(vectors: Mapping[Name, NDArray[Any]], pairs: Iterable[tuple[Name, Name]]) -> list[float | None]:
    """Return the cosine of each pair; the norm of each vector is computed once.

    Args:
        vectors: Vectors of one dimension, by name.
        pairs: Names of two vectors each.
    """
    exact = {name: vector.astype(np.float64) for name, vector in vectors.items()}
    norms = {name: float(np.linalg.norm(vector)) for name, vector in exact.items()}

    def of_pair(first: Name, second: Name) -> float | None:
        product = norms[first] * norms[second]
        if product == 0:
            return None
        return min(1.0, max(-1.0, float(exact[first] @ exact[second]) / product))

    return [of_pair(first, second) for first, second in pairs]


class EmbedderService(embedder_pb2_grpc.EmbedderServiceServicer):
    """Answers requests with the models of a registry.

    Args:
        registry: The models.
        stream_in_flight: Requests of one stream that are worked on at once.
        stopping: Set when the process stops; streams then end.
    """

    def __init__(self, registry: Registry, *, stream_in_flight: int, stopping: asyncio.Event) -> None:
        self._registry = registry
        self._stream_in_flight = stream_in_flight
        self._stopping = stopping

    async def Embed(self, request: embedder_pb2.EmbedRequest, context: Any) -> embedder_pb2.EmbedResponse:
        """Return one vector per text."""
        return await self._embed(request, waits=False)

    async def Similarity(
        self, request: embedder_pb2.SimilarityRequest, context: Any
    ) -> embedder_pb2.SimilarityResponse:
        """Return the cosine of each pair."""
        return await self._similarity(request, waits=False)

    async def DeleteScope(
        self, request: embedder_pb2.DeleteScopeRequest, context: Any
    ) -> embedder_pb2.DeleteScopeResponse:
        """Delete the cached vectors of a scope."""
        deleted, remaining = await self._registry.delete_scope(request.scope)
        return embedder_pb2.DeleteScopeResponse(deleted_counts=deleted, remaining_counts=remaining)

    async def EmbedStream(self, request_iterator: Any, context: Any) -> AsyncIterator[embedder_pb2.EmbedStreamResponse]:
        """Answer each request as soon as it is ready."""

        async def answer(request: embedder_pb2.EmbedStreamRequest) -> embedder_pb2.EmbedStreamResponse:
            response = embedder_pb2.EmbedStreamResponse(request_id=request.request_id)
            try:
                with span("EmbedderService/EmbedStream", kind="server", parent=request.traceparent):
                    response.embed.CopyFrom(await self._embed(request.embed, waits=True))
            except Exception as error:  # noqa: BLE001 - the boundary of a request: `presentable` logs a defect
                response.error.CopyFrom(to_status(presentable(error, "EmbedStream")))
            return response

        async for response in self._answered(request_iterator, answer):
            yield response

    async def SimilarityStream(
        self, request_iterator: Any, context: Any
    ) -> AsyncIterator[embedder_pb2.SimilarityStreamResponse]:
        """Answer each request as soon as it is ready."""

        async def answer(request: embedder_pb2.SimilarityStreamRequest) -> embedder_pb2.SimilarityStreamResponse:
            response = embedder_pb2.SimilarityStreamResponse(request_id=request.request_id)
            try:
                with span("EmbedderService/SimilarityStream", kind="server", parent=request.traceparent):
                    response.similarity.CopyFrom(await self._similarity(request.similarity, waits=True))
            except Exception as error:  # noqa: BLE001 - the boundary of a request: `presentable` logs a defect
                response.error.CopyFrom(to_status(presentable(error, "SimilarityStream")))
            return response

        async for response in self._answered(request_iterator, answer):
            yield response

    async def ListModels(
        self, request: embedder_pb2.ListModelsRequest, context: Any
    ) -> embedder_pb2.ListModelsResponse:
        """List the models that are listed or loaded."""
        models = [
            _model_info(description) if description else embedder_pb2.ModelInfo(name=name)
            for name, description in self._registry.listed()
        ]
        return embedder_pb2.ListModelsResponse(models=models)

    async def _embed(self, request: embedder_pb2.EmbedRequest, *, waits: bool) -> embedder_pb2.EmbedResponse:
        texts = list(request.texts)
        _check_count("texts", len(texts), MAX_TEXTS)
        options = _options(request, texts, "texts[{}]".format, waits=waits)
        async with self._registry.use(request.model) as served:
            dimension = min(options.dimension, served.description.dimension) or served.description.dimension
            _check_count("texts", len(texts), _MAX_VECTOR_BYTES // (4 * dimension))
            embedded = await served.embed(texts, options)
        computed = [embedded.computed[text] for text in texts]
        return embedder_pb2.EmbedResponse(
            vectors=b"".join([embedded.vectors[text].data for text in texts]),
            dimension=dimension,
            truncated=[at for at, text_result in enumerate(computed) if text_result.truncated],
            model=_model_info(served.description),
            timing=_timing(embedded.timing),
            token_counts=[text_result.token_count for text_result in computed],
            window_counts=[text_result.window_count for text_result in computed] if options.windowed else [],
        )

    async def _similarity(
        self, request: embedder_pb2.SimilarityRequest, *, waits: bool
    ) -> embedder_pb2.SimilarityResponse:
        _check_count("pairs", len(request.pairs), MAX_PAIRS)
        pairs = [(pair.first, pair.second) for pair in request.pairs]
        texts = [text for pair in pairs for text in pair]
        options = _options(request, texts, _side, waits=waits)
        async with self._registry.use(request.model) as served:
            embedded = await served.embed(texts, options)
        return embedder_pb2.SimilarityResponse(
            similarities=[
                _pair_similarity(embedded.computed, pair, cosine, windowed=options.windowed)
                for pair, cosine in zip(pairs, cosines(embedded.vectors, pairs), strict=True)
            ],
            model=_model_info(served.description),
            timing=_timing(embedded.timing),
        )

    def _answered(self, requests: Any, answer: Any) -> AsyncIterator[Any]:
        return answered(requests, answer, in_flight=self._stream_in_flight, stopping=self._stopping)


def _check_count(field: str, count: int, most: int) -> None:
    if not 1 <= count <= most:
        raise InvalidInputError([Problem(f"{count} are given; give 1 to {most}", field=field)])


def _options(
    request: embedder_pb2.EmbedRequest | embedder_pb2.SimilarityRequest,
    texts: Sequence[str],
    field_of: Callable[[int], str],
    *,
    waits: bool,
) -> EmbedOptions:
    problems = [
        Problem(f"has {len(text)} characters; at most {MAX_TEXT_CHARS} are taken", field=field_of(at))
        for at, text in enumerate(texts)
        if len(text) > MAX_TEXT_CHARS
    ]
    if len(request.scope) > MAX_SCOPE_CHARS:
        message = f"has {len(request.scope)} characters; at most {MAX_SCOPE_CHARS} are taken"
        problems.append(Problem(message, field="scope"))
    if problems:
        raise InvalidInputError(problems)
    return EmbedOptions(request.scope, request.dimension, request.windowed, waits)


def _side(at: int) -> str:
    """Return the field name of the text at a position in flattened pairs."""
    return f"pairs[{at // 2}].{'second' if at % 2 else 'first'}"


def _pair_similarity(
    computed: Mapping[str, Computed], pair: tuple[str, str], cosine: float | None, *, windowed: bool
) -> embedder_pb2.PairSimilarity:
    first, second = (computed[text] for text in pair)
    return embedder_pb2.PairSimilarity(
        cosine=cosine,
        first_truncated=first.truncated,
        second_truncated=second.truncated,
        first_token_count=first.token_count,
        second_token_count=second.token_count,
        first_window_count=first.window_count if windowed else 0,
        second_window_count=second.window_count if windowed else 0,
    )


@lru_cache(maxsize=64)  # a third of the time that an answer takes to build
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
        dimensions=offered_dimensions(description),
        engine=description.engine,
    )


def _timing(timing: Timing) -> embedder_pb2.EmbedTiming:
    return embedder_pb2.EmbedTiming(
        queue_ms=timing.queue_ms,
        tokenize_ms=timing.tokenize_ms,
        inference_ms=timing.inference_ms,
        cache_ms=timing.cache_ms,
        cache_hits=timing.cache_hits,
        shared_texts=timing.shared_texts,
    )
