"""A gRPC server with health, reflection and the interceptor, from start to stop."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import re
import signal
import socket
import stat
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import grpc
import grpc.aio
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from grpc_health.v1 import health_pb2_grpc

from assay.errors import SetupError
from assay.rpc.health import Health
from assay.rpc.interceptors import CallInterceptor
from assay.rpc.methods import CHANGING_RIGHTS, METHODS, MethodRule
from assay.rpc.options import ServerOptions, server_arguments

_HEALTH_SERVICE = "grpc.health.v1.Health"
_REFLECTION_SERVICE = "grpc.reflection.v1alpha.ServerReflection"
_NAMING = re.compile(r"(^|_)(ids?|teams?|names?|token)$")
_MAX_NAMING_DEPTH = 8  # a message that may hold itself is not followed without end
_MAX_SOCKET_PATH_BYTES = 107  # what the kernel takes
_LEAVE_S = 0.5


class RpcServer:
    """A gRPC server.

    Args:
        options: Its limits and timings.

    Attributes:
        stopping: Set when the server begins to stop; handlers of long streams then end them.
    """

    def __init__(self, options: ServerOptions = ServerOptions()) -> None:  # noqa: B008  # frozen
        self.stopping = asyncio.Event()
        self._options = options
        self._services: dict[str, Callable[[grpc.aio.Server], None]] = {}
        self._rules: dict[str, MethodRule] = {}
        self._server: grpc.aio.Server | None = None
        self._health_server: grpc.aio.Server | None = None
        self._bound = ""
        self._handlers = _Handlers()
        self._held: set[str] = set()
        self._opened = asyncio.Event()
        self._health = Health(frozenset())
        self._serving = False

    def add(
        self,
        service_name: str,
        register: Callable[[grpc.aio.Server], None] | None = None,
        methods: Mapping[str, MethodRule] | None = None,
    ) -> None:
        """Add a service before the start.

        Args:
            service_name: Full name, e.g. "assay.v1.RunService"; health and reflection use it.
            register: Registers the servicer with the gRPC server; None if `complete` will, after the start. Calls of
                such a service wait until the server serves.
            methods: The rule of each method by name; None for those in `assay.rpc.methods.METHODS`.

        Raises:
            RuntimeError: The server has started, or a method of the service has no fitting rule.
        """
        if self._server is not None:
            raise RuntimeError(f"{service_name} was added after the server had started")
        if methods is None and service_name not in METHODS:
            raise RuntimeError(f"{service_name} has no rules for its methods: add them to assay.rpc.methods.METHODS")
        self._rules |= rules_of(service_name, METHODS[service_name] if methods is None else methods)
        self._services[service_name] = register or _nothing
        if register is None:
            self._held.add(service_name)

    def complete(self, service_name: str, register: Callable[[grpc.aio.Server], None]) -> None:
        """Register the servicer of a service added without one.

        For a server that listens before its slow imports: early calls wait until it serves.

        Args:
            service_name: The name passed to `add`.
            register: Registers the servicer with the gRPC server.

        Raises:
            RuntimeError: A method of the service has no fitting rule.
        """
        names = (name.rpartition("/") for name in self._rules)
        rules = {method: self._rules[f"{path}/{method}"] for path, _, method in names if path == f"/{service_name}"}
        rules_of(service_name, rules)
        self._handlers.add(register)

    async def start(self, address: str) -> str:
        """Listen at an address; health reports NOT_SERVING until `set_serving`.

        A server that is already listening keeps its address.

        Args:
            address: "unix:/path" or "host:port"; port 0 takes a free port.

        Returns:
            The address for clients, with the actual port.

        Raises:
            SetupError: The address is taken or invalid, or the TLS files cannot be used.
        """
        if self._bound:
            return self._bound
        _check_address(address)
        rules = self._rules | rules_of(_HEALTH_SERVICE, METHODS[_HEALTH_SERVICE])
        if self._options.reflection:
            rules |= rules_of(_REFLECTION_SERVICE, METHODS[_REFLECTION_SERVICE])
        server = grpc.aio.server(
            interceptors=[CallInterceptor(self._options, rules, self._until_open), *self._options.interceptors],
            options=server_arguments(self._options),
        )
        self._health = Health(frozenset(self._services))
        self._health.set_serving(self._serving)
        for register in (self._add_health, *self._services.values()):
            self._handlers.add(register)
        if self._options.reflection:
            self._handlers.add(self._add_reflection)
        server.add_generic_rpc_handlers((self._handlers,))
        bound = _bind(server, address, self._credentials())
        await self._start_health()
        await server.start()
        self._server, self._bound = server, bound
        return bound

    async def _start_health(self) -> None:
        """Serve only health at its own address: Kubernetes probes have neither TLS nor tokens."""
        address = self._options.health_address
        if not address:
            return
        _check_address(address)
        plain = dataclasses.replace(self._options, authenticator=None, auditor=None, interceptors=())
        rules = rules_of(_HEALTH_SERVICE, METHODS[_HEALTH_SERVICE])
        server = grpc.aio.server(interceptors=[CallInterceptor(plain, rules)], options=server_arguments(plain))
        self._add_health(server)
        _bind(server, address, None)
        await server.start()
        self._health_server = server

    def _add_health(self, server: grpc.aio.Server) -> None:
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)

    def _add_reflection(self, server: grpc.aio.Server) -> None:
        from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc  # imported here: local services do without

        names = [*self._services, _HEALTH_SERVICE, _REFLECTION_SERVICE]
        servicer = reflection.aio.ReflectionServicer(names)
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]

    def _credentials(self) -> grpc.ServerCredentials | None:
        if self._options.tls is None:
            return self._options.credentials
        from assay.rpc.tls import server_credentials  # imported here: local services do without it

        return server_credentials(self._options.tls)

    async def _until_open(self, method: str) -> None:
        # Before a servicer has recovered what was in progress, a call finds what is about to change.
        if not self._opened.is_set() and method.split("/")[1] in self._held:
            await self._opened.wait()

    def set_serving(self, serving: bool) -> None:
        """Report through health whether the server accepts calls."""
        self._serving = serving
        self._health.set_serving(serving)
        if serving:
            self._opened.set()

    def begin_stopping(self) -> None:
        """Report NOT_SERVING and set `stopping`; running calls continue."""
        self.set_serving(False)
        self.stopping.set()
        self._opened.set()  # no call waits for a start that will not come

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls, let running calls finish, then cancel the rest.

        Args:
            grace_s: Running calls may take this long; 0 cancels them at once.
        """
        self.begin_stopping()
        # Watches of health would otherwise hold up the stop for the whole grace period.
        self._health.close()
        for server in (self._server, self._health_server):
            if server is not None:
                await server.stop(grace_s or None)


