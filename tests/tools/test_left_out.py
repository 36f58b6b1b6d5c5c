"""What a run of the tests leaves out is said, with what runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tools
ROOT = Path(__file__).resolve().parents[2]
CONFTEST = """
from tests.support.rings.left_out import LeftOut

def pytest_configure(config):
    for marker in ("browser", "chaos"):
        config.addinivalue_line("markers", marker)
    config.pluginmanager.register(LeftOut(config, {}))
"""
TESTS = """
import pytest

@pytest.mark.chaos
@pytest.mark.parametrize("number", range(3))
def test_chaos(number): pass

@pytest.mark.browser
def test_browser(): assert False, "it ran"

def test_other(): pass
"""
CHAOS = "left out: chaos tests (3), run by `make chaos`"
BROWSER = "left out: browser tests (1), run by `make test-browser`"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder with tests of all kinds."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_all.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:randomly", "-q", *arguments], cwd=folder, capture_output=True,
        text=True, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_is_left_out_is_counted_once(project: Path, workers: str) -> None:
    """Each kind has a line with what runs it, whether one process collects the tests or several do."""
    done = run(project, "-n", workers, "-m", "not chaos and not browser")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert [line for line in done.stdout.splitlines() if line.startswith("left out")] == [
        f"{BROWSER}, with Chromium and its chromedriver on PATH",
        CHAOS,
    ]
