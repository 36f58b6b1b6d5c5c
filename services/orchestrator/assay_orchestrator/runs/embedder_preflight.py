"""The embedder preflight check: whether the embedder serves the models of a run, before anything is paid for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc

from assay.errors import InvalidInputError, Problem
from assay.rpc.status import from_rpc_error
from assay.v1 import embedder_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from assay.v1.embedder_pb2_grpc import EmbedderServiceAsyncStub

_TIMEOUT_S = 5.0


async def embedder_problems(stub: EmbedderServiceAsyncStub, models: Mapping[str, str], scope: str) -> list[Problem]:
    """Return why an embedder will not serve models of a run.

    One that cannot be reached, is starting, or takes longer to load a model, has nothing to say yet: then the run
    finds out.

    Args:
        stub: The embedder.
        models: The models, each with its place in the spec.
        scope: The team of the run.
    """
    problems = await asyncio.gather(*(_problem(stub, model, scope) for model in models))
    return [Problem(said, place) for said, place in zip(problems, models.values(), strict=True) if said]


async def _problem(stub: EmbedderServiceAsyncStub, model: str, scope: str) -> str:
    request = embedder_pb2.SimilarityRequest(
        pairs=[embedder_pb2.TextPair(first="preflight", second="preflight")], model=model, scope=scope
    )
    try:
        await stub.Similarity(request, timeout=_TIMEOUT_S)
    except grpc.aio.AioRpcError as error:
        problem = from_rpc_error(error)
        if isinstance(problem, InvalidInputError):
            return f"names the embedding model {model!r}: {problem.problems[0].message}"
    return ""
