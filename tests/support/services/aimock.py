"""An independent server of the providers' protocols: @copilotkit/aimock.

`make test-aimock` installs it with npm and names its folder in ASSAY_AIMOCK.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.support.processes.child_process import child_process

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def serving(script: Path) -> Iterator[str]:
    """Run a script of Node that serves with it, and yield its URL; skip the test where Node or the package is missing.

    Args:
        script: Takes the package's folder, prints its URL, and ends when its input does.
    """
    folder, node = os.environ.get("ASSAY_AIMOCK", ""), shutil.which("node")
    if node is None:
        pytest.skip("node is not installed: it runs @copilotkit/aimock")
    if not (Path(folder) / "dist" / "index.js").is_file():
        pytest.skip("ASSAY_AIMOCK names no folder of @copilotkit/aimock: run `make test-aimock`")
    command = [node, str(script), str(Path(folder).resolve())]
    with child_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        assert process.stdin is not None
        process.stdin.close()
