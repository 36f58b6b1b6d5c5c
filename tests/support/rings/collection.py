"""Collects the tests: the files of one ring, slow files first, with the same names in every process.

Each worker of pytest-xdist collects the tests on its own, and a run stops before its first test if their names differ.
"""

from __future__ import annotations

import gc
import itertools
import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

# Slow files first, so that no process of the tests is left alone with one of them in the end.
SLOWEST_FIRST = (
    "chaos", "compat", "frameworks", "e2e", "browser", "fuzz", "clients", "tools", "alerts", "integration", "unit",
)  # fmt: skip
FOLDERS = {
    "aimock": ("integration",), "alerts": ("alerts",), "browser": ("browser",), "chaos": ("chaos",),
    "clients": ("clients",), "compat": ("compat",), "frameworks": ("frameworks",),
    "nightly": ("e2e", "integration", "unit"), "tools": ("tools",),
    "postgres": ("browser", "chaos", "compat", "e2e", "integration"),
    "services": ("browser", "chaos", "e2e", "fuzz", "integration"),
}  # fmt: skip
"""The folders that the target of each marker collects."""
CORE = (
    "unit", "integration/agents", "integration/prompts", "integration/rpc", "e2e/test_readme.py", "e2e/test_cli_run.py",
    "e2e/test_cli_gates.py", "e2e/test_cli_report.py", "e2e/test_compare_guide.py",
    "e2e/test_python_api.py",
)  # fmt: skip
"""The folders and files that `make test` runs within minutes; `make test-services` runs the others."""
_GARBAGE = (20_000, 10, 50)
"""The thresholds of the garbage collector; its default ones cost a tenth of the time."""
LONGEST_ID = 80
"""The longest text that names a parameter, in characters; a longer one is named by its position."""


_TESTS = Path(__file__).parents[2]
_CORE = {_TESTS / name for name in CORE}
_AROUND_CORE = {folder for path in _CORE for folder in path.parents}
_ONE_WORKER = ("tests/e2e/", "tests/integration/prompts/")


class _ByFolder(LoadFileScheduling):  # type: ignore[misc]  # xdist ships no types
    """Gives each worker one file at a time, and the tests that share a stack or a provider's package to a single one.

    The packages of two providers take two seconds to import.
    """

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return next((folder for folder in _ONE_WORKER if file.startswith(folder)), file)


class Ring:
    """The files that a target collects; importing the other files would take longer than importing these.

    Args:
        config: The configuration of a run. A run that names files or selects other markers collects all its files.
    """

    def __init__(self, config: pytest.Config) -> None:
        expression = config.option.markexpr
        is_target = config.args_source is pytest.Config.ArgsSource.TESTPATHS
        self._is_core = is_target and expression.endswith(" and not services")
        self._is_services = is_target and expression == "services"

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Ignore files and folders of the other ring."""
        is_core = not _CORE.isdisjoint((collection_path, *collection_path.parents))
        if self._is_core:
            return (not is_core and collection_path not in _AROUND_CORE) or None
        return (self._is_services and is_core) or None

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> LoadFileScheduling | None:
        """Give the tests of some folders to one worker each."""
        return _ByFolder(config, log) if self._is_core and config.option.dist == "loadfile" else None

    def ignored_files(self) -> dict[str, int]:
        """Return the number of ignored files by the marker of the target that runs them, or `core`."""
        files = [path for path in _TESTS.rglob("test_*.py") if self.pytest_ignore_collect(path)]
        if self._is_services:
            return {"core": len(files)}
        folders = (path.relative_to(_TESTS).parts[0] for path in files)
        return Counter(folder if folder in FOLDERS else "services" for folder in folders)


def mark_services(items: Iterable[pytest.Item]) -> None:
    """Mark the tests that run neither in `make test` nor in a target of their own."""
    for path, group in itertools.groupby(items, key=lambda item: item.path):
        if _CORE.isdisjoint((path, *path.parents)):
            for item in group:
                if not FOLDERS.keys() & {marker.name for marker in item.iter_markers()}:
                    item.add_marker("services")


def check_folders(items: Iterable[pytest.Item]) -> None:
    """Refuse a test that no target runs.

    Raises:
        pytest.UsageError: A test has a marker whose target does not collect its folder.
    """
    for item in items:
        for marker in FOLDERS.keys() & {marker.name for marker in item.iter_markers()}:
            if item.path.relative_to(_TESTS).parts[0] not in FOLDERS[marker]:
                folders = " or ".join(f"tests/{folder}" for folder in FOLDERS[marker])
                raise pytest.UsageError(f"{item.nodeid} has the marker {marker}: no target runs it outside {folders}")


class Collection:
    """Collects the tests.

    Args:
        worker: The number of this worker, from 0.
    """

    def __init__(self, worker: int) -> None:
        self._worker = worker

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Collect without garbage collection, and with a different clock in each worker.

        A name that contains the time usually agrees between workers and differs only now and then. With clocks that
        are seconds apart, such a name stops the first run.
        """
        now, now_ns = time.time, time.time_ns
        gc.disable()
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(time, "time", lambda: now() + self._worker)
                patch.setattr(time, "time_ns", lambda: now_ns() + self._worker * 10**9)
                return (yield)
        finally:
            gc.freeze()  # what is collected lives as long as the process
            gc.set_threshold(*_GARBAGE)
            gc.enable()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Put slow files first, and last in mutation testing, which stops at the first failure."""
        paths = {item.path for item in items}
        places = {path: SLOWEST_FIRST.index(path.relative_to(_TESTS).parts[0]) for path in paths}
        items.sort(key=lambda item: places[item.path], reverse="MUTANT_UNDER_TEST" in os.environ)

    def pytest_make_parametrize_id(self, val: object, argname: str) -> str | None:
        """Name bytes and long texts by their position; pytest would use their content."""
        if isinstance(val, bytes | bytearray) or (isinstance(val, str) and len(val) > LONGEST_ID):
            return argname
        return None
