"""Temporary files of the tests are in memory where that is possible."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.support.processes import temporary_files
from tests.support.processes.temporary_files import NEEDED_BYTES, keep_in_memory

VARIABLES = ("PYTEST_DEBUG_TEMPROOT", "TMPDIR")


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # set again in the end, and unset now
        monkeypatch.delenv(name)
    monkeypatch.setattr(tempfile, "tempdir", None)


def have(monkeypatch: pytest.MonkeyPatch, free: int = NEEDED_BYTES, flags: int = 0) -> None:
    """Let every file system have so much room, and be mounted so."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    monkeypatch.setattr(
        temporary_files, "os", SimpleNamespace(**vars(os) | {"statvfs": lambda path: SimpleNamespace(f_flag=flags)})
    )


def test_files_are_put_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of this process and of the ones that it starts."""
    have(monkeypatch)
    assert keep_in_memory(tmp_path)
    assert tempfile.gettempdir() == str(tmp_path)
    program = "import tempfile; print(tempfile.gettempdir())"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == str(tmp_path)


@pytest.mark.parametrize(
    "given", [{"free": NEEDED_BYTES - 1}, {"flags": os.ST_NOEXEC}], ids=["small", "programs cannot be run in it"]
)
def test_a_folder_that_does_not_do_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, int]
) -> None:
    """It has too little room, as in a container, or the tests' programs cannot be run there."""
    have(monkeypatch, **given)
    assert not keep_in_memory(tmp_path)
    assert tempfile.gettempdir() != str(tmp_path)


def test_a_machine_without_such_a_folder(tmp_path: Path) -> None:
    """As other systems than Linux are."""
    assert not keep_in_memory(tmp_path / "none")


@pytest.mark.parametrize("name", VARIABLES)
def test_a_folder_that_is_given_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """By the variables of Python and of pytest."""
    have(monkeypatch)
    monkeypatch.setenv(name, "elsewhere")
    assert not keep_in_memory(tmp_path)
