"""The connection of a client to an orchestrator: calls that are repeated when it is lost, and errors of the domain."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from assay.client.patience import Patience
from assay.errors import SetupError, StorageError, UnavailableError
from assay.rpc.channel import open_channel, server_version, wait_for_ready
from assay.rpc.options import ChannelOptions
from assay.rpc.status import translated
from assay.v1 import orchestrator_pb2_grpc
from assay.version import __version__

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import TracebackType

    import grpc.aio

_log = logging.getLogger(__name__)

_SERVICE = "assay.v1.RunService"
PAGE_TIMEOUT_S = 60.0
"""How long a call that reads a page may take, in seconds."""

S = TypeVar("S")
T = TypeVar("T")


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
        self._stub = orchestrator_pb2_grpc.RunServiceStub(self._channel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.close()

    def _options(self) -> ChannelOptions:
        from assay.local_stack.credentials import Credentials, credentials_for  # imported here: only once it connects

        is_given = self._token is not None and self._tls_ca is not None and self._tls_pair != (None, None)
        kept = Credentials() if is_given else credentials_for(self.address)
        token = kept.token if self._token is None else self._token
        ca = kept.tls_ca if self._tls_ca is None else str(self._tls_ca)
        pair = (kept.tls_cert, kept.tls_key) if self._tls_pair == (None, None) else self._tls_pair
        certificate, key = (Path(part).expanduser() if part else None for part in pair)
        if (certificate is None) != (key is None):
            raise SetupError(
                "a client's certificate and its private key are given together: --tls-cert and --tls-key, or "
                "ASSAY_TLS_CERT and ASSAY_TLS_KEY"
            )
        if not ca and certificate is None:
            return ChannelOptions(token=token)
        from assay.rpc.tls import ClientFiles  # imported here: plain connections do without it

        files = ClientFiles(Path(ca).expanduser() if ca else None, certificate, key)
        return ChannelOptions(token=token, tls=files)

    async def wait_for_ready(self, timeout_s: float) -> None:
        """Wait until the orchestrator takes work.

        Raises:
            UnavailableError: It did not in time.
        """
        await wait_for_ready(self._channel, _SERVICE, timeout_s)
        self._was_reached = True

    async def server_version(self) -> str | None:
        """Return the version of Assay that the orchestrator runs; None where it does not say, as older ones.

        Raises:
            UnavailableError: It does not answer.
        """
        return await server_version(self._channel, _SERVICE)

    async def call(self, attempt: Callable[[orchestrator_pb2_grpc.RunServiceAsyncStub], Awaitable[T]]) -> T:
        """Return what a call of the service's stub returns; it may be made twice without harm."""
        return await self._call(lambda: attempt(self._stub))

    async def call_service(self, stub: Callable[[grpc.aio.Channel], S], attempt: Callable[[S], Awaitable[T]]) -> T:
        """Return what a call of another service of the orchestrator returns; it is made once.

        Args:
            stub: Makes the service's stub of a channel.
            attempt: Makes the call.
        """
        return await self._call(lambda: attempt(stub(self._channel)), repeatable=False)

    async def _call(self, attempt: Callable[[], Awaitable[T]], *, repeatable: bool = True) -> T:
        """Return what a call returns.

        A call that loses its connection, or that the database of the orchestrator refuses, is repeated as long as
        patience lasts.
        """
        patience = Patience(self._patience_s)
        while True:
            try:
                async with self._explained():
                    result = await attempt()
            except UnavailableError as problem:
                # An address at which nothing has ever answered is most likely wrong.
                if not (repeatable and (self._was_reached or problem.reason == StorageError.reason)):
                    raise
                await self._lost(problem, patience)
            else:
                self._was_reached = True
                return result

    @asynccontextmanager
    async def _explained(self) -> AsyncIterator[None]:
        """Raise the domain error for a failed call; one for a method unknown to the server names its version."""
        try:
            with translated():
                yield
        except SetupError as problem:
            if problem.reason != "UNIMPLEMENTED":
                raise
            raise await self._too_old("this call") from problem

    async def _too_old(self, what: str) -> SetupError:
        return SetupError(
            f"{await self._server()} does not know {what} of Assay {__version__}: upgrade the orchestrator, or use an "
            "`assay` of its version",
            reason="SERVER_TOO_OLD",
        )

    async def _server(self) -> str:
        version = await self.server_version() or "of a version that does not give its number"
        return f"the orchestrator at {self.address} (Assay {version})"

    async def _lost(self, problem: UnavailableError, patience: Patience) -> None:
        if problem.reason == "QUERY_TIMEOUT":  # it would take as long again
            raise problem
        is_first = patience.spend(problem)
        if is_first and problem.reason == StorageError.reason:
            # Nothing else shows it: the orchestrator answers, and the command would seem to hang.
            _log.warning("waiting up to %g s: %s", self._patience_s, problem)
        self._lost_count += 1
        if self._on_lost is not None:
            await self._on_lost()
        await asyncio.sleep(0.2)
