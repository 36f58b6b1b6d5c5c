"""The infinity embedding server as a yardstick: the same model and callers, over HTTP."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx2
import numpy as np
import psutil

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_STARTUP_S = 180.0
_LOOK_S = 0.1


class Infinity:
    """A running server.

    Args:
        client: The HTTP client of the server.
        model: The name under which it serves its model.
        process: Its process.
    """

    def __init__(self, client: httpx2.AsyncClient, model: str, process: psutil.Process) -> None:
        self.process = process
        self._client = client
        self._model = model

    async def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of some texts, shape (texts, dimension)."""
        body = {"model": self._model, "input": list(texts), "encoding_format": "base64"}
        response = await self._client.post("/embeddings", json=body)
        response.raise_for_status()
        return np.stack([np.frombuffer(base64.b64decode(item["embedding"]), "<f4") for item in response.json()["data"]])


@asynccontextmanager
async def infinity_server(command: Path, folder: Path, callers: int) -> AsyncIterator[Infinity]:
    """Run the server with its defaults for torch on a CPU, without its vector cache.

    Args:
        command: `infinity_emb` of a separate environment (`pip install "infinity-emb[torch,server]"`).
        folder: The model, as sentence-transformers saved it.
        callers: Number of open connections.
    """
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    arguments = ["v2", "--model-id", str(folder), "--served-model-name", "model", "--engine", "torch"]
    arguments += ["--device", "cpu", "--dtype", "float32", "--no-vector-disk-cache", "--log-level", "warning"]
    process = await asyncio.create_subprocess_exec(
        command, *arguments, "--host", "127.0.0.1", "--port", str(port), env={**os.environ, "DO_NOT_TRACK": "1"}
    )
    limits = httpx2.Limits(max_connections=callers)
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=600, limits=limits) as client:
            async with asyncio.timeout(_STARTUP_S):
                await _until_ready(client, process)
            yield Infinity(client, "model", psutil.Process(process.pid))
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _until_ready(client: httpx2.AsyncClient, process: asyncio.subprocess.Process) -> None:
    while process.returncode is None:
        try:
            if (await client.get("/health")).is_success:
                return
        except httpx2.TransportError:
            await asyncio.sleep(_LOOK_S)
    raise SystemExit(f"the infinity server ended with {process.returncode}; its output says why")
