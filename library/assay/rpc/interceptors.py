"""The interceptor of every server: admission, access, decoding, time limits and failures of calls."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import traceback
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, nullcontext
from types import CoroutineType
from typing import Any, NamedTuple, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from assay.errors import AssayError, DeadlineError, InternalError, InvalidInputError, UnavailableError
from assay.identity.caller import Identity
from assay.identity.rights import Right
from assay.rpc import status
from assay.rpc.access import Access, Context, check_named_teams, check_right, named_teams
from assay.rpc.admission import Admission, peer_address
from assay.rpc.auditing import CallAudit
from assay.rpc.early_refusals import EarlyRefusals
from assay.rpc.methods import MethodRule
from assay.rpc.observed_calls import observed_methods, parent_of
from assay.rpc.options import ServerOptions
from assay.rpc.request_stream import RequestStream
from assay.rpc.team_admission import Refusals, TeamRefusedError, TeamTurns
from assay.rpc.unknown_parts import check_known, is_strict
from assay.telemetry.tracing import has_span

logger = logging.getLogger("assay.rpc")
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_Answer: TypeAlias = Callable[[Any, Context], Any]
_Decode: TypeAlias = Callable[[Any, Identity | None, CallAudit | None], Any]

MALFORMED = "MALFORMED_REQUEST"


class CallDeadlines:
    """Cancels calls that exceed the server's limit; since the limit is the same for all, the oldest call is next.

    Args:
        limit_s: The limit, in seconds.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._ends_at: dict[asyncio.Task[Any], float] = {}
        self._expired: set[asyncio.Task[Any]] = set()
        self._is_set = False

    def begin(self, task: asyncio.Task[Any]) -> None:
        """Start the time limit of a task; `end` it when the task is done."""
        loop = asyncio.get_running_loop()
        self._ends_at[task] = loop.time() + self.limit_s
        if not self._is_set:
            self._is_set = True
            loop.call_later(self.limit_s, self._check)

    def end(self, task: asyncio.Task[Any]) -> bool:
        """End the time limit of a task; return whether it expired and nothing else cancelled the task."""
        self._ends_at.pop(task, None)
        if task not in self._expired:
            return False
        self._expired.discard(task)
        return task.uncancel() == 0

    def _check(self) -> None:
        loop = asyncio.get_running_loop()
        while self._ends_at:
            task, ends_at = next(iter(self._ends_at.items()))
            if ends_at > loop.time():
                loop.call_at(ends_at, self._check)
                return
            del self._ends_at[task]
            # Noted before the cancellation, which the handler's end must tell from a client that left.
            self._expired.add(task)
            task.cancel()
        self._is_set = False