class _Handlers(grpc.GenericRpcHandler):
    """The handlers of a server; unlike gRPC's own, they may be added after the start.

    gRPC's server searches its registered methods for each call; a single handler for all methods is cheaper.
    """

    def __init__(self) -> None:
        self._handlers: list[grpc.GenericRpcHandler] = []

    def add(self, register: Callable[[grpc.aio.Server], None]) -> None:
        """Add the handlers that a function registers."""
        register(self)  # type: ignore[arg-type]  # takes handlers like a server

    def add_generic_rpc_handlers(self, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        self._handlers.extend(handlers)

    def add_registered_method_handlers(self, service_name: str, handlers: object) -> None:
        """Ignore the second registration of generated code."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        candidates = (handlers.service(details) for handlers in self._handlers)
        return next((handler for handler in candidates if handler is not None), None)


def _nothing(server: grpc.aio.Server) -> None:
    """Register nothing yet."""


def rules_of(service_name: str, methods: Mapping[str, MethodRule]) -> dict[str, MethodRule]:
    """Check the rules of a service's methods against its descriptor; return them by full name.

    Raises:
        RuntimeError: A method has no rule, or a rule for another kind of stream.
    """
    try:
        described = descriptor_pool.Default().FindServiceByName(service_name).methods
    except KeyError:
        described = ()  # served without a contract: the rules given are all there is
    for method in described:
        rule = methods.get(method.name)
        if rule is None:
            raise RuntimeError(f"{method.full_name} has no rule: add one to assay.rpc.methods.METHODS")
        if (rule.client_streams, rule.server_streams) != (method.client_streaming, method.server_streaming):
            raise RuntimeError(f"the rule of {method.full_name} is for another kind of stream: correct METHODS")
        if rule.right is None:
            raise RuntimeError(f"the rule of {method.full_name} has no right: say in METHODS what a caller must have")
        if rule.audit is None and rule.right in CHANGING_RIGHTS:
            raise RuntimeError(
                f"the rule of {method.full_name} has no audit: say in METHODS what is recorded of its calls"
            )
        if difference := sorted(set(naming_fields(method.input_type)) ^ set(rule.names)):
            raise RuntimeError(
                f"the rule of {method.full_name} and its request differ in the fields that name something: "
                f"{', '.join(difference)}; correct METHODS"
            )
    return {f"/{service_name}/{name}": rule for name, rule in methods.items()}


def naming_fields(message: Descriptor, prefix: str = "") -> Iterator[str]:
    """Yield the paths of a request's fields that name a resource, by the naming rules of the contracts.

    Repeated messages are skipped: they are content, such as cases and answers, with their own ids.
    """
    for field in message.fields:
        path = f"{prefix}{field.name}"
        if field.type == FieldDescriptor.TYPE_STRING and _NAMING.search(field.name):
            yield path
        elif field.message_type is not None and not field.is_repeated and not path.count(".") > _MAX_NAMING_DEPTH:
            yield from naming_fields(field.message_type, f"{path}.")


async def serve_until_signal(
    server: RpcServer,
    address: str,
    *,
    on_ready: Callable[[str], Awaitable[None]] | None = None,
    on_drain: Callable[[], Awaitable[None]] | None = None,
    grace_s: float = 10.0,
    also_stop_on: asyncio.Event | None = None,
    leave_s: float = _LEAVE_S,
) -> None:
    """Serve until SIGTERM or SIGINT, then drain and stop; a second signal stops at once.

    Args:
        server: A server that has not started, or is already listening there.
        address: The address, as in `RpcServer.start`.
        on_ready: Awaited with the bound address before health reports SERVING, e.g. to warm up.
        on_drain: Awaited after health reports NOT_SERVING and `stopping` is set.
        grace_s: How long running calls may take after the drain, in seconds.
        also_stop_on: Stops the server like a first signal, which also sets it.
        leave_s: How long calls are still accepted after NOT_SERVING, in seconds; not at a unix socket.

    Raises:
        SetupError: The address is taken or invalid.
    """
    first, second = also_stop_on or asyncio.Event(), asyncio.Event()
    # Before the start, so that a signal during the start is not lost.
    with _signals_set(first, second):
        bound = await server.start(address)
        try:
            if on_ready is None or await _finished_before(first, _awaited(on_ready(bound))):
                server.set_serving(True)
                await first.wait()
            leave_s = 0.0 if bound.startswith("unix:") else leave_s
            await _finished_before(second, _drained(server, on_drain, grace_s, leave_s))
        finally:
            await server.stop(0)


async def _drained(
    server: RpcServer, on_drain: Callable[[], Awaitable[None]] | None, grace_s: float, leave_s: float
) -> None:
    server.begin_stopping()
    # Clients that watch health go elsewhere. A call that gRPC has taken and no handler has when the server stops ends
    # as CANCELLED, after which a client does not make it again.
    await asyncio.gather(asyncio.sleep(leave_s), *([] if on_drain is None else [on_drain()]))
    await server.stop(grace_s)


async def _awaited(awaitable: Awaitable[None]) -> None:
    await awaitable


async def _finished_before(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Run `work` and cancel it when the event is set; return whether it finished."""
    working, waiting = asyncio.ensure_future(work), asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            await working
            return True
        return False
    finally:
        working.cancel()
        waiting.cancel()
        await asyncio.gather(working, waiting, return_exceptions=True)


@contextmanager
def _signals_set(first: asyncio.Event, second: asyncio.Event) -> Iterator[None]:
    """Let the first signal set one event and any later signal the other."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only; the caller stops the server by event
        return

    def arrived() -> None:
        (second if first.is_set() else first).set()

    loop = asyncio.get_running_loop()
    caught = (signal.SIGTERM, signal.SIGINT)
    for number in caught:
        loop.add_signal_handler(number, arrived)
    try:
        yield
    finally:
        for number in caught:
            loop.remove_signal_handler(number)


def exit_now(status: int) -> NoReturn:
    """End a process whose resources are closed, without unloading its modules.

    Unloading takes longer than serving a small run, and the command would wait for it.
    """
    logging.shutdown()
    # `os._exit` flushes nothing.
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


def _check_address(address: str) -> None:
    if address.startswith("unix:"):
        _free_socket_path(Path(address.removeprefix("unix:")))
        return
    _, separator, port = address.rpartition(":")
    if not separator or not port.isdecimal() or int(port) > 65_535:
        raise SetupError(
            f'"{address}" is no address to listen at; use unix:/path or host:port, e.g. 127.0.0.1:7070.',
            reason="BAD_ADDRESS",
        )


def _free_socket_path(path: Path) -> None:
    """Remove a socket file without a listener; gRPC would also replace a socket in use."""
    if len(bytes(path)) > _MAX_SOCKET_PATH_BYTES:
        message = f"The socket path {path} is longer than {_MAX_SOCKET_PATH_BYTES} bytes; use a shorter one."
        raise SetupError(message, reason="BAD_ADDRESS")
    if not path.parent.is_dir():
        raise SetupError(f"The folder of the socket {path} does not exist; create it.", reason="BAD_ADDRESS")
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise SetupError(f"{path} exists and is not a socket; use another path.", reason="ADDRESS_TAKEN")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise SetupError(f"Another server listens at {path}; stop it or use another path.", reason="ADDRESS_TAKEN")


def _bind(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> str:
    # Only the socket's own user may connect, whatever the umask: a connection is all that a caller needs here.
    umask = os.umask(0o177)
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise SetupError(
            f"Cannot listen at {address}: another server may use it, or it is no address of this machine; stop that "
            "server or choose another address.",
            reason="ADDRESS_TAKEN",
        ) from error
    finally:
        os.umask(umask)
    if address.startswith("unix:"):
        return address
    host, _, _ = address.rpartition(":")
    return f"{host}:{port}"
