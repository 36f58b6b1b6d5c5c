"""The orchestrator's client of the embedder: sends texts of many rows together and receives cosines."""

from __future__ import annotations

import asyncio
import itertools
import random
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import grpc

from assay.embedder.v1 import embedder_pb2
from assay.errors import AssayError, InternalError, OverloadedError, UnavailableError
from assay.metrics.core.score import EmbeddingEvidence
from assay.rpc.channel import read_stream
from assay.rpc.status import from_rpc_error, from_status
from assay.telemetry.tracing import traceparent
from assay_orchestrator.evidence.shared_calls import CallLimits, SharedCalls

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from assay.embedder.v1 import embedder_pb2_grpc
    from assay.metrics.core.embedding import EmbeddingSettings
    from assay.metrics.core.evidence import WantedTexts
    from assay.model.answers.agent_response import AgentResponse

T = TypeVar("T")

_MAX_KEYS = 64
_MAX_CALL_BYTES = 1024 * 1024
_MAX_TEXT_CHARS = 100_000
_MOST_BYTES_PER_CHAR = 4
_CALLS_IN_FLIGHT = 3
_CALL_DEADLINE_S = 120.0
_LEAST_DELAY_S, _LONGEST_DELAY_S = 0.1, 2.0
_VECTOR_BYTES = 4096
_COSINE_BYTES = 512


class SimilarityStream:
    """A stream of requests, opened when needed and reopened after a loss; answers arrive in any order.

    Args:
        stub: The embedder.
    """

    def __init__(self, stub: embedder_pb2_grpc.EmbedderServiceAsyncStub) -> None:
        self._stub = stub
        self._stream: _Stream | None = None

    async def ask(self, request: embedder_pb2.SimilarityRequest) -> embedder_pb2.SimilarityResponse:
        """Return the answer to a request.

        Raises:
            UnavailableError: The stream was lost, or no answer arrived in time; the request may be repeated.
            AssayError: The embedder refused the request.
        """
        if self._stream is None or self._stream.has_ended:
            self._stream = _Stream(self._stub)
        return await self._stream.ask(request)

    async def aclose(self) -> None:
        """End the stream; unanswered requests are cancelled."""
        if self._stream is not None:
            await self._stream.aclose()


class _Stream:
    def __init__(self, stub: embedder_pb2_grpc.EmbedderServiceAsyncStub) -> None:
        self._call = stub.SimilarityStream()
        self._ids = map(str, itertools.count())
        self._waiting: dict[str, asyncio.Future[embedder_pb2.SimilarityResponse]] = {}
        self._writing = asyncio.Lock()
        self.has_ended = False
        self._reader = asyncio.create_task(self._read())

    async def ask(self, request: embedder_pb2.SimilarityRequest) -> embedder_pb2.SimilarityResponse:
        request_id = next(self._ids)
        answer: asyncio.Future[embedder_pb2.SimilarityResponse] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = answer
        try:
            async with asyncio.timeout(_CALL_DEADLINE_S):
                # An error in writing a request ends the stream, and with it the awaited answer.
                with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                    async with self._writing:
                        await self._call.write(
                            embedder_pb2.SimilarityStreamRequest(
                                request_id=request_id, similarity=request, traceparent=traceparent()
                            )
                        )
                return await answer
        except TimeoutError:
            raise UnavailableError(
                f"the embedder did not answer within {_CALL_DEADLINE_S:g} s", reason="EMBEDDER_UNAVAILABLE"
            ) from None
        finally:
            self._waiting.pop(request_id, None)

    async def _read(self) -> None:
        problem: AssayError = UnavailableError("the embedder ended the stream", reason="EMBEDDER_UNAVAILABLE")
        try:
            async with read_stream(self._call) as responses:
                async for response in responses:
                    self._answer(response)
        except grpc.aio.AioRpcError as error:
            problem = from_rpc_error(error)
        finally:
            self.has_ended = True
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(problem)

    def _answer(self, response: embedder_pb2.SimilarityStreamResponse) -> None:
        answer = self._waiting.get(response.request_id)
        if answer is None or answer.done():
            return
        if response.HasField("error"):
            answer.set_exception(from_status(response.error))
        else:
            answer.set_result(response.similarity)

    async def aclose(self) -> None:
        for answer in self._waiting.values():
            answer.cancel()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _MadeBy:
    revision: str
    precision: str
    engine: str
    english_only: bool


