"""Processes that run tests collect the same ones under the same names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.tools
ROOT = Path(__file__).resolve().parents[2]
CONFTEST = """
import os
from support.rings.collection import Collection

def pytest_configure(config):
    config.pluginmanager.register(Collection(int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])))
"""
TESTS = """
import gc, gzip, time, pytest

@pytest.mark.parametrize("body", [{}] * 2)
def test_one(body): assert gc.isenabled()
"""
VARYING = ("gzip.compress(b'x')", "bytearray(str(time.time()), 'ascii')", "str(int(time.time())) * 9", "'x' * 81")


def run(folder: Path, *parameters: str) -> str:
    """Return what pytest says of tests that have such a parameter twice, in two workers."""
    (folder / "unit").mkdir()
    for number, parameter in enumerate(parameters):
        (folder / "unit" / f"test_{number}.py").write_text(TESTS.format(parameter))
    (folder / "conftest.py").write_text(CONFTEST)
    copied = folder / "support" / "rings" / "collection.py"  # it orders the folder two above its own
    copied.parent.mkdir(parents=True)
    copied.write_bytes((ROOT / "tests" / "support" / "rings" / "collection.py").read_bytes())
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "xdist", "-n", "2", "-v"]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment).stdout


def test_bytes_and_long_texts_are_named_by_their_place(tmp_path: Path) -> None:
    """Not by what they hold, which may differ between processes: workers agree on the names; others keep theirs."""
    said = run(tmp_path, *VARYING, "'short'")
    assert "10 passed" in said, said
    assert {line.split("::")[-1].strip() for line in said.splitlines() if "PASSED" in line} == {
        "test_one[body0]", "test_one[body1]", "test_one[short0]", "test_one[short1]",
    }  # fmt: skip


def test_a_name_that_holds_the_time_stops_the_first_run(tmp_path: Path) -> None:
    """Also where both workers collect within one second: their clocks differ by one."""
    assert "Different tests were collected" in run(tmp_path, "time.time() // 1")
