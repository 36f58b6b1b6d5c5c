"""Assay's state directory on this machine."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from assay.errors import SetupError

VECTORS_FILE = "vectors.sqlite"
"""The file in a folder of vectors."""
_MAX_SOCKET_PATH_BYTES = 90  # the kernel takes 107; the longest name below needs room


@dataclass(frozen=True, slots=True)
class Home:
    """The state directory: ASSAY_HOME, or ~/.assay.

    Args:
        path: The directory.
        sockets: Private directory (0700) of the local stack's sockets and locks.
        is_new: Whether this process created the directory.
    """

    path: Path
    sockets: Path
    is_new: bool = False

    @classmethod
    def find(cls, path: Path | None = None) -> Home:
        """Return the path of the state directory, whether or not it exists."""
        home = (path or Path(os.environ.get("ASSAY_HOME") or Path.home() / ".assay")).expanduser().absolute()
        sockets = home / "run"
        if len(os.fsencode(sockets)) > _MAX_SOCKET_PATH_BYTES:
            # Here: they take as long to import as the rest of a command's start.
            import hashlib
            import tempfile

            digest = hashlib.sha256(os.fsencode(home)).hexdigest()[:12]
            sockets = Path(tempfile.gettempdir()) / f"assay-{os.getuid()}-{digest}"
        return cls(home, sockets)

    @classmethod
    def open(cls, path: Path | None = None) -> Home:
        """Return the state directory, creating it if it is missing.

        Raises:
            SetupError: It cannot be created or written, or is not private.
        """
        home = cls.find(path)
        try:
            home = replace(home, is_new=_made(home.path))
            home.sockets.mkdir(mode=0o700, exist_ok=True)
            (home.path / "logs").mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise SetupError(
                f"{home.path} cannot be used ({error.strerror}): set ASSAY_HOME to a folder that can be written"
            ) from None
        _check_private(home.sockets)
        return home

    def remove(self) -> None:
        """Remove the files that services create when they start, and the directory if nothing else is in it."""
        with suppress(OSError):
            for file in (*self.sockets.iterdir(), *(self.path / "logs").iterdir(), *self.path.glob("assay.db*")):
                file.unlink()
            for folder in (self.sockets, self.path / "logs", self.path):
                folder.rmdir()

    @property
    def database(self) -> Path:
        """The database of the local orchestrator."""
        return self.path / "assay.db"

    @property
    def verdicts(self) -> Path:
        """The folder of the local judge's verdicts and spending."""
        return self.path / "verdicts"

    @property
    def vectors(self) -> Path:
        """The folder of the vectors that the local embedder keeps."""
        return self.path / "vectors"

    def socket(self, service: str) -> Path:
        """The socket of a local service."""
        return self.sockets / f"{service}.sock"

    def log(self, service: str) -> Path:
        """The log of a local service."""
        return self.path / "logs" / f"{service}.log"


def _made(folder: Path) -> bool:
    """Create a private directory and its parents; return False if it exists."""
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        folder.mkdir(mode=0o700, exist_ok=True)  # raises if it is a file
        return False
    return True


def _check_private(folder: Path) -> None:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise SetupError(f"{folder} is not a private folder of yours: remove it, or set ASSAY_HOME to another one")
