"""Who may read what Assay writes, and connect to what it listens at, under any umask."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from assay.reports.atomic import atomic_writer
from assay.rpc.server import RpcServer
from assay_judge.state.store import JudgeStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Umask = Callable[[int], None]


@pytest.fixture
def umask() -> Iterator[Umask]:
    """Set the umask; what it was comes back after the test."""
    before = os.umask(0o022)

    def change(mask: int) -> None:
        os.umask(mask)

    yield change
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """Return the permissions of what lies in a folder."""
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
async def test_only_its_own_user_connects_to_a_socket(tmp_path: Path, umask: Umask, mask: int) -> None:
    """A connection is all that a caller needs: no identity is asked for. The umask itself stays as it was."""
    umask(mask)
    server = RpcServer()
    await server.start(f"unix:{tmp_path}/s")
    try:
        assert modes(tmp_path) == {"s": 0o600}
    finally:
        await server.stop(0)
    assert os.umask(mask) == mask


@pytest.mark.parametrize(("mask", "mode"), [(0o000, 0o666), (0o022, 0o644), (0o077, 0o600)])
def test_a_report_has_the_permissions_that_the_user_wants(tmp_path: Path, umask: Umask, mask: int, mode: int) -> None:
    """It holds questions and answers: a umask of 077 keeps them from others."""
    umask(mask)
    with atomic_writer(tmp_path / "results.json") as file:
        file.write("{}")
    assert modes(tmp_path) == {"results.json": mode}


async def test_the_judges_files_are_its_own(tmp_path: Path, umask: Umask) -> None:
    """Verdicts quote answers; the log beside the database has its permissions."""
    umask(0)
    store = await JudgeStore.open(tmp_path)
    await store.put_verdict("local", "key", {})
    found = modes(tmp_path)
    await store.aclose()
    assert {"judge.db", "judge.db-wal", "judge.db.lock"} <= set(found)
    assert set(found.values()) == {0o600}
