"""What the log says where the queue's database refuses connections; real PostgreSQL."""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.integration.orchestrator.jobs import queue_engine
from tests.support.processes.waiting import until

from assay_orchestrator.engine.queue import QueueDispatcher

if TYPE_CHECKING:
    from collections.abc import Iterator

PASSWORD = "s3cret-of-this-test"


@pytest.fixture
def limited_role(postgres_url: str) -> Iterator[str]:
    """Return a user of the test's server who may have one connection."""
    name = f"limited_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}' CONNECTION LIMIT 1".encode())
        yield name
        admin.execute(f"DROP ROLE {name}".encode())


class Lines(logging.Handler):
    """Keeps what the queue logs."""

    def __init__(self, level: int = logging.WARNING) -> None:
        super().__init__(level)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line."""
        self.lines.append(record.getMessage())

    def with_words(self, words: str) -> list[str]:
        """Return the lines that have some words."""
        return [line for line in self.lines if words in line]


async def test_the_log_gives_the_reason_without_the_password(postgres_url: str, limited_role: str) -> None:
    """An operator reads why the queue cannot be maintained and what to do, not the name of a class alone."""
    parameters = {**conninfo_to_dict(postgres_url), "user": limited_role, "password": PASSWORD}
    dispatcher = QueueDispatcher(parameters, works=False, concurrency=1, dead_after_s=20.0)
    found = Lines()
    logger = logging.getLogger("assay_orchestrator.engine.queue")
    logger.addHandler(found)

    async def work(run_id: str, shard_index: int, ticket: int) -> None:
        raise AssertionError(f"there is no job: {run_id}/{shard_index}/{ticket}")

    try:
        dispatcher.open(work)
        line, *_ = await until(lambda: found.with_words("too many connections"))
        problem = psycopg.OperationalError(f"something about {PASSWORD}")
        asyncio.get_running_loop().call_exception_handler({"message": "left behind", "exception": problem})
        await dispatcher.aclose()
    finally:
        logger.removeHandler(found)
    assert line.startswith(("cannot read the queue", "cannot maintain the queue"))
    assert "its database: it has no connection left: raise its max_connections, or close other programs" in line
    assert "something about ***" in found.with_words("cannot store the end of a job")[0]
    assert PASSWORD not in "\n".join(found.lines)


async def test_the_log_says_that_a_worker_joined(postgres_url: str) -> None:
    """Once, with its id, which the line on its loss names too; a process that takes no shards does not join."""
    logger = logging.getLogger("assay_orchestrator.engine.queue")
    found, level = Lines(logging.INFO), logger.level
    logger.addHandler(found)
    logger.setLevel(logging.INFO)

    async def work(run_id: str, shard_index: int, ticket: int) -> None:
        raise AssertionError(f"there is no job: {run_id}/{shard_index}/{ticket}")

    queue_engine(postgres_url)
    parameters = conninfo_to_dict(postgres_url)
    try:
        for works in (False, True):
            dispatcher = QueueDispatcher(parameters, works=works, concurrency=3, dead_after_s=1.0)
            dispatcher.open(work)
            if works:
                (line,) = await until(lambda: found.with_words("worker joined"))
            for _ in range(3):
                await dispatcher._maintained.wait()
            await dispatcher.aclose()
    finally:
        logger.removeHandler(found)
        logger.setLevel(level)
    assert found.with_words("worker joined") == [line]
    assert re.fullmatch(r"worker joined: worker=\d+ pid=\d+ concurrency=3", line)
