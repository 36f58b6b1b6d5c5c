"""The commit that a folder is checked out at, and whether its files differ from it.

The commit is read from `.git`: that needs no program. Whether files differ is asked of git itself, which knows about
line ends and filters; git gets little time and no pipe, so neither it nor a child of it can hold a run up.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path

from assay.records import dataclass

_GIT_TIMEOUT_S = 2.0
_MOST_BYTES = 64 * 1024**2
_MOST_LINKS = 5
_COMMIT = re.compile("[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclass(frozen=True, slots=True)
class GitState:
    """What git knows of a folder.

    Args:
        commit: In full; empty where the folder is in no repository, or has no commit.
        dirty: Whether files that git tracks differ from the commit; None where that is not known.
    """

    commit: str = ""
    dirty: bool | None = None


def git_state(folder: Path, timeout_s: float = _GIT_TIMEOUT_S) -> GitState:
    """Return what git knows of a folder; nothing is raised where there is no git.

    Args:
        folder: Any folder.
        timeout_s: How long git may take to compare files, in seconds.
    """
    with contextlib.suppress(OSError, ValueError):
        root = next((one for one in (folder.resolve(), *folder.resolve().parents) if (one / ".git").exists()), None)
        commit = "" if root is None else _commit(root / ".git")
        if root is not None and commit:
            return GitState(commit, _is_dirty(root, timeout_s))
    return GitState()


def _commit(git: Path) -> str:
    """Return the commit that HEAD names; empty where there is none, or it is stored in a form that is not known."""
    if git.is_file():  # a worktree, or a submodule
        git = (git.parent / _read(git).removeprefix("gitdir:").strip()).resolve()
    shared = git / "commondir"
    common = (git / _read(shared).strip()).resolve() if shared.is_file() else git
    text = _read(git / "HEAD").strip()
    for _ in range(_MOST_LINKS):
        if not text.startswith("ref:"):
            break
        name = text.removeprefix("ref:").strip()
        files = [one / name for one in (git, common) if ".." not in Path(name).parts and (one / name).is_file()]
        text = _read(files[0]).strip() if files else _packed(common / "packed-refs", name)
    return text if _COMMIT.fullmatch(text) else ""


def _packed(file: Path, name: str) -> str:
    if not file.is_file():
        return ""
    return next((line.split()[0] for line in _read(file).splitlines() if line.endswith(f" {name}")), "")


def _read(file: Path) -> str:
    if not file.is_file() or file.stat().st_size > _MOST_BYTES:
        return ""
    return file.read_text("utf-8")


def _is_dirty(root: Path, timeout_s: float) -> bool | None:
    command = [
        "git",
        "-c",
        "core.fsmonitor=false",
        "diff",
        "--quiet",
        "--no-ext-diff",
        "--ignore-submodules=dirty",
        "HEAD",
    ]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        process = subprocess.Popen(  # noqa: S603 - the user's own git, without a word of anybody else
            command,
            cwd=root,
            env={**environ, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None
    try:
        return {0: False, 1: True}.get(process.wait(timeout_s))
    except subprocess.TimeoutExpired:
        return None
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
