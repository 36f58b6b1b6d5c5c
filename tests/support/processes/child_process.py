"""Child processes that live no longer than a block of a test."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@contextmanager
def child_process(command: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Start a process, and kill it at the end of the block if it still runs.

    The block of a `subprocess.Popen` waits for the process instead, for ever after a failed assertion.

    Args:
        command: The program and its arguments.
        options: Further arguments of `subprocess.Popen`.
    """
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            process.kill()
