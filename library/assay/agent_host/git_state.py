"""The git commit of a folder, and whether its files differ from it.

git gets a short timeout and no pipe, so that neither it nor its children can block a run.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_GIT_TIMEOUT_S = 2.0
_COMMAND = (
    "git", "-c", "core.fsmonitor=false", "status", "--porcelain=v2", "--branch", "--untracked-files=no",
    "--ignore-submodules=dirty",
)  # fmt: skip
_COMMIT = "# branch.oid "


@dataclass(frozen=True, slots=True)
class GitState:
    """The git state of a folder.

    Args:
        commit: The full commit; empty outside a repository, without a commit, or if git failed.
        dirty: Whether tracked files differ from the commit; None if unknown.
    """

    commit: str = ""
    dirty: bool | None = None


def git_state(folder: Path, timeout_s: float = _GIT_TIMEOUT_S) -> GitState:
    """Return the git state of a folder; does not raise if git is missing.

    Args:
        folder: Any folder.
        timeout_s: git's timeout, in seconds.
    """
    with TemporaryFile() as output:
        if not _has_answered(folder, output, timeout_s):
            return GitState()
        output.seek(0)
        lines = output.read().decode("utf-8", "replace").splitlines()
    commit = next((line.removeprefix(_COMMIT) for line in lines if line.startswith(_COMMIT)), "")
    if not commit or commit == "(initial)":
        return GitState()
    return GitState(commit, dirty=any(not line.startswith("#") for line in lines))


def _has_answered(folder: Path, output: IO[bytes], timeout_s: float) -> bool:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        process = subprocess.Popen(  # noqa: S603 - the git on PATH, with words of ours alone
            _COMMAND,
            cwd=folder,
            env={**environ, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return False
    try:
        return process.wait(timeout_s) == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