class CallInterceptor(grpc.aio.ServerInterceptor):
    """Admits and authorizes each call, decodes its messages, limits its time, and turns every failure into a status.

    A method without a rule is not served. Requests arrive as bytes, so an undecodable message is an INVALID_ARGUMENT
    like any other wrong input.

    A failing handler always ends its call. A domain error becomes its status. Any other exception becomes INTERNAL with
    an id, and its text stays in this process's log. A cancellation that did not come from the client becomes
    UNAVAILABLE: without a status the client would wait forever.

    Args:
        options: The limits.
        rules: The rule of each method by its full name, "/package.Service/Method".
        until_open: Waits until a method, by its full name, may be called; None if all may be called from the start.
    """

    def __init__(
        self,
        options: ServerOptions,
        rules: Mapping[str, MethodRule],
        until_open: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self._until_open = until_open
        self._options = options
        self._rules = rules
        self._admission = Admission(options)
        self._access = Access(options.authenticator, options.recheck_s, options.team_admission)
        self._refusals, self._turns = Refusals(), TeamTurns()
        self._early = EarlyRefusals(self._counted, options.refused_s)
        self._deadlines = CallDeadlines(options.deadline_cap_s)
        self._served: dict[str, _Served] = {}
        self._observed = observed_methods(rules)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        method = handler_call_details.method
        served = self._served.get(method) or await self._find(continuation, handler_call_details)
        if served is None:
            return None
        metadata = handler_call_details.invocation_metadata
        if served.is_limited and (refusing := self._early.handler(method, metadata)) is not None:
            return refusing
        if served.traced is not None and has_span(parent_of(metadata), is_read=served.is_read):
            return served.traced
        return served.plain

    async def _find(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Served | None:
        """Return the handler of a method; None if it is not served."""
        method = handler_call_details.method
        rule = self._rules.get(method)
        if rule is not None and self._until_open is not None:
            await self._until_open(method)
        handler = await continuation(handler_call_details) if rule is not None else None
        if rule is None or handler is None:
            return None
        answer = self._answer_of(handler, method, rule)
        make = functools.partial(
            _MAKERS[rule.client_streams, rule.server_streams], response_serializer=handler.response_serializer
        )
        observed = self._observed.get(method)
        served = _Served(
            make(self._counted(method, answer)),
            make(observed.counted(observed.traced(answer))) if observed is not None and observed.has_spans else None,
            is_limited=rule.right is not Right.NONE,
            is_read=rule.right is Right.READ,
        )
        if not self._options.interceptors:  # which may return another handler for the next call
            self._served[method] = served
        return served

    def _answer_of(self, handler: Handler, method: str, rule: MethodRule) -> _Answer:
        if rule.server_streams:
            return self._streaming(handler, method, rule)
        if rule.client_streams:
            return self._collecting(handler, method, rule)
        return self._unary(handler, method, rule)

    def _counted(self, method: str, answer: _Answer) -> _Answer:
        observed = self._observed.get(method)
        return answer if observed is None else observed.counted(answer)

    def _unary(self, handler: Handler, method: str, rule: MethodRule) -> _Answer:
        """Return the handler of unary calls, which are the most frequent and the shortest."""
        behave, decode = _behaviour(handler), self._decoder(handler, method, rule)
        pool, access = self._admission.pool(rule.slots), self._access

        async def in_turn(raw: Any, context: Context, identity: Identity, audit: CallAudit | None) -> Any:
            # The slot of the address is already held: a team's share is counted on top of it.
            team = identity.team
            pool.take_for(team)
            try:
                await access.admit_team(identity)
                await self._turns.enter(team)
                try:
                    return await _coroutine(behave(decode(raw, identity, audit), context), method)
                finally:
                    self._turns.leave(team)
            finally:
                pool.release_for(team)

        async def admitted(raw: Any, context: Context) -> Any:
            # Before the token is looked up, so that a flood of bad tokens does not reach the database.
            address = peer_address(context.peer())
            pool.take(address)
            audit = self._audit_of(context, method, rule)
            try:
                identity = await access.identify(context, rule)
                if audit is not None:
                    audit.admitted(identity)
                check_right(identity, method, rule)
                if identity is not None:
                    answer = await in_turn(raw, context, identity, audit)
                else:
                    answer = await _coroutine(behave(decode(raw, None, audit), context), method)
                if audit is not None:
                    await audit.finished()
                return answer
            except AssayError as error:
                if audit is not None:
                    await audit.failed(error)
                raise
            finally:
                pool.release(address)

        return self._limited(admitted, method)

    def _limited(self, answer: _Answer, method: str) -> _Answer:
        """Return an answering function with the server's time limit, whose failures end the call with a status."""
        deadlines = self._deadlines

        async def limited(raw: Any, context: Context) -> Any:
            task = asyncio.current_task()
            assert task is not None, "gRPC calls handlers in tasks"
            deadlines.begin(task)
            try:
                return await answer(raw, context)
            except BaseException as error:  # noqa: BLE001 - the boundary of a request
                await self._end(context, method, error, is_late=deadlines.end(task))
            finally:
                deadlines.end(task)

        return limited

    def _collecting(self, handler: Handler, method: str, rule: MethodRule) -> _Answer:
        behave = _behaviour(handler)

        async def answer(raw: Any, context: Context) -> Any:
            async with self._reading(raw, context, handler, method, rule) as request:
                return await _coroutine(behave(request, context), method)

        return self._limited(answer, method)

    def _streaming(self, handler: Handler, method: str, rule: MethodRule) -> _Answer:
        behave = _behaviour(handler)

        async def answer(raw: Any, context: Context) -> None:
            try:
                async with self._reading(raw, context, handler, method, rule) as request:
                    await self._answer(behave(request, context), method, context, request)
            except BaseException as error:  # noqa: BLE001 - the boundary of a request
                await self._end(context, method, error)

        return answer

    async def _answer(self, result: Any, method: str, context: Context, request: Any) -> None:
        if not inspect.isasyncgen(result):
            await _coroutine(result, method)
            return
        async with aclosing(result) as answers:
            await self._send(answers, context, request)

    @asynccontextmanager
    async def _reading(
        self, raw: Any, context: Context, handler: Handler, method: str, rule: MethodRule
    ) -> AsyncIterator[Any]:
        """Admit a call with a stream, and yield the input of its handler: a message or the client's stream."""
        audit = self._audit_of(context, method, rule)
        with self._admission.slot(rule.slots, context.peer()):
            async with audit.recorded() if audit is not None else nullcontext():
                identity = await self._access.identify(context, rule)
                if audit is not None:
                    audit.admitted(identity)
                check_right(identity, method, rule)
                decode = self._decoder(handler, method, rule)
                with self._admission.team_slot(rule.slots, identity.team if identity is not None else ""):
                    await self._access.admit_team(identity)
                    async with self._access.while_accepted(context, rule):
                        if not rule.client_streams:
                            yield decode(raw, identity, audit)
                            return
                        stream = RequestStream(
                            raw,
                            lambda message: decode(message, identity, audit),
                            silence=rule.silence,
                            options=self._options,
                        )
                        async with stream as request:
                            yield request

    def _audit_of(self, context: Context, method: str, rule: MethodRule) -> CallAudit | None:
        """Return the audit record of a call; None if calls are not recorded."""
        auditor = self._options.auditor
        return None if auditor is None else CallAudit(auditor, context, method, rule)

    def _decoder(self, handler: Handler, method: str, rule: MethodRule) -> _Decode:
        """Return a function that decodes a message and checks that it is understood, and the teams that it names."""
        named = named_teams(rule)
        strict = handler.request_deserializer is not None and is_strict(method)

        def decode(raw: Any, identity: Identity | None, audit: CallAudit | None) -> Any:
            message = _decoded(handler, method, raw)
            if audit is not None:
                audit.received(message)
            if strict:
                check_known(message, raw)
            if named and identity is not None:
                check_named_teams(identity, named, message)
            return message

        return decode

    async def _send(self, answers: AsyncIterator[Any], context: Context, request: Any) -> None:
        # Headers left to the first message count as unsent while it waits for its reader, and gRPC, sending them
        # twice, could not end the call.
        await context.send_initial_metadata(())
        async for answer in answers:
            try:
                async with asyncio.timeout(self._options.write_stall_s):
                    await context.write(answer)
            except TimeoutError:
                raise DeadlineError(
                    f"the client took no message for {self._options.write_stall_s:g} s: call again and read on",
                    reason="READER_STALLED",
                ) from None
            if isinstance(request, RequestStream):
                request.answered()

    async def _end(self, context: Context, method: str, error: BaseException, *, is_late: bool = False) -> None:
        """End a call with the status of its failure; re-raise a failure that gRPC must see."""
        if is_late:
            limit_s = self._deadlines.limit_s
            message = f"the call took longer than {limit_s:g} s, the server's limit: ask for less in one call"
            await self._abort(context, self._status_of(DeadlineError(message)))
            return
        if isinstance(error, asyncio.CancelledError):
            if _is_cancelled():
                raise error
            logger.warning("call cancelled inside the server: method=%s", method)
            refusal = UnavailableError("the server cancelled the call: retry it")
            await self._abort(context, self._status_of(refusal))
            return
        if isinstance(error, TeamRefusedError):
            refuse = self._refusing(error)
            self._early.note(context, error.retry_after_s, refuse)
            await refuse(context)
        elif isinstance(error, Exception):
            causes = _causes(error)
            if all(isinstance(cause, grpc.aio.AbortError) for cause in causes):
                raise causes[0] from None  # the handler has ended its call itself
            # gRPC raises it for what is sent over a connection that is gone: no fault of the server's, so not logged.
            is_client_gone = all(isinstance(cause, grpc.aio.InternalError) for cause in causes)
            gone = UnavailableError("the connection of the call is gone")
            await self._abort(context, self._status_of(gone if is_client_gone else presentable(error, method)))
        else:
            raise error
        error.__traceback__ = None  # its frames hold the call, and some of them the error

    def _refusing(self, refusal: TeamRefusedError) -> Callable[[Context], Awaitable[None]]:
        """Return a function that ends calls with this refusal."""
        status = self._status_of(refusal)

        async def refuse(context: Context) -> None:
            await self._refusals.delay(refusal, context.time_remaining())
            await self._abort(context, status)

        return refuse

    def _status_of(self, error: AssayError) -> _Status:
        sent = status.to_status(error, self._options.redact)
        return _Status(status.code_of(error), sent.message, ((status.DETAILS_KEY, sent.SerializeToString()),))

    async def _abort(self, context: Context, sent: _Status) -> None:
        """End a call with a status; its handler then returns."""
        try:
            # A client that does not read takes no status either; gRPC keeps it for later.
            async with asyncio.timeout(self._options.status_stall_s):
                await context.abort(sent.code, sent.message, trailing_metadata=sent.trailers)
        except (TimeoutError, grpc.aio.InternalError, grpc.aio.UsageError):
            # The client reads later, its connection is gone, or an earlier abort failed: gRPC itself would log a
            # traceback for each such call.
            pass
        except grpc.aio.AbortError as ended:
            # gRPC keeps it with the call, which its traceback would keep in turn: until they are collected as garbage,
            # the call would count among those that its connection may have open.
            ended.__traceback__ = ended.__context__ = None


class _Served(NamedTuple):
    """The handlers of one method.

    Args:
        plain: Its handler.
        traced: The handler of calls with a span; None if there are none.
        is_limited: Whether early refusals apply.
        is_read: Whether it only reads.
    """

    plain: Handler
    traced: Handler | None
    is_limited: bool
    is_read: bool


class _Status(NamedTuple):
    """The status that ends a failed call."""

    code: grpc.StatusCode
    message: str
    trailers: tuple[tuple[str, bytes]]


def _decoded(handler: Handler, method: str, raw: Any) -> Any:
    if handler.request_deserializer is None:
        return raw
    try:
        return handler.request_deserializer(raw)
    except DecodeError as problem:
        logger.warning("refusing malformed request: method=%s bytes=%d: %s", method, len(raw), problem)
        message = "the request is not a valid message of this method: check the client's version of the contract"
        raise InvalidInputError(message, reason=MALFORMED) from None


def _is_cancelled() -> bool:
    """Return whether gRPC cancelled this call because its client left or the server is stopping.

    gRPC then cancels the handler's task; `context.cancelled()` stays False for streams. A cancellation
    that escaped from an inner task leaves the handler's own task uncancelled.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _behaviour(handler: Handler) -> Callable[[Any, Any], Any]:
    kinds = (handler.unary_unary, handler.unary_stream, handler.stream_unary, handler.stream_stream)
    return next(behaviour for behaviour in kinds if behaviour is not None)


async def _coroutine(result: Any, method: str) -> Any:
    if type(result) is not CoroutineType and not inspect.isawaitable(result):  # nearly all are: it is found sooner
        raise TypeError(f"the handler of {method} is neither a coroutine nor an async generator")
    return await result


def presentable(error: Exception, method: str) -> AssayError:
    """Return the part of a failure that a client may see; the log gets the rest.

    Args:
        error: The exception of a handler. A domain error is shown unchanged; of a group of only domain errors, the
            first.
        method: The method, for the log.
    """
    causes = _causes(error)
    domain_errors = [cause for cause in causes if isinstance(cause, AssayError)]
    if len(domain_errors) == len(causes):
        return domain_errors[0]
    if all(isinstance(cause, RecursionError) for cause in causes):
        # What nests deeper than Python follows; its traceback has 1,000 lines.
        logger.warning("refusing malformed request: method=%s: nested too deeply, at %s", method, _place(causes[0]))
        return InvalidInputError("the request holds something that is nested too deeply", reason=MALFORMED)
    error_id = uuid.uuid4().hex[:12]
    logger.error("call failed: method=%s error_id=%s", method, error_id, exc_info=error)
    return InternalError(f"internal error: the server's log has the details under error id {error_id}")


def _place(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename}:{frame.lineno}"


def _causes(error: BaseException) -> list[BaseException]:
    """Return the errors of an exception group at any depth, in order; any other error is returned alone."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [cause for part in error.exceptions for cause in _causes(part)]


_MAKERS: dict[tuple[bool, bool], Callable[..., Handler]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}
