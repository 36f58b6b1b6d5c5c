"""A pytest plugin that runs tests in the order in which they are named, each with a time limit of its own.

Those most likely to notice a change come first. The limits, seconds by test, are in the file of --limits; that of
--current names the test that runs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that name the files."""
    parser.addoption("--limits", help="JSON file of seconds by test")
    parser.addoption("--current", help="file that names the test that runs")


def pytest_configure(config: pytest.Config) -> None:
    """Name tests as they begin."""
    config.pluginmanager.register(_Current(Path(config.getoption("--current"))))


class _Current:
    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._path.write_text(nodeid, encoding="utf-8")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Undo what tests/conftest.py does for a whole run: slow files first."""
    named = {name: place for place, name in enumerate(config.args)}
    yield
    items.sort(key=lambda item: named.get(item.nodeid, len(named)))
    limits = json.loads(Path(config.getoption("--limits")).read_text(encoding="utf-8"))
    for item in items:
        if item.nodeid in limits:
            item.add_marker(pytest.mark.timeout(limits[item.nodeid]), append=False)
