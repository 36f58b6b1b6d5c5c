"""Atomic files: readers see a complete file or none."""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import re
import secrets
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from assay.errors import SetupError
from assay.process.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_NAME_CHARS = 50  # a name has at most 255 bytes
_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{16}\.part")


def check_folder(folder: Path, *, option: str = "--output-dir") -> None:
    """Check that files can be written in a folder, which need not exist yet; leaves no trace.

    Args:
        option: The option that names another place, for the error message.

    Raises:
        SetupError: The folder is not writable.
    """
    above = existing_folder(folder)
    if not above.is_dir():
        raise _unwritable(folder, f"{above} is not a folder", option)
    # Permission bits are not enough: some file systems refuse every user.
    try:
        fd, probe = tempfile.mkstemp(prefix=".assay-", dir=above)
    except OSError as error:
        raise _unwritable(folder, f"{above}: {error.strerror or error}", option) from None
    os.close(fd)
    Path(probe).unlink(missing_ok=True)


def existing_folder(folder: Path) -> Path:
    """Return the folder, or the nearest path above it that exists."""
    above = folder.absolute()
    while not os.path.lexists(above):
        above = above.parent
    return above


def _unwritable(path: Path, why: str, option: str) -> SetupError:
    return SetupError(f"{path} cannot be written ({why}): choose another place with {option}")


@contextmanager
def atomic_writer(path: Path, *, option: str = "--output-dir") -> Iterator[IO[str]]:
    """Open a text file that appears under its name only once it is complete.

    Args:
        path: The file.
        option: The option that names another place, for the error message.

    Raises:
        SetupError: The file cannot be written.
    """
    with atomic_binary_writer(path, option=option) as raw:
        file = io.TextIOWrapper(raw, encoding="utf-8", newline="\n")
        yield file
        file.flush()
        file.detach()


@contextmanager
def atomic_binary_writer(path: Path, *, option: str = "--output-dir") -> Iterator[IO[bytes]]:
    """Like `atomic_writer`, for binary files."""
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name[:_MAX_NAME_CHARS]}.{secrets.token_hex(8)}.part")
        # The user's umask decides the mode: a report contains answers.
        fd = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        temporary = str(partial)
        with os.fdopen(fd, "wb") as file:
            _lock(fd)  # while the lock is held, `remove_leftovers` skips the file
            yield file
            file.flush()
            os.fsync(fd)
        failpoint("report.before_rename")
        Path(temporary).replace(path)
        failpoint("report.after_rename")
        temporary = ""
    except OSError as error:
        raise _unwritable(path, str(error.strerror or error), option) from error
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> None:
    """Remove unfinished files of killed processes from a folder; files being written stay."""
    for path in folder.glob(".*.part") if folder.is_dir() else ():
        if not _LEFTOVER.fullmatch(path.name):
            continue
        with contextlib.suppress(OSError), path.open("rb") as file:
            if _lock(file.fileno()):
                path.unlink()


def _lock(fd: int) -> bool:
    """Try to lock a file; return whether this process holds the lock."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
