"""A stream of similarity requests to the embedder, opened when needed and reopened after a loss."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from typing import TYPE_CHECKING

import grpc

from assay.errors import AssayError, UnavailableError
from assay.rpc.channel import read_stream
from assay.rpc.status import error_of, from_rpc_error
from assay.telemetry.tracing import traceparent
from assay.v1 import embedder_pb2

if TYPE_CHECKING:
    from assay.v1 import embedder_pb2_grpc

_DEADLINE_S = 120.0


class SimilarityStream:
    """Sends requests over one stream; answers arrive in any order.

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
            async with asyncio.timeout(_DEADLINE_S):
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
                f"the embedder did not answer within {_DEADLINE_S:g} s", reason="EMBEDDER_UNAVAILABLE"
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
            error = response.error
            answer.set_exception(error_of(error.code, error.reason, error.message))
        else:
            answer.set_result(response.similarity)

    async def aclose(self) -> None:
        for answer in self._waiting.values():
            answer.cancel()
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