@dataclass(frozen=True, slots=True)
class _Embedded:
    vector: NDArray[np.float32]
    truncated: bool
    made_by: _MadeBy


@dataclass(frozen=True, slots=True)
class _Compared:
    cosine: float | None
    first_truncated: bool
    second_truncated: bool
    made_by: _MadeBy


class EmbeddingClient:
    """Gathers the embeddings of one model for a run, or for the runs of a group.

    The embedder computes cosines, where the vectors are; a vector itself is requested only if a metric reads it. A
    repeated request, such as the same answer of another variant, is sent once and has the same value.

    Args:
        stub: The embedder.
        settings: The model, and the compared part of its vectors.
        patience_s: How long to retry an unreachable embedder before a row's evidence becomes an error, in seconds.
        scope: The team of the texts: the embedder serves teams in turn.
        cache_bytes: The maximum size of the cached vectors, and the same again for cached cosines, in bytes.
    """

    def __init__(
        self,
        stub: embedder_pb2_grpc.EmbedderServiceAsyncStub,
        settings: EmbeddingSettings,
        *,
        patience_s: float,
        scope: str = "",
        cache_bytes: int = 32 * 1024 * 1024,
    ) -> None:
        self._stub = stub
        self._settings = settings
        self._scope = scope
        self._patience_s = patience_s
        self._stream = SimilarityStream(stub)
        limits = CallLimits(_MAX_KEYS, _MAX_CALL_BYTES, _CALLS_IN_FLIGHT, cache_bytes)
        self._vectors = SharedCalls(self._embed, _text_bytes, value_bytes=_VECTOR_BYTES, limits=limits)
        self._cosines = SharedCalls(self._compare, _pair_bytes, value_bytes=_COSINE_BYTES, limits=limits)
        self._run_count = 1

    def join(self) -> bool:
        """Serve another run; return whether that is possible, which ends once all runs have closed the client."""
        if not self._run_count:
            return False
        self._run_count += 1
        return True

    def prefetch(self, texts: Iterable[str]) -> None:
        """Embed texts that an answer will be compared with, while the agent is asked.

        The embedder caches their vectors. No result depends on this.
        """
        for text in texts:
            self._cosines.prefetch((text, text))

    async def gather(self, response: AgentResponse, texts: WantedTexts) -> EmbeddingEvidence:
        """Return the embedding evidence of a row, or why it is unavailable.

        Args:
            response: The answer.
            texts: The texts to embed.
        """
        answer = response.text
        measured = (answer, *texts.measured) if texts.keeps_answer or texts.measured else ()
        try:
            compared, embedded = await asyncio.gather(
                asyncio.gather(*(self._cosines.get((answer, text)) for text in texts.compared)),
                asyncio.gather(*map(self._vectors.get, measured)),
            )
        except AssayError as problem:
            return EmbeddingEvidence(settings=self._settings, error=problem.reason.lower())
        pairs, vectors = dict(zip(texts.compared, compared, strict=True)), dict(zip(measured, embedded, strict=True))
        made_by = (compared or embedded)[0].made_by
        return EmbeddingEvidence(
            answer=vectors[answer].vector if vectors else None,
            cosines={text: pair.cosine for text, pair in pairs.items()},
            others={text: vectors[text].vector for text in texts.measured},
            truncated=frozenset(
                [text for text, vector in vectors.items() if vector.truncated]
                + [text for text, pair in pairs.items() if pair.second_truncated]
                + [answer for pair in compared if pair.first_truncated]
            ),
            settings=self._settings,
            revision=made_by.revision,
            precision=made_by.precision,
            engine=made_by.engine,
            english_only=made_by.english_only,
        )

    async def aclose(self) -> None:
        """Stop once every run has closed the client; waiting calls are cancelled."""
        self._run_count -= 1
        if not self._run_count:
            await self._vectors.aclose()
            await self._cosines.aclose()
            await self._stream.aclose()

    async def _embed(self, texts: Sequence[str]) -> Sequence[_Embedded]:
        request = embedder_pb2.EmbedRequest(
            texts=[text[:_MAX_TEXT_CHARS] for text in texts],
            model=self._settings.model,
            scope=self._scope,
            dimension=self._settings.dimension,
            windowed=self._settings.windowed,
        )
        return _vectors(await self._patiently(lambda: self._embed_once(request)), texts)

    async def _embed_once(self, request: embedder_pb2.EmbedRequest) -> embedder_pb2.EmbedResponse:
        try:
            return await self._stub.Embed(request, timeout=_CALL_DEADLINE_S)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error

    async def _compare(self, pairs: Sequence[tuple[str, str]]) -> Sequence[_Compared]:
        request = embedder_pb2.SimilarityRequest(
            pairs=[
                embedder_pb2.TextPair(first=first[:_MAX_TEXT_CHARS], second=second[:_MAX_TEXT_CHARS])
                for first, second in pairs
            ],
            model=self._settings.model,
            scope=self._scope,
            dimension=self._settings.dimension,
            windowed=self._settings.windowed,
        )
        return _cosines(await self._patiently(lambda: self._stream.ask(request)), pairs)

    async def _patiently(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a call, repeated while the embedder is unreachable or overloaded."""
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        while True:
            try:
                return await attempt()
            except (UnavailableError, OverloadedError) as problem:
                waited_s = loop.time() - began_at
                if waited_s >= self._patience_s:
                    raise UnavailableError("the embedder cannot be reached", reason="EMBEDDER_UNAVAILABLE") from problem
                await asyncio.sleep(_delay_s(problem, waited_s))


def _text_bytes(text: str) -> int:
    return _MOST_BYTES_PER_CHAR * min(len(text), _MAX_TEXT_CHARS)


def _pair_bytes(pair: tuple[str, str]) -> int:
    return _text_bytes(pair[0]) + _text_bytes(pair[1])


def _delay_s(problem: AssayError, waited_s: float) -> float:
    """Return when to ask again: a tenth of the elapsed loading time, to notice soon that a model is loaded."""
    asked_s = problem.retry_after_s if isinstance(problem, OverloadedError) else 0.0
    own_s = min(max(_LEAST_DELAY_S, waited_s / 10), _LONGEST_DELAY_S)
    return max(asked_s, own_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads callers, no secret


def _is_cut(text: str) -> bool:
    return len(text) > _MAX_TEXT_CHARS


def _made_by(model: embedder_pb2.ModelInfo) -> _MadeBy:
    return _MadeBy(model.revision, model.precision, model.engine, model.english_only)


def _vectors(response: embedder_pb2.EmbedResponse, texts: Sequence[str]) -> list[_Embedded]:
    import numpy as np  # imported here: runs that need only cosines start without it

    count = len(texts)
    try:
        vectors = np.frombuffer(response.vectors, dtype="<f4").reshape(count, response.dimension)
    except ValueError:
        raise InternalError(
            f"the embedder answered {count} texts with {len(response.vectors)} bytes of vectors of "
            f"dimension {response.dimension}",
            reason="EMBEDDER_ANSWER_INVALID",
        ) from None
    truncated, made_by = set(response.truncated), _made_by(response.model)
    return [_Embedded(vectors[index], index in truncated or _is_cut(text), made_by) for index, text in enumerate(texts)]


def _cosines(response: embedder_pb2.SimilarityResponse, pairs: Sequence[tuple[str, str]]) -> list[_Compared]:
    if len(response.similarities) != len(pairs):
        raise InternalError(
            f"the embedder answered {len(pairs)} pairs with {len(response.similarities)} cosines",
            reason="EMBEDDER_ANSWER_INVALID",
        )
    made_by = _made_by(response.model)
    return [
        _Compared(
            cosine.cosine if cosine.HasField("cosine") else None,
            cosine.first_truncated or _is_cut(first),
            cosine.second_truncated or _is_cut(second),
            made_by,
        )
        for cosine, (first, second) in zip(response.similarities, pairs, strict=True)
    ]
