"""A TCP proxy that can swallow everything, as a network does that loses a host: no reset, no end, no answer."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

_CHUNK_BYTES = 65536


class Proxy:
    """Passes bytes on to a port of this machine, unless it swallows them.

    Args:
        port: Where to.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._open = asyncio.Event()
        self._open.set()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        await self.drop()
        await self._server.wait_closed()

    @property
    def port(self) -> int:
        """Where it listens."""
        assert self._server is not None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def swallow(self) -> None:
        """Pass nothing on from now on, in either direction; connections stay."""
        self._open.clear()

    def pass_on(self) -> None:
        """Pass everything on again, also what was held back meanwhile."""
        self._open.set()

    async def drop(self) -> None:
        """End all connections."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        onward: asyncio.StreamWriter | None = None
        try:
            await self._open.wait()
            answers, onward = await asyncio.open_connection("127.0.0.1", self._target)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._carry(reader, onward))
                both.create_task(self._carry(answers, writer))
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            pass  # an end broke the connection
        finally:
            self._tasks.discard(task)
            for end in (writer, onward):
                if end is not None:
                    end.close()
                    with contextlib.suppress(OSError):
                        await end.wait_closed()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            await self._open.wait()
            writer.write(chunk)
            await writer.drain()
        writer.close()
