"""The logs of the local services: each start appends to its service's log, which also explains why a service ended."""

from __future__ import annotations

import os
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES = 4 << 20
"""A log that has grown beyond this is set aside with the next start, in place of the one that was set aside before."""
_TAIL_LINES = 12


def open_log(path: Path) -> IO[bytes]:
    """Open a log for appending, readable only for its owner; later starts keep earlier errors."""
    if path.exists() and path.stat().st_size > MOST_BYTES:
        path.replace(path.with_name(f"{path.name}.1"))
    return open(path, "ab", opener=_private)


def last_words(path: Path, start: int, service: str) -> str:
    """Return why a service ended: its own message, or the last lines of its log.

    Args:
        path: The log.
        start: The offset at which this start of the service begins, in bytes.
        service: The service's name, with which its messages begin.
    """
    try:
        with path.open("rb") as log:
            log.seek(start)
            lines = log.read().decode(errors="replace").splitlines()[-_TAIL_LINES:]
    except OSError:
        return "(no log)"
    own_lines = [line for line in lines if line.startswith(f"assay {service}: ")]
    return "\n".join(own_lines or lines)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
