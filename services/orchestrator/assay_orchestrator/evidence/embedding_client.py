"""The orchestrator's client of the embedder: texts of many cases travel together."""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc
import numpy as np

from assay.errors import AssayError, InternalError, OverloadedError, UnavailableError
from assay.metrics.core.score import EmbeddingEvidence
from assay.rpc.status import from_rpc_error
from assay.v1 import embedder_pb2, embedder_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from assay.model.agent_response import AgentResponse

_MAX_TEXTS = 64
_MAX_CALL_BYTES = 1024 * 1024
_MAX_TEXT_CHARS = 100_000
_CALLS_IN_FLIGHT = 3
_CALL_DEADLINE_S = 120.0


@dataclass(frozen=True, slots=True)
class _Embedded:
    vector: NDArray[np.float32]
    truncated: bool
    model: embedder_pb2.ModelInfo


@dataclass(slots=True)
class _Waiting:
    text: str
    future: asyncio.Future[_Embedded]


class EmbeddingClient:
    """Gathers the vectors of the texts of a run, or of the runs of a group, from the embedder, for one model.

    While calls are in flight, further texts gather and leave together in the next one. Vectors are kept for a
    while, so that a text that comes again, as the reference of a case's next repeat or the same answer of another
    variant, is embedded once and has the same vector.

    Args:
        stub: The embedder.
        model: The model's name.
        patience_s: How long an embedder that cannot be reached is asked again before a row's evidence
            becomes an error.
        cache_bytes: How much the kept vectors may take, in bytes.
    """

    def __init__(
        self,
        stub: embedder_pb2_grpc.EmbedderServiceAsyncStub,
        model: str,
        *,
        patience_s: float,
        cache_bytes: int = 32 * 1024 * 1024,
    ) -> None:
        self._stub = stub
        self._model = model
        self._patience_s = patience_s
        self._cache_bytes = cache_bytes
        self._waiting: list[_Waiting] = []
        self._senders: set[asyncio.Task[None]] = set()
        self._kept: OrderedDict[str, asyncio.Future[_Embedded]] = OrderedDict()
        self._kept_bytes = 0
        self._run_count = 1

    def join(self) -> bool:
        """Serve one more run; return whether that is possible: it is not once all runs have closed it."""
        if not self._run_count:
            return False
        self._run_count += 1
        return True

    async def gather(
        self, response: AgentResponse, references: Sequence[str], others: Sequence[str] = ()
    ) -> EmbeddingEvidence:
        """Return the vectors of the answer and of what it is compared with, or why they could not be had.

        Args:
            response: The answer.
            others: Further texts that metrics compare it with, such as those of a case's checks.
        """
        try:
            answer, *embedded = await asyncio.gather(*map(self._vector, (response.text, *references, *others)))
        except AssayError as problem:
            return EmbeddingEvidence(None, model=self._model, error=problem.reason.lower())
        found = embedded[: len(references)]
        return EmbeddingEvidence(
            answer=answer.vector,
            references=tuple(one.vector for one in found),
            answer_truncated=answer.truncated,
            reference_truncated=any(one.truncated for one in found),
            model=self._model,
            revision=answer.model.revision,
            english_only=answer.model.english_only,
            others={text: one.vector for text, one in zip(others, embedded[len(references) :], strict=True)},
        )

    async def aclose(self) -> None:
        """Stop once every run has closed it; calls that still wait are cancelled."""
        self._run_count -= 1
        if self._run_count:
            return
        for task in self._senders:
            task.cancel()
        await asyncio.gather(*self._senders, return_exceptions=True)
        for waiting in self._waiting:
            waiting.future.cancel()
        self._waiting.clear()

    async def _vector(self, text: str) -> _Embedded:
        kept = self._kept.get(text)
        if kept is None or (kept.done() and (kept.cancelled() or kept.exception() is not None)):
            if self._kept.pop(text, None) is not None:
                self._kept_bytes -= len(text) + 4096
            kept = asyncio.ensure_future(self._embed(text))
            self._kept[text] = kept
            self._kept_bytes += len(text) + 4096
            while self._kept_bytes > self._cache_bytes and len(self._kept) > 1:
                old_text, _ = self._kept.popitem(last=False)
                self._kept_bytes -= len(old_text) + 4096
        else:
            self._kept.move_to_end(text)
        return await asyncio.shield(kept)

    async def _embed(self, text: str) -> _Embedded:
        waiting = _Waiting(text[:_MAX_TEXT_CHARS], asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        # A sender that is done takes nothing more, although its callback may not have run yet.
        if sum(not sender.done() for sender in self._senders) < _CALLS_IN_FLIGHT:
            task = asyncio.create_task(self._send_all())
            self._senders.add(task)
            task.add_done_callback(self._senders.discard)
        return await waiting.future

    async def _send_all(self) -> None:
        await asyncio.sleep(0)  # lets cases that are ready in the same moment join the first call
        while batch := self._take():
            try:
                embedded = _read(await self._call([waiting.text for waiting in batch]), len(batch))
            except AssayError as problem:
                for waiting in batch:
                    if not waiting.future.done():
                        waiting.future.set_exception(problem)
            except asyncio.CancelledError:
                for waiting in batch:
                    waiting.future.cancel()
                raise
            else:
                for waiting, one in zip(batch, embedded, strict=True):
                    if not waiting.future.done():
                        waiting.future.set_result(one)

    def _take(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        size = 0
        while self._waiting and len(batch) < _MAX_TEXTS and size < _MAX_CALL_BYTES:
            waiting = self._waiting.pop(0)
            if not waiting.future.done():
                batch.append(waiting)
                size += 4 * len(waiting.text)
        return batch

    async def _call(self, texts: Sequence[str]) -> embedder_pb2.EmbedResponse:
        request = embedder_pb2.EmbedRequest(texts=texts, model=self._model)
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + self._patience_s
        delay_s = 0.1
        while True:
            try:
                return await self._stub.Embed(request, timeout=_CALL_DEADLINE_S)
            except grpc.aio.AioRpcError as error:
                problem = from_rpc_error(error)
                if not isinstance(problem, UnavailableError | OverloadedError):
                    raise problem from error
                if loop.time() >= give_up_at:
                    raise UnavailableError("the embedder cannot be reached", reason="EMBEDDER_UNAVAILABLE") from error
                await asyncio.sleep(_wait_s(problem, delay_s))
                delay_s = min(delay_s * 2, 2.0)


def _wait_s(problem: AssayError, delay_s: float) -> float:
    asked = problem.retry_after_s if isinstance(problem, OverloadedError) else 0.0
    return max(asked, delay_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads callers, no secret


def _read(response: embedder_pb2.EmbedResponse, count: int) -> list[_Embedded]:
    try:
        vectors = np.frombuffer(response.vectors, dtype="<f4").reshape(count, response.dimension)
    except ValueError:
        raise InternalError(
            f"the embedder answered {count} texts with {len(response.vectors)} bytes of vectors of "
            f"dimension {response.dimension}",
            reason="EMBEDDER_ANSWER_INVALID",
        ) from None
    truncated = set(response.truncated)
    return [_Embedded(vectors[index], index in truncated, response.model) for index in range(count)]
