"""Temporary files of the tests in memory: databases sync what they store, and a disk makes the tests wait for it.

Whether a commit outlives its process is what tests ask, which kill processes; no test cuts the power.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

NEEDED_BYTES = 4 << 30
"""What must be free: four workers, each with a PostgreSQL server, use a third of it."""
_VARIABLES = ("PYTEST_DEBUG_TEMPROOT", "TMPDIR")


def keep_in_memory(folder: Path = Path("/dev/shm")) -> bool:
    """Make a folder in memory the one for temporary files, unless the environment names another one.

    It must have room, and programs may be run in it: in a container, often, neither is so.
    """
    if any(os.environ.get(name) for name in _VARIABLES) or not os.access(folder, os.W_OK | os.X_OK):
        return False
    if os.statvfs(folder).f_flag & os.ST_NOEXEC or shutil.disk_usage(folder).free < NEEDED_BYTES:
        return False
    os.environ.update(dict.fromkeys(_VARIABLES, str(folder)))
    tempfile.tempdir = None  # read anew
    return True
