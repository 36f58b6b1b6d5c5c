"""Connection to an orchestrator: retries after a lost connection, and domain errors for failed calls."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from assay.errors import InvalidInputError, SetupError, StorageError, UnavailableError
from assay.rpc.channel import open_channel, wait_for_ready
from assay.rpc.options import ChannelOptions
from assay.rpc.status import translated
from assay.rpc.unknown_parts import UNKNOWN_FIELD, UNKNOWN_VALUE
from assay.v1 import run_pb2_grpc, server_pb2
from assay.v1.server_pb2_grpc import ServerServiceStub
from assay.version import __version__

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import TracebackType

    import grpc.aio
    from google.protobuf.message import Message

    from assay.errors import UnavailableError

_log = logging.getLogger(__name__)

_SERVICE = "assay.v1.RunService"
PAGE_TIMEOUT_S = 60.0
"""Timeout of a call that reads a page, in seconds."""

S = TypeVar("S")
T = TypeVar("T")


class Patience:
    """Retry budget of a lost connection.

    Args:
        seconds: Time limit from the first failure on.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lost_at: float | None = None

    def renew(self) -> None:
        """Reset the budget after a successful call."""
        self._lost_at = None

    def spend(self, problem: UnavailableError) -> bool:
        """Return whether this is the first failure in a row; raise the problem once the time is over."""
        now = asyncio.get_running_loop().time()
        is_first = self._lost_at is None
        if self._lost_at is None:
            self._lost_at = now
        if now - self._lost_at >= self._seconds:
            raise problem
        return is_first


