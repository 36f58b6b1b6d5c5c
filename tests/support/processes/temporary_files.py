"""Keeps temporary files in memory, because databases wait for the disk on every commit.

Tests check that a commit survives a killed process. None simulates a power failure, so memory is enough.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

NEEDED_BYTES = 4 << 30
"""The free space required; four workers with a PostgreSQL server each use a third of it."""
_VARIABLES = ("PYTEST_DEBUG_TEMPROOT", "TMPDIR")


def keep_in_memory(folder: Path = Path("/dev/shm")) -> bool:
    """Use a folder in memory for temporary files, unless the environment names another one.

    It must have enough space and allow programs to run, which is often not the case in a container.
    """
    if any(os.environ.get(name) for name in _VARIABLES) or not os.access(folder, os.W_OK | os.X_OK):
        return False
    if os.statvfs(folder).f_flag & os.ST_NOEXEC or shutil.disk_usage(folder).free < NEEDED_BYTES:
        return False
    os.environ.update(dict.fromkeys(_VARIABLES, str(folder)))
    tempfile.tempdir = None  # read anew
    return True
