"""How the tests are collected: quickly, in which order, and with the same names in every process.

Each worker of pytest-xdist collects all tests, and a run ends before its first test where their names differ.
"""

from __future__ import annotations

import gc
import itertools
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

# Slow files first, so that no process of the tests is left alone with one of them in the end.
SLOWEST_FIRST = ("chaos", "compat", "frameworks", "e2e", "browser", "fuzz", "tools", "alerts", "integration", "unit")
FOLDERS = {
    "aimock": ("integration",), "alerts": ("alerts",), "browser": ("browser",), "chaos": ("chaos",),
    "compat": ("compat",), "frameworks": ("frameworks",), "nightly": ("e2e", "integration", "unit"),
    "tools": ("tools",), "postgres": ("browser", "chaos", "compat", "e2e", "integration"),
    "services": ("browser", "chaos", "e2e", "fuzz", "integration"),
}  # fmt: skip
"""Where the target of each marker looks for its tests."""
CORE = (
    "unit", "integration/agents", "integration/prompts", "integration/rpc", "e2e/test_readme.py", "e2e/test_cli_run.py",
    "e2e/test_cli_gates.py", "e2e/test_cli_report.py", "e2e/test_compare_guide.py",
    "e2e/test_python_api.py",
)  # fmt: skip
"""What `make test` runs: folders and files whose tests answer within minutes; `make test-services` runs the others."""
_GARBAGE = (20_000, 10, 50)
"""After how many new objects young, middle and old garbage is looked for: by default, that is a tenth of the time."""
LONGEST_ID = 80
"""Characters of a parameter's name that is made from its text; a longer text is named by its place."""


_TESTS = Path(__file__).parents[2]
_CORE = {_TESTS / name for name in CORE}
_AROUND_CORE = {folder for path in _CORE for folder in path.parents}
_E2E = "tests/e2e/"


class _OneStack(LoadFileScheduling):  # type: ignore[misc]  # xdist ships no types
    """Gives each worker a file at a time, and all end-to-end tests to the same one."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return _E2E if file.startswith(_E2E) else file


class Ring:
    """The files that a target collects: importing the others takes longer than importing these.

    Args:
        config: Of a run. One that names files, or selects by other markers than the two targets, collects all it names.
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
        """Give the end-to-end tests of the core to one worker, which starts the stack that they share."""
        return _OneStack(config, log) if self._is_core and config.option.dist == "loadfile" else None

    def ignored_files(self) -> dict[str, int]:
        """Return how many files of tests are ignored, by the marker of the target that runs them, or `core`."""
        files = [path for path in _TESTS.rglob("test_*.py") if self.pytest_ignore_collect(path)]
        if self._is_services:
            return {"core": len(files)}
        folders = (path.relative_to(_TESTS).parts[0] for path in files)
        return Counter(folder if folder in FOLDERS else "services" for folder in folders)


def mark_services(items: Iterable[pytest.Item]) -> None:
    """Mark the tests that neither `make test` runs nor a target of their own: those with many processes."""
    for path, group in itertools.groupby(items, key=lambda item: item.path):
        if _CORE.isdisjoint((path, *path.parents)):
            for item in group:
                if not FOLDERS.keys() & {each.name for each in item.iter_markers()}:
                    item.add_marker("services")


def check_folders(items: Iterable[pytest.Item]) -> None:
    """Refuse a test that `make test` leaves out and that no other target finds.

    Raises:
        pytest.UsageError: There is one; names it, its marker and the folders.
    """
    for item in items:
        for marker in FOLDERS.keys() & {each.name for each in item.iter_markers()}:
            if item.path.relative_to(_TESTS).parts[0] not in FOLDERS[marker]:
                found_in = " or ".join(f"tests/{folder}" for folder in FOLDERS[marker])
                raise pytest.UsageError(f"{item.nodeid} has the marker {marker}: no target runs it outside {found_in}")


class Collection:
    """Collects the tests.

    Args:
        worker: The number of this process among those that run tests, from 0.
    """

    def __init__(self, worker: int) -> None:
        self._worker = worker

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Generator[None, object, object]:
        """Collect without looking for garbage, of which there is none; by a clock that no other worker has.

        A name that holds the time would be the same in all workers but when a second ends between them. Each clock is
        seconds off, so that such a name stops the first run.
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
        """Put slow files first."""
        paths = {item.path for item in items}
        places = {path: SLOWEST_FIRST.index(path.relative_to(_TESTS).parts[0]) for path in paths}
        items.sort(key=lambda item: places[item.path])

    def pytest_make_parametrize_id(self, val: object, argname: str) -> str | None:
        """Name bytes and long texts by their place: pytest would by their content, and numbers names that are equal."""
        if isinstance(val, bytes | bytearray) or (isinstance(val, str) and len(val) > LONGEST_ID):
            return argname
        return None
