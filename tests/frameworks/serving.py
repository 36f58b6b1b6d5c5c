"""Applications of HTTP on a free port, in the event loop of a test; imported where their packages are."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import uvicorn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


@asynccontextmanager
async def serving_app(make_app: Callable[[str], Any]) -> AsyncIterator[str]:
    """Serve what a function makes of the server's URL; yields the URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(make_app(url), log_level="warning", lifespan="off"))
        task = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield url
        finally:
            server.should_exit = True
            await task
