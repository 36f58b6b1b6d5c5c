"""What a service's process does before it serves."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from assay_orchestrator.__main__ import _in_one_line

EARLY = """
import os, signal, time
from {package} import __main__ as process

class Settings:
    @staticmethod
    def read(arguments, environ):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)

process.Settings = Settings
process.main()
"""


@pytest.mark.parametrize("package", ["assay_embedder", "assay_judge", "assay_orchestrator"])
def test_sigterm_before_a_service_serves_ends_it_with_0(package: str) -> None:
    """A supervisor would count a death by the signal as a crash."""
    done = subprocess.run([sys.executable, "-c", EARLY.format(package=package)], check=False, timeout=100)
    assert done.returncode == 0


def test_a_lost_listener_is_one_line_of_the_log() -> None:
    """Each restart of PostgreSQL ends it; a traceback of the queue's own code tells an operator nothing."""
    problem = OSError("server closed\n  the connection")
    record = logging.LogRecord("procrastinate.utils", logging.ERROR, "", 1, "listener error", (), None)
    record.exc_info = (OSError, problem, None)
    assert _in_one_line(record)
    assert record.getMessage() == "listener error: server closed the connection"
    assert not record.exc_info
