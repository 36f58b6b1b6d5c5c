"""The embedder preflight check: whether the embedder serves a run's models, before anything is paid for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc

from assay.embedder.v1 import embedder_pb2
from assay.errors import AssayError, InvalidInputError, OverloadedError, Problem, UnavailableError
from assay.rpc.status import from_rpc_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.embedder.v1.embedder_pb2_grpc import EmbedderServiceAsyncStub
    from assay.metrics.core.embedding import EmbeddingSettings

_TIMEOUT_S = 5.0
_LOADING_TIMEOUT_S = 60.0
_RETRY_S = 0.1


async def embedder_problems(
    stub: EmbedderServiceAsyncStub,
    embeddings: Mapping[EmbeddingSettings, str],
    scope: str,
    *,
    loading_timeout_s: float = _LOADING_TIMEOUT_S,
) -> list[Problem]:
    """Return why an embedder will not serve the models of a run.

    An embedder that cannot be reached, is starting, or takes too long to load a model yields no problem here; the run
    will report it. If a metric names a dimension, the check waits: only loading a model reveals its dimensions.

    Args:
        stub: The embedder.
        embeddings: The models with the compared part of their vectors, each with its place in the spec.
        scope: The team of the run.
        loading_timeout_s: How long to wait for the answer about a dimension, in seconds.
    """
    problems = await asyncio.gather(
        *(
            _dimension_problem(stub, settings, scope, loading_timeout_s)
            if settings.dimension
            else _problem(stub, settings, scope)
            for settings in embeddings
        )
    )
    return [Problem(refusal, place) for refusal, place in zip(problems, embeddings.values(), strict=True) if refusal]


async def _problem(stub: EmbedderServiceAsyncStub, settings: EmbeddingSettings, scope: str) -> str:
    try:
        return await _refusal(stub, settings, scope, _TIMEOUT_S)
    except AssayError:
        return ""


async def _dimension_problem(
    stub: EmbedderServiceAsyncStub, settings: EmbeddingSettings, scope: str, timeout_s: float
) -> str:
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + timeout_s
    while (left_s := give_up_at - loop.time()) > 0:
        try:
            return await _refusal(stub, settings, scope, left_s)
        except (UnavailableError, OverloadedError):
            await asyncio.sleep(min(_RETRY_S, left_s))
        except AssayError:
            break
    return (
        f"names the dimension {settings.dimension}, and the embedder did not report whether the model "
        f"{settings.model!r} has it: try again when the embedder serves the model, or leave out the dimension"
    )


async def _refusal(stub: EmbedderServiceAsyncStub, settings: EmbeddingSettings, scope: str, timeout_s: float) -> str:
    """Return why the embedder refuses a model, or the empty string.

    Raises:
        AssayError: The embedder gives no reason.
    """
    request = embedder_pb2.SimilarityRequest(
        pairs=[embedder_pb2.TextPair(first="preflight", second="preflight")],
        model=settings.model,
        scope=scope,
        dimension=settings.dimension,
        windowed=settings.windowed,
    )
    try:
        await stub.Similarity(request, timeout=timeout_s)
    except grpc.aio.AioRpcError as error:
        problem = from_rpc_error(error)
        if not isinstance(problem, InvalidInputError):
            raise problem from error
        return f"names the embedding model {settings.model!r}: {problem.problems[0].message}"
    return ""
