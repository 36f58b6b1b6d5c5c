"""Files that are complete or absent."""

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
    """Raise if files could not be written in a folder, which need not exist yet; leaves nothing behind.

    Args:
        option: The option that names another place, for the message.

    Raises:
        SetupError: They could not.
    """
    above = folder.absolute()
    while not os.path.lexists(above):
        above = above.parent
    if not above.is_dir():
        raise _unwritable(folder, f"{above} is not a folder", option)
    # Rights alone do not say it: some file systems refuse every user.
    try:
        fd, probe = tempfile.mkstemp(prefix=".assay-", dir=above)
    except OSError as error:
        raise _unwritable(folder, f"{above}: {error.strerror or error}", option) from None
    os.close(fd)
    Path(probe).unlink(missing_ok=True)


def _unwritable(path: Path, why: str, option: str) -> SetupError:
    return SetupError(f"{path} cannot be written ({why}): choose another place with {option}")


@contextmanager
def atomic_writer(path: Path, *, option: str = "--output-dir") -> Iterator[IO[str]]:
    """Open a text file that takes its place only when it was written whole.

    Args:
        path: The file.
        option: The option that names another place, for the message.

    Raises:
        SetupError: It cannot be written.
    """
    with atomic_binary_writer(path, option=option) as raw:
        file = io.TextIOWrapper(raw, encoding="utf-8", newline="\n")
        yield file
        file.flush()
        file.detach()


@contextmanager
def atomic_binary_writer(path: Path, *, option: str = "--output-dir") -> Iterator[IO[bytes]]:
    """Do what `atomic_writer` does with a file of bytes."""
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_name(f".{path.name[:_MAX_NAME_CHARS]}.{secrets.token_hex(8)}.part")
        # With the mode that the user's umask leaves: a report holds answers.
        fd = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        temporary = str(made)
        with os.fdopen(fd, "wb") as file:
            _lock(fd)  # as long as it is held, `remove_leftovers` leaves the file alone
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
    """Remove unfinished files that a process left in a folder when it was killed; those being written stay."""
    for path in folder.glob(".*.part") if folder.is_dir() else ():
        if not _LEFTOVER.fullmatch(path.name):
            continue
        with contextlib.suppress(OSError), path.open("rb") as file:
            if _lock(file.fileno()):
                path.unlink()


def _lock(fd: int) -> bool:
    """Lock a file without waiting; return whether it is held here now, and not by another process."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
