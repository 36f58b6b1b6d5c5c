"""Files that are complete or absent."""

from __future__ import annotations

import os
import secrets
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from assay.errors import SetupError
from assay.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["atomic_writer"]

_MAX_NAME_CHARS = 50  # a name has at most 255 bytes


@contextmanager
def atomic_writer(path: Path, *, option: str = "--output-dir") -> Iterator[IO[str]]:
    """Open a text file that takes its place only when it was written whole.

    Args:
        path: The file.
        option: The option that names another place, for the message.

    Raises:
        SetupError: It cannot be written.
    """
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_name(f".{path.name[:_MAX_NAME_CHARS]}.{secrets.token_hex(8)}.part")
        # With the mode that the user's umask leaves: a report holds answers.
        fd = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        temporary = str(made)
        with os.fdopen(fd, "w", encoding="utf-8", newline="\n") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        failpoint("report.before_rename")
        Path(temporary).replace(path)
        failpoint("report.after_rename")
        temporary = ""
    except OSError as error:
        raise SetupError(
            f"{path} cannot be written ({error.strerror or error}): choose another place with {option}"
        ) from error
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
