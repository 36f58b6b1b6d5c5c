"""A pytest plugin that writes which lines of which files each passed test runs, and how long it takes.

One file per process of pytest-xdist, in the folder of the option --covering, and one per process that a test starts.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import coverage
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

OUTSIDE_TESTS = ""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that name the folder of the result and the folder of the sources."""
    parser.addoption("--covering", help="folder for the map from lines to tests")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to record, in every process that runs tests."""
    folder = config.getoption("--covering")
    distributes = config.getoption("numprocesses", None) is not None and not hasattr(config, "workerinput")
    if folder and not distributes:
        worker = getattr(config, "workerinput", {"workerid": "alone"})["workerid"]
        config.pluginmanager.register(Recorder(Path(folder) / f"{worker}.json", config.rootpath))


class Recorder:
    """Record lines per test with coverage's contexts, whose name is the test's id."""

    def __init__(self, path: Path, root: Path) -> None:
        self._path = path
        self._root = root
        self._passed: dict[str, float] = {}
        self._failed: set[str] = set()
        self._files: set[str] = set()
        self._deselected: set[str] = set()
        # Processes that tests start read these: tools/mutants/started/sitecustomize.py.
        os.environ |= {"COVERING_FOLDER": str(path.parent), "COVERING_ROOT": str(root)}
        path.parent.mkdir(parents=True, exist_ok=True)
        sources = [str(root / each) for each in ("library", "cli", "services")]
        self._coverage = coverage.Coverage(data_file=None, source=sources, config_file=False, messages=False)
        self._coverage.set_option("run:disable_warnings", ["no-data-collected"])
        self._coverage.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Count what runs from a test's first fixture to its last as the test's."""
        self._coverage.switch_context(item.nodeid)
        os.environ["COVERING_TEST"] = item.nodeid
        try:
            return (yield)
        finally:
            del os.environ["COVERING_TEST"]
            self._coverage.switch_context(OUTSIDE_TESTS)

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Note files of which a marker leaves nothing."""
        self._deselected |= {_file_of(item.nodeid) for item in items}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count files without a test to run as measured."""
        self._files |= self._deselected - {_file_of(item.nodeid) for item in session.items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase's duration to its test's."""
        self._passed[report.nodeid] = self._passed.get(report.nodeid, 0.0) + report.duration
        self._files.add(_file_of(report.nodeid))
        if not report.passed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Write the map of this process."""
        self._coverage.stop()
        data = self._coverage.get_data()
        passed = {test: round(took, 3) for test, took in self._passed.items() if test not in self._failed}
        position = {test: place for place, test in enumerate(passed)}
        lines = {}
        for name in data.measured_files():
            found = {
                line: sorted(position[test] for test in set(tests) & position.keys())
                for line, tests in sorted(data.contexts_by_lineno(name).items())
            }
            if any(found.values()):
                lines[str(Path(name).relative_to(self._root))] = found
        found_here = {"files": sorted(self._files), "durations": passed, "tests": list(passed), "lines": lines}
        self._path.write_text(json.dumps(found_here), encoding="utf-8")


def _file_of(test: str) -> str:
    return test.partition("::")[0]
