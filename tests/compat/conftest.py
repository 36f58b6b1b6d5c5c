"""The command of two versions in one folder, over one database."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.compat.versions import BASE_VARIABLE
from tests.e2e.conftest import Cli

from assay.rpc.channel import open_channel, wait_for_ready

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Sequence
    from pathlib import Path


class BaseCli(Cli):
    """Calls the `assay` of the base."""

    def command(self, *arguments: str | Path) -> list[str]:
        """Return the command line."""
        return [os.environ[BASE_VARIABLE], *super().command(*arguments)[1:]]


class Server:
    """An orchestrator of one version that commands of its version use.

    Args:
        cli: The commands.
        database: The flags that name the database.
    """

    def __init__(self, cli: Cli, database: Sequence[str]) -> None:
        self.cli = cli
        self.address = f"unix:{cli.folder}/orchestrator.sock"
        self.process: subprocess.Popen[str] = cli.start("serve", "orchestrator", "--listen", self.address, *database)
        self._commands: list[subprocess.Popen[str]] = []

    def wait_until_ready(self) -> None:
        """Wait until it takes work."""

        async def wait() -> None:
            async with open_channel(self.address) as channel:
                await wait_for_ready(channel, "assay.v1.RunService", 60)

        asyncio.run(wait())

    def run(self, *arguments: str | Path, status: int | None = 0) -> str:
        """Run a command and return what it prints; the exit status must be `status`."""
        return self.cli.run(*arguments, "--server", self.address, status=status).stdout

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """Start a command."""
        self._commands.append(self.cli.start(*arguments, "--server", self.address))
        return self._commands[-1]

    def stop(self, end: signal.Signals) -> None:
        """End it by a signal; it must have obeyed in order where that is SIGTERM."""
        self.process.send_signal(end)
        said = "".join(self.process.communicate(timeout=180))
        assert self.process.returncode == (0 if end is signal.SIGTERM else -end), said

    def close(self) -> None:
        """End what still runs."""
        for process in (self.process, *self._commands):
            process.kill()
            if process.stdout is not None and not process.stdout.closed:
                process.communicate()


@contextmanager
def serving(cli: Cli, database: Sequence[str], end: signal.Signals = signal.SIGTERM) -> Iterator[Server]:
    """Serve an orchestrator and end it by a signal."""
    server = Server(cli, database)
    try:
        server.wait_until_ready()
        yield server
        server.stop(end)
    finally:
        server.close()


@pytest.fixture
def versions(tmp_path: Path) -> Iterator[tuple[Cli, Cli]]:
    """Return the commands of the base and of this version in one folder; no service may be left behind."""
    base, own = BaseCli(tmp_path), Cli(tmp_path)
    base.env = own.env
    yield base, own
    left = own.services()
    for process in left:
        process.kill()
    assert not left, "services were left behind"


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """Return the flags that name an empty database, of both kinds."""
    if request.param == "sqlite":
        return ["--database", str(tmp_path / "shared.db")]
    return ["--database-url", request.getfixturevalue("postgres_url")]
