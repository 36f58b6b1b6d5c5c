"""Processes that run tests collect the same ones under the same names, and soon."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.collection import FOLDERS, check_folders
from tests.left_out import RUN_BY

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = """
import os
from collection import Collection

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
    (folder / "collection.py").write_bytes((ROOT / "tests" / "collection.py").read_bytes())  # it orders its own folder
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


def test_a_test_that_no_target_runs_is_refused() -> None:
    """`make test` leaves it out by its marker, and the target of the marker looks for it in other folders."""

    def item(marker: str, folder: str) -> Any:
        marks = [pytest.mark.timeout(1).mark, getattr(pytest.mark, marker).mark]
        path = ROOT / "tests" / folder / "test_x.py"
        return SimpleNamespace(path=path, nodeid="test_x.py::test_y", iter_markers=lambda: marks)

    check_folders([item(marker, folder) for marker, folders in FOLDERS.items() for folder in folders])
    for marker in FOLDERS:
        with pytest.raises(pytest.UsageError, match=f"^test_x.py::test_y has the marker {marker}: .* outside tests/"):
            check_folders([item(marker, "unit")])


@pytest.mark.parametrize("target", ["test-alerts", "test-postgres", "test-tools"])
def test_the_target_of_a_marker_looks_into_its_folders(target: str) -> None:
    """Those of the Makefile; tests with two markers are run by the target of the other."""
    (line,) = re.findall(rf"^{target}:.*\n\t(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    marker = target.removeprefix("test-")
    assert {f"tests/{folder}" for folder in FOLDERS[marker]} - {"tests/browser", "tests/compat"} == {
        word for word in line.split() if word.startswith("tests/")
    }


def test_every_marker_has_a_target_that_the_gate_or_the_nightly_run_names() -> None:
    """What `make test` leaves out is run by `.ci/run` or by `make nightly`, and by one of them only."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    gate = set(re.findall(r"^make (\S+)$", (ROOT / ".ci/run").read_text(encoding="utf-8"), re.MULTILINE))
    (line,) = re.findall(r"^NIGHTLY := (.*)$", makefile, re.MULTILINE)
    nightly = set(line.split())
    assert set(re.findall(r"not (\w+)", options["addopts"])) == set(RUN_BY) == set(FOLDERS)
    assert not gate & nightly
    for program in RUN_BY.values():
        (target,) = re.findall(r"`make ([a-z-]+)`", program)
        assert target in gate | nightly
    for target in gate | nightly:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
