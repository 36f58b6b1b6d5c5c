"""gRPC channels with deadlines, retries and keepalive, and streams that are always closed."""

from __future__ import annotations

import asyncio
import dataclasses
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

from assay.errors import SetupError, UnavailableError
from assay.rpc.access import SCHEME, TOKEN_KEY
from assay.rpc.addresses import first_of_list, is_local
from assay.rpc.methods import service_config
from assay.rpc.options import ChannelOptions, channel_arguments
from assay.telemetry.tracing import TRACEPARENT, is_tracing, traceparent

T = TypeVar("T")
Status = health_pb2.HealthCheckResponse

_PAUSE_BETWEEN_WATCHES_S = 0.1


class WrappedChannel(grpc.aio.Channel):
    """Delegates calls to another channel.

    Args:
        channel: The channel that makes the calls.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._channel = channel

    async def __aenter__(self) -> Self:
        await self._channel.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.__aexit__(kind, error, trace)

    async def close(self, grace: float | None = None) -> None:
        """Close the connection."""
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Return the state of the connection."""
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait until the connection has another state."""
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """Wait until the channel is connected."""
        await self._channel.channel_ready()

    def unary_unary(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Return the caller of a method."""
        return self._calling(method, self._channel.unary_unary(method, *arguments, **options))

    def unary_stream(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Return the caller of a method."""
        return self._calling(method, self._channel.unary_stream(method, *arguments, **options))

    def stream_unary(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Return the caller of a method."""
        return self._calling(method, self._channel.stream_unary(method, *arguments, **options))

    def stream_stream(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Return the caller of a method."""
        return self._calling(method, self._channel.stream_stream(method, *arguments, **options))

    @abstractmethod
    def _calling(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the other channel's caller of a method."""


def open_channel(address: str, options: ChannelOptions = ChannelOptions()) -> grpc.aio.Channel:  # noqa: B008
    """Return a channel, which connects with the first call; close it with `async with` or `close`.

    Args:
        address: "unix:/path", "host:port", or "dns:///host:port" for all servers behind a name:
            calls then go in turn to those that are healthy. "ipv4:host:port,host:port" and "ipv6:..." are a list, of
            which the first that answers is used; over TLS the certificate of each is one for the first address.
        options: How the client behaves.

    Raises:
        SetupError: The files of TLS cannot be used.
    """
    if not options.authority and (first := first_of_list(address)):
        options = dataclasses.replace(options, authority=first)  # else gRPC looks for the whole list in certificates
    config = service_config(options, pool=address.startswith("dns:///"))
    arguments = channel_arguments(options, config)
    interceptors = [_DefaultDeadline(options.default_timeout_s), *options.interceptors]
    credentials = _credentials(address, options)
    if credentials is None:
        channel = grpc.aio.insecure_channel(address, options=arguments, interceptors=interceptors)
    else:
        channel = grpc.aio.secure_channel(address, credentials, options=arguments, interceptors=interceptors)
    if is_tracing():
        channel = TracedChannel(channel)
    if not options.token:
        return channel

    return TokenChannel(channel, options.token)


def _credentials(address: str, options: ChannelOptions) -> grpc.ChannelCredentials | None:
    """Return the TLS credentials; None for a plain connection, which carries no token off this machine."""
    if options.tls is None and (options.credentials is not None or not options.token or is_local(address)):
        return options.credentials
    from assay.rpc.tls import ClientFiles, channel_credentials  # imported here: local calls do without it

    return channel_credentials(options.tls or ClientFiles())


async def wait_for_ready(channel: grpc.aio.Channel, service_name: str, timeout_s: float) -> None:
    """Wait until health reports that a service is ready.

    Args:
        channel: The channel to the server, which may not have started yet.
        service_name: Full name, e.g. "assay.v1.RunService"; "" for the process as a whole.
        timeout_s: Give up after this time.

    Raises:
        UnavailableError: It was not ready in time (reason NOT_READY).
        SetupError: The server answers and does not have the service (reason SERVICE_UNKNOWN).
    """
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                if await _becomes_ready(channel, service_name):
                    return
                await asyncio.sleep(_PAUSE_BETWEEN_WATCHES_S)  # the server is being replaced
    except TimeoutError:
        what = service_name or "The server"
        raise UnavailableError(f"{what} was not ready after {timeout_s:g} s.", reason="NOT_READY") from None


class StreamReading(Generic[T]):
    """The messages of a call; its stream is cancelled when reading ends, for any reason.

    Args:
        call: A call with a stream of responses.
    """

    def __init__(self, call: Any) -> None:
        self._call = call

    async def __aenter__(self) -> AsyncIterator[T]:
        messages: AsyncIterator[T] = aiter(self._call)
        return messages

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call.cancel()

    async def __aiter__(self) -> AsyncIterator[T]:
        try:
            async for message in self._call:
                yield message
        finally:
            self._call.cancel()


def read_stream(
    call: grpc.aio.UnaryStreamCall[Any, T] | grpc.aio.StreamStreamCall[Any, T],
) -> StreamReading[T]:
    """Read a stream and always close it: gRPC does not cancel a stream that is dropped.

    `async with read_stream(stub.WatchRun(request)) as messages: async for message in messages: ...`
    ends the call with the block. A plain `async for message in read_stream(call)` ends it with the loop,
    or, after a `break`, as soon as the event loop runs again.

    Args:
        call: A call with a stream of responses.
    """
    return StreamReading(call)


class _DefaultDeadline(grpc.aio.UnaryUnaryClientInterceptor):
    """Sets the default deadline of calls without one."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s

    async def intercept_unary_unary(
        self,
        continuation: Callable[[grpc.aio.ClientCallDetails, Any], Awaitable[Any]],
        client_call_details: grpc.aio.ClientCallDetails,
        request: Any,
    ) -> Any:
        details = client_call_details
        if details.timeout is None:
            details = grpc.aio.ClientCallDetails(
                method=details.method,
                timeout=self._timeout_s,
                metadata=details.metadata,
                credentials=details.credentials,
                wait_for_ready=details.wait_for_ready,
            )
        return await continuation(details, request)


async def _becomes_ready(channel: grpc.aio.Channel, service_name: str) -> bool:
    """Return True once the service is ready, or False if the connection breaks first."""
    watch = channel.unary_stream(
        "/grpc.health.v1.Health/Watch",
        request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
        response_deserializer=Status.FromString,
    )
    request = health_pb2.HealthCheckRequest(service=service_name)
    try:
        async with read_stream(watch(request, wait_for_ready=True)) as changes:
            async for change in changes:
                if change.status == Status.SERVING:
                    return True
                if change.status == Status.SERVICE_UNKNOWN:
                    message = f"The server answers but does not serve {service_name}; check its address."
                    raise SetupError(message, reason="SERVICE_UNKNOWN")
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.UNIMPLEMENTED:
            message = "The server answers but has no health service; check its address."
            raise SetupError(message, reason="SERVICE_UNKNOWN") from error
    return False


class TokenChannel(WrappedChannel):
    """Sends a token with every call except health checks.

    Args:
        channel: The channel that makes the calls.
        token: The token's text.
    """

    def __init__(self, channel: grpc.aio.Channel, token: str) -> None:
        super().__init__(channel)
        self._entry = (TOKEN_KEY, SCHEME + token)
        self._alone = grpc.aio.Metadata(self._entry)  # made once: most calls have no metadata of their own

    def _calling(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        if method.startswith("/grpc.health."):
            return call

        def with_token(*arguments: Any, metadata: Any = None, **options: Any) -> Any:
            whole = (*metadata, self._entry) if metadata else self._alone
            return call(*arguments, metadata=whole, **options)

        return with_token


class TracedChannel(WrappedChannel):
    """Sends a traceparent with every call made within a span."""

    def _calling(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def with_parent(*arguments: Any, metadata: Any = None, **options: Any) -> Any:
            if parent := traceparent():
                metadata = (*(metadata or ()), (TRACEPARENT, parent))
            return call(*arguments, metadata=metadata, **options)

        return with_parent
