"""Tests that a run of pytest leaves out, and what runs them: said at the end, where it is seen."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RUN_BY = {
    "aimock": "`make test-aimock`, with npm on PATH",
    "alerts": "`make test-alerts`, with promtool on PATH",
    "browser": "`make test-browser`, with Chromium and its chromedriver on PATH",
    "chaos": "`make chaos`",
    "compat": "`make compat`",
    "frameworks": "`make test-frameworks`",
    "nightly": "`make test-nightly`",
    "postgres": "`make test-postgres`",
    "services": "`make test-services`",
    "tools": "`make test-tools`",
}
"""What runs the tests with a marker that others leave out; a test with several markers is run by the first."""
_CORE_RUN_BY = "`make test`"
_RUN_OVER_POSTGRESQL = "; those over PostgreSQL by `make test-postgres`"
_KEY = "left_out"


class LeftOut:
    """Counts the tests that are left out, in this process or in the workers that it started.

    Args:
        config: Of this process.
        files: How many files are not collected, by their marker.
    """

    def __init__(self, config: pytest.Config, files: Mapping[str, int]) -> None:
        self._config = config
        self._files = files
        self._counts: Counter[str] = Counter()

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Count what is left out: each test once, where it has several of the markers."""
        for item in items:
            found = [marker for marker in RUN_BY if item.get_closest_marker(marker)]
            self._counts.update(found[:1])

    def pytest_sessionfinish(self) -> None:
        """Send a worker's counts to the process that started it."""
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[_KEY] = dict(self._counts)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take a worker's counts: each of them collects the same tests."""
        self._counts |= Counter(getattr(node, "workeroutput", {}).get(_KEY, {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name each kind with its count: of tests, or of files where none of these was collected."""
        for marker in sorted({*self._counts, *self._files}):
            files = self._files.get(marker)
            count = f"{files} files" if files else self._counts[marker]
            beside = _RUN_OVER_POSTGRESQL if files and marker == "services" else ""
            line = f"left out: {marker} tests ({count}), run by {RUN_BY.get(marker, _CORE_RUN_BY)}{beside}"
            terminalreporter.write_line(line, yellow=True, bold=True)
