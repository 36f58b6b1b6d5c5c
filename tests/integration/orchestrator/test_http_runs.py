"""Runs of http agents: each row holds the answer to its own question."""

from __future__ import annotations

import asyncio
import json
import random
from typing import TYPE_CHECKING

from assay.model.case import Case, Turn
from assay.model.run import RunState

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.run import RunSettings

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSettings]

ROWS = 300


async def test_an_agent_that_answers_twice_shifts_no_row(serve: Serve, settings_of: SettingsOf) -> None:
    """Half of its replies are sent twice: every row is stored with its own answer, and none is an error."""
    rng = random.Random(4)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                asked = json.loads(await reader.readexactly(length))["input"]
                body = json.dumps({"text": f"answer to {asked}"}).encode()
                reply = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body
                writer.write(reply * (2 if rng.random() < 0.5 else 1))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the agent's caller has hung up, as it may
        finally:
            writer.close()

    cases = [Case(f"c{i}", (Turn(f"q{i}", references=(f"answer to q{i}",)),)) for i in range(ROWS)]
    listener = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/"
    try:
        async with serve() as client:
            dataset = await client.upload_dataset(cases, name="d")
            run = await client.create_run(settings_of("http", url, concurrency=8, retries=2), dataset.dataset_id)
            async for _ in client.watch_run(run.run_id):
                pass
            run = await client.get_run(run.run_id)
            rows = [row async for row in client.list_results(run.run_id)]
    finally:
        listener.close()
    assert run.state is RunState.SUCCEEDED
    assert [row.response.text for row in rows if row.response is not None] == [f"answer to q{i}" for i in range(ROWS)]
    assert (run.counts.passed, run.counts.agent_errors) == (ROWS, 0)
