"""What stands around every handler of a server: the guard and the admission."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import inspect
import logging
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any, TypeAlias

import grpc
import grpc.aio

from assay.errors import AssayError, InternalError, OverloadedError, UnavailableError
from assay.rpc import status
from assay.rpc.options import ServerOptions

__all__ = ["Admission", "Guard", "presentable"]

logger = logging.getLogger("assay.rpc")

Context = grpc.aio.ServicerContext[Any, Any]
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

_ABORT_PATIENCE_S = 5.0  # a client that does not read takes no status either; gRPC keeps it for later
_EXEMPT_SERVICES = ("/grpc.health.", "/grpc.reflection.")


class _Around(grpc.aio.ServerInterceptor):
    """Puts an async context manager around each handler, whatever its kind."""

    @abc.abstractmethod
    def around(self, method: str, context: Context, *, streaming: bool) -> AbstractAsyncContextManager[None]:
        """Return what a call runs in.

        Args:
            method: Full name, "/package.Service/Method".
            context: The call.
            streaming: Whether the answer is a stream.
        """

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        handler = await continuation(handler_call_details)
        return None if handler is None else self._wrapped(handler, handler_call_details.method)

    def _wrapped(self, handler: Handler, method: str) -> Handler:
        inner = _behaviour(handler)

        async def one_answer(request: Any, context: Context) -> Any:
            async with self.around(method, context, streaming=False):
                return await _coroutine(inner(request, context), method)

        async def many_answers(request: Any, context: Context) -> None:
            async with self.around(method, context, streaming=True):
                result = inner(request, context)
                if not inspect.isasyncgen(result):
                    await _coroutine(result, method)
                    return
                async with aclosing(result) as answers:
                    async for answer in answers:
                        await context.write(answer)

        make = _MAKERS[bool(handler.request_streaming), bool(handler.response_streaming)]
        behaviour = many_answers if handler.response_streaming else one_answer
        return make(behaviour, handler.request_deserializer, handler.response_serializer)


class Guard(_Around):
    """Outermost: a handler's failure always ends its call, and tells the client no more than it may know.

    Domain errors become their status. Any other exception becomes INTERNAL with an id; its text stays in
    this process's log. A cancellation that did not come from the client becomes UNAVAILABLE: left alone,
    it would leave the client waiting for ever.

    Args:
        deadline_cap_s: Calls with one answer run no longer than this.
    """

    def __init__(self, deadline_cap_s: float) -> None:
        self._deadline_cap_s = deadline_cap_s

    @asynccontextmanager
    async def around(self, method: str, context: Context, *, streaming: bool) -> AsyncIterator[None]:
        limit = asyncio.timeout(None if streaming else self._deadline_cap_s)
        try:
            async with limit:
                yield
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            logger.warning("%s was cancelled from inside the server", method)
            await _abort(context, UnavailableError("The server dropped the call; ask again."))
        except Exception as error:  # noqa: BLE001  # the last stop before the wire; logged with its traceback
            if limit.expired() and isinstance(error, TimeoutError):
                message = f"The call took longer than the {self._deadline_cap_s:g} s that the server allows."
                await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, message)
            if isinstance(cause := _single_cause(error), grpc.aio.AbortError):
                raise cause from None  # the handler has ended its call itself
            await _abort(context, presentable(error, method))


class Admission(_Around):
    """Refuses calls over a limit at once, except those to health and reflection.

    Args:
        options: `max_concurrent_calls` and `max_open_streams` are the limits.
    """

    def __init__(self, options: ServerOptions) -> None:
        self._limits = {False: options.max_concurrent_calls, True: options.max_open_streams}
        self._running: Counter[bool] = Counter()

    @asynccontextmanager
    async def around(self, method: str, context: Context, *, streaming: bool) -> AsyncIterator[None]:
        if method.startswith(_EXEMPT_SERVICES):
            yield
            return
        if self._running[streaming] >= self._limits[streaming]:
            what = "open streams" if streaming else "calls at once"
            raise OverloadedError(f"The server takes {self._limits[streaming]} {what}; try again in 1 s.")
        self._running[streaming] += 1
        try:
            yield
        finally:
            self._running[streaming] -= 1


def _is_cancelled() -> bool:
    """Return whether gRPC ended this call, because its client left or the server stops.

    gRPC then cancels the handler's task; `context.cancelled()` stays False for streams. A cancellation
    that escaped from an inner task leaves the handler's own task uncancelled.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _behaviour(handler: Handler) -> Callable[[Any, Any], Any]:
    kinds = (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream)
    return next(behaviour for behaviour in kinds if behaviour is not None)


async def _coroutine(result: Any, method: str) -> Any:
    if not inspect.isawaitable(result):
        raise TypeError(f"the handler of {method} is neither a coroutine nor an async generator")
    return await result


def presentable(error: Exception, method: str) -> AssayError:
    """Return what a client may know of a failure; the log gets the rest.

    Args:
        error: What a handler raised. A domain error is shown as it is, also when a task group wraps it.
        method: Where it happened, for the log.
    """
    cause = _single_cause(error)
    if isinstance(cause, AssayError):
        return cause
    error_id = uuid.uuid4().hex[:12]
    logger.error("error %s in %s", error_id, method, exc_info=error)
    return InternalError(f"Something failed inside the server; its log says what under error id {error_id}.")


def _single_cause(error: BaseException) -> BaseException:
    """Return what a task group failed with, when that is one exception."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def _abort(context: Context, error: AssayError) -> None:
    sent = status.to_status(error)
    trailers = ((status.DETAILS_KEY, sent.SerializeToString()),)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_ABORT_PATIENCE_S):
            await context.abort(status.code_of(error), sent.message, trailing_metadata=trailers)
    # An ended call answers everything with gRPC's own error, the only one it takes for the end of the handler.
    await context.send_initial_metadata(())


_MAKERS: dict[tuple[bool, bool], Callable[..., Handler]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}
