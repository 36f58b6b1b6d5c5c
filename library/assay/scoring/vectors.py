"""Vectors for scoring outside a run, from the caller's function or an embedder."""

from __future__ import annotations

import asyncio
import sys
import threading
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from assay.errors import InternalError, InvalidInputError, OverloadedError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from assay.embedder.v1 import embedder_pb2
    from assay.local_stack.stack import LocalStack
    from assay.metrics.core.embedding import EmbeddingSettings

T = TypeVar("T")

EmbedFunction = Callable[[Sequence[str]], Sequence[Any]]
"""Returns one vector per text, in order: lists of numbers or the rows of an array."""

_MAX_TEXTS = 64
_MAX_CALL_BYTES = 1024 * 1024
_MAX_TEXT_CHARS = 100_000
_CALL_DEADLINE_S = 120.0
_STARTUP_TIMEOUT_S = 120.0
_PATIENCE_S = 60.0
_SERVICE = "assay.embedder.v1.EmbedderService"


@dataclass(frozen=True, slots=True)
class Embedded:
    """The vector of one text, and its origin.

    Args:
        vector: Its values.
        truncated: Whether some of the text had no effect: it was longer than the model's window, or has too many.
        model: The model's name.
        revision: SHA-256 of the model's weights; empty where unknown.
        precision: Its arithmetic; empty where unknown.
        engine: What computed the vector; empty where unknown.
        english_only: Whether the model was trained on English alone.
    """

    vector: Any
    truncated: bool = False
    model: str = ""
    revision: str = ""
    precision: str = ""
    engine: str = ""
    english_only: bool = False


class Vectors(Protocol):
    """A source of vectors."""

    def embed(self, texts: Sequence[str], settings: EmbeddingSettings) -> list[Embedded]:
        """Return the vectors of any number of texts, in order."""

    def close(self) -> None:
        """Release the resources."""


class FunctionVectors:
    """Vectors from a function of the caller's.

    Args:
        function: Called with at most 64 texts at once.
    """

    def __init__(self, function: EmbedFunction) -> None:
        self._function = function

    def embed(self, texts: Sequence[str], settings: EmbeddingSettings) -> list[Embedded]:
        """Return the vectors of any number of texts, in order.

        Raises:
            InvalidInputError: The function did not return one vector per text.
        """
        embedded: list[Embedded] = []
        for batch in _batches(texts):
            vectors = list(self._function([text[:_MAX_TEXT_CHARS] for text in batch]))
            if len(vectors) != len(batch):
                raise InvalidInputError(
                    f"embed returned {len(vectors)} vectors for {len(batch)} texts: one each is due"
                )
            embedded += [
                Embedded(vector, len(text) > _MAX_TEXT_CHARS, settings.model)
                for vector, text in zip(vectors, batch, strict=True)
            ]
        return embedded

    def close(self) -> None:
        """Do nothing, as a function holds no resources."""


