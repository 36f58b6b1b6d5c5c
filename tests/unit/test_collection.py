"""Each target collects its own ring of the tests, and none is left without a target."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.rings.collection import CORE, FOLDERS, Ring, check_folders
from tests.support.rings.left_out import RUN_BY

ROOT = Path(__file__).resolve().parents[2]


def ring(expression: str, *, names_files: bool = False) -> Ring:
    """Return the ring of a run that selects by markers."""
    source = pytest.Config.ArgsSource.ARGS if names_files else pytest.Config.ArgsSource.TESTPATHS
    config: Any = SimpleNamespace(option=SimpleNamespace(markexpr=expression), args_source=source)
    return Ring(config)


def test_each_file_is_in_one_ring() -> None:
    """What `make test` does not import, `make test-services` does; a run that names files imports what it names."""
    core, services = ring("not browser and not services"), ring("services")
    for path in (ROOT / "tests").rglob("test_*.py"):
        ignored = [bool(one.pytest_ignore_collect(path)) for one in (core, services)]
        assert sorted(ignored) == [False, True], path
        assert not ring("not services", names_files=True).pytest_ignore_collect(path)
        assert not ring("postgres").pytest_ignore_collect(path)
    for name in CORE:
        path = ROOT / "tests" / name
        assert path.exists(), name
        assert not any(core.pytest_ignore_collect(folder) for folder in (path, *path.parents))
    assert core.ignored_files().keys() == {"alerts", "browser", "chaos", "compat", "frameworks", "services", "tools"}
    assert services.ignored_files().keys() == {"core"}


def test_a_test_that_no_target_runs_is_refused() -> None:
    """`make test` leaves it out by its marker, and the target of the marker looks for it in other folders."""

    def item(marker: str, folder: str) -> Any:
        marks = [pytest.mark.timeout(1).mark, getattr(pytest.mark, marker).mark]
        path = ROOT / "tests" / folder / "test_x.py"
        return SimpleNamespace(path=path, nodeid="test_x.py::test_y", iter_markers=lambda: marks)

    check_folders([item(marker, folder) for marker, folders in FOLDERS.items() for folder in folders])
    for marker in FOLDERS:
        with pytest.raises(pytest.UsageError, match=f"^test_x.py::test_y has the marker {marker}: .* outside tests/"):
            check_folders([item(marker, "elsewhere")])


@pytest.mark.parametrize("target", ["test-alerts", "test-nightly", "test-postgres", "test-tools"])
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