class Connection:
    """A connection to an orchestrator, with the arguments of `Client`."""

    def __init__(
        self,
        address: str,
        *,
        patience_s: float = 60.0,
        on_lost: Callable[[], Awaitable[None]] | None = None,
        token: str | None = None,
        tls_ca: str | Path | None = None,
        tls_cert: str | Path | None = None,
        tls_key: str | Path | None = None,
    ) -> None:
        self.address = address
        self._token = token
        self._tls_ca = tls_ca
        self._tls_pair = (tls_cert, tls_key)
        self._patience_s = patience_s
        self._on_lost = on_lost
        self._was_reached = False
        self._lost_count = 0

    async def __aenter__(self) -> Self:
        self._channel = open_channel(self.address, self._options())
        self._stub = run_pb2_grpc.RunServiceStub(self._channel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.close()

    def _options(self) -> ChannelOptions:
        from assay.local_stack.credentials import Credentials, credentials_for  # imported here: needed only to connect

        is_given = self._token is not None and self._tls_ca is not None and self._tls_pair != (None, None)
        credentials = Credentials() if is_given else credentials_for(self.address)
        token = credentials.token if self._token is None else self._token
        ca = credentials.tls_ca if self._tls_ca is None else str(self._tls_ca)
        pair = (credentials.tls_cert, credentials.tls_key) if self._tls_pair == (None, None) else self._tls_pair
        certificate, key = (Path(part).expanduser() if part else None for part in pair)
        if (certificate is None) != (key is None):
            raise SetupError(
                "a client's certificate and its private key are given together: --tls-cert and --tls-key, or "
                "ASSAY_TLS_CERT and ASSAY_TLS_KEY"
            )
        if not ca and certificate is None:
            return ChannelOptions(token=token)
        from assay.rpc.tls import ClientFiles  # imported here: plain connections do not need it

        files = ClientFiles(Path(ca).expanduser() if ca else None, certificate, key)
        return ChannelOptions(token=token, tls=files)

    async def wait_for_ready(self, timeout_s: float) -> None:
        """Wait until the orchestrator is ready.

        Raises:
            UnavailableError: The orchestrator was not ready in time.
        """
        await wait_for_ready(self._channel, _SERVICE, timeout_s)
        self._was_reached = True

    async def server_version(self) -> str | None:
        """Return the orchestrator's version of Assay; None if it does not report one.

        Raises:
            UnavailableError: The orchestrator does not answer.
        """
        try:
            with translated():
                response = await ServerServiceStub(self._channel).GetServerInfo(server_pb2.GetServerInfoRequest())
        except SetupError:  # it does not know the call
            return None
        return response.version or None

    async def call(
        self,
        stub: Callable[[grpc.aio.Channel], S],
        attempt: Callable[[S], Awaitable[T]],
        *,
        repeatable: bool = True,
    ) -> T:
        """Make a call of one of the orchestrator's services and return its response.

        Args:
            stub: Creates the service's stub for a channel.
            attempt: Makes the call.
            repeatable: Whether the call is idempotent, so that it may be retried.
        """
        service = stub(self._channel)
        return await self._call(lambda: attempt(service), repeatable=repeatable)

    async def _call(
        self, attempt: Callable[[], Awaitable[T]], request: Message | None = None, *, repeatable: bool = True
    ) -> T:
        """Make a call with retries.

        A call that loses its connection, or that the orchestrator's database refuses, is retried while patience lasts.

        Args:
            attempt: Makes the call.
            request: The request, to name the fields that the orchestrator does not know.
            repeatable: Whether the call is idempotent, so that it may be retried.
        """
        patience = Patience(self._patience_s)
        while True:
            try:
                async with self._explained(request):
                    result = await attempt()
            except UnavailableError as problem:
                # If nothing has ever answered at this address, the address is most likely wrong.
                if not (repeatable and (self._was_reached or problem.reason == StorageError.reason)):
                    raise
                await self._lost(problem, patience)
            else:
                self._was_reached = True
                return result

    async def _page(self, fetch: Callable[[int], Awaitable[T]], page_size: int) -> T:
        """Return a page; if it does not fit in a message, request half as many entries."""
        try:
            return await self._call(lambda: fetch(page_size))
        except InvalidInputError as problem:
            if problem.reason != "MESSAGE_TOO_LARGE" or page_size < 2:
                raise
        return await self._page(fetch, page_size // 2)

    @asynccontextmanager
    async def _explained(self, request: Message | None = None) -> AsyncIterator[None]:
        """Raise the domain error of a failed call; for what the server does not know, it names the server's version."""
        try:
            with translated():
                yield
        except SetupError as problem:
            if problem.reason != "UNIMPLEMENTED":
                raise
            raise await self._too_old("this call") from problem
        except InvalidInputError as problem:
            if problem.reason not in (UNKNOWN_FIELD, UNKNOWN_VALUE):
                raise
            fields = (_named(request, found.field) for found in problem.problems)
            raise await self._too_old(", ".join(fields)) from problem

    async def _too_old(self, unknown: str) -> SetupError:
        return SetupError(
            f"{await self._server()} does not know {unknown} of Assay {__version__}: upgrade the orchestrator, or use "
            "an `assay` of its version",
            reason="SERVER_TOO_OLD",
        )

    async def _server(self) -> str:
        version = await self.server_version()
        return f"the orchestrator at {self.address}" + (f" (Assay {version})" if version else "")

    async def _lost(self, problem: UnavailableError, patience: Patience) -> None:
        if problem.reason == "QUERY_TIMEOUT":  # a retry would take just as long
            raise problem
        is_first = patience.spend(problem)
        if is_first and problem.reason == StorageError.reason:
            # Without this line the command would seem to hang: the orchestrator answers, but its database does not.
            _log.warning("waiting up to %g s: %s", self._patience_s, problem)
        self._lost_count += 1
        if self._on_lost is not None:
            await self._on_lost()
        await asyncio.sleep(0.2)


def _named(request: Message | None, path: str) -> str:
    """Return the path of a field with a name in place of its number, as far as the request's contract has it."""
    described, names = request.DESCRIPTOR if request is not None else None, []
    for part in path.split("."):
        name = part.partition("[")[0]
        field = None
        if described is not None:
            numbers, known = described.fields_by_number, described.fields_by_name
            field = numbers.get(int(name)) if name.isdecimal() else known.get(name)
        names.append(field.name if field is not None and name.isdecimal() else part)
        described = field.message_type if field is not None else None
    return ".".join(names)