class ServiceVectors:
    """Vectors from an embedder: a running one, or a local one started at the first text.

    Its event loop has a thread of its own, so that it can be used from a notebook or from async code too.

    Args:
        address: "host:port" or "unix:/path"; None starts the local embedder, which ends with this process.
        models: What the local embedder loads.
        server_timeout_s: How long an embedder at an address may take to answer at first, in seconds.
    """

    def __init__(self, address: str | None, models: Sequence[str], *, server_timeout_s: float = 5.0) -> None:
        self._address = address
        self._models = models
        self._server_timeout_s = server_timeout_s
        self._stack: LocalStack | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._channel: Any = None

    def embed(self, texts: Sequence[str], settings: EmbeddingSettings) -> list[Embedded]:
        """Return the vectors of any number of texts, in order.

        Raises:
            UnavailableError: The embedder cannot be reached.
            SetupError: The local embedder is not installed or cannot be started.
            InvalidInputError: The embedder does not know the model.
        """
        if self._loop is None:
            self._open()
        vectors: list[Embedded] = []
        for batch in _batches(texts):
            vectors += self._wait(self._call(batch, settings))
        return vectors

    def close(self) -> None:
        """Close the connection."""
        if self._loop is None or self._thread is None:
            return
        try:
            self._wait(self._aclose())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = self._thread = None

    def _open(self) -> None:
        if self._address is None:
            from assay.local_stack.home import Home
            from assay.local_stack.stack import LocalStack

            home = Home.open()
            stack = LocalStack(home)
            stack.start(models=self._models, orchestrator=False)
            self._stack = stack
            address = f"unix:{home.socket('embedder')}"
        else:
            address = self._address
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="assay-vectors", daemon=True)
        self._thread.start()
        try:
            self._wait(self._connect(address))
        except BaseException:
            self.close()
            raise

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None, "opened before"
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C: the call must not outlive its caller
            raise

    async def _connect(self, address: str) -> None:
        from assay.rpc.channel import open_channel, wait_for_ready

        self._channel = open_channel(address)
        if self._stack is None:
            try:
                await wait_for_ready(self._channel, _SERVICE, self._server_timeout_s)
            except UnavailableError as error:
                raise UnavailableError(
                    f"no embedder answers at {address}: check the address, or leave it out to use the local one",
                    reason="EMBEDDER_UNAVAILABLE",
                ) from error
            return
        await self._stack.watched(wait_for_ready(self._channel, _SERVICE, _STARTUP_TIMEOUT_S))

    async def _aclose(self) -> None:
        if self._channel is not None:
            await self._channel.close()
            self._channel = None
        if self._stack is not None:
            await self._stack.leave()
            self._stack = None

    async def _call(self, texts: Sequence[str], settings: EmbeddingSettings) -> list[Embedded]:
        import grpc

        from assay.embedder.v1 import embedder_pb2, embedder_pb2_grpc
        from assay.rpc.status import from_rpc_error

        stub: embedder_pb2_grpc.EmbedderServiceAsyncStub = embedder_pb2_grpc.EmbedderServiceStub(self._channel)
        request = embedder_pb2.EmbedRequest(
            texts=[text[:_MAX_TEXT_CHARS] for text in texts],
            model=settings.model,
            dimension=settings.dimension,
            windowed=settings.windowed,
        )
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + _PATIENCE_S
        while True:
            try:
                return _read(await stub.Embed(request, timeout=_CALL_DEADLINE_S), texts)
            except grpc.aio.AioRpcError as error:
                problem = from_rpc_error(error)
                if not isinstance(problem, OverloadedError) or loop.time() >= give_up_at:
                    raise problem from error
                await asyncio.sleep(problem.retry_after_s)


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield the texts in calls of bounded count and size."""
    batch: list[str] = []
    size = 0
    for text in texts:
        text_bytes = 4 * min(len(text), _MAX_TEXT_CHARS)
        if batch and (len(batch) == _MAX_TEXTS or size + text_bytes > _MAX_CALL_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += text_bytes
    if batch:
        yield batch


def _read(response: embedder_pb2.EmbedResponse, texts: Sequence[str]) -> list[Embedded]:
    count = len(texts)
    values = array("f", response.vectors) if len(response.vectors) == 4 * count * response.dimension else None
    if values is None:
        raise InternalError(
            f"the embedder answered {count} texts with {len(response.vectors)} bytes of vectors of "
            f"dimension {response.dimension}",
            reason="EMBEDDER_ANSWER_INVALID",
        )
    if sys.byteorder == "big":
        values.byteswap()
    truncated, model, size = set(response.truncated), response.model, response.dimension
    return [
        Embedded(
            values[at * size : (at + 1) * size],
            at in truncated or len(text) > _MAX_TEXT_CHARS,
            model.name,
            model.revision,
            model.precision,
            model.engine,
            model.english_only,
        )
        for at, text in enumerate(texts)
    ]
