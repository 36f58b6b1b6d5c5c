"""Reports at the end of a run which tests were left out, and which targets run them."""

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
    "clients": "`make test-clients`, with node and npm on PATH",
    "compat": "`make compat`",
    "frameworks": "`make test-frameworks`",
    "nightly": "`make test-nightly`",
    "postgres": "`make test-postgres`",
    "services": "`make test-services`",
    "tools": "`make test-tools`",
}
"""The target of each marker; a test with several markers belongs to the first."""
_CORE_RUN_BY = "`make test`"
_RUN_OVER_POSTGRESQL = "; those over PostgreSQL by `make test-postgres`"
_KEY = "left_out"


class LeftOut:
    """Counts the tests that this process or its workers leave out.

    Args:
        config: The configuration of this process.
        files: The number of files that are not collected, by marker.
    """

    def __init__(self, config: pytest.Config, files: Mapping[str, int]) -> None:
        self._config = config
        self._files = files
        self._counts: Counter[str] = Counter()

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Count each test that is left out once, by its first marker."""
        for item in items:
            markers = [marker for marker in RUN_BY if item.get_closest_marker(marker)]
            self._counts.update(markers[:1])

    def pytest_sessionfinish(self) -> None:
        """Send the counts of a worker to the controller."""
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[_KEY] = dict(self._counts)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take the counts of a worker; all workers collect the same tests."""
        self._counts |= Counter(getattr(node, "workeroutput", {}).get(_KEY, {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print a line for each marker with its number of tests, or of files that were not collected."""
        for marker in sorted({*self._counts, *self._files}):
            files = self._files.get(marker)
            count = f"{files} files" if files else self._counts[marker]
            beside = _RUN_OVER_POSTGRESQL if files and marker == "services" else ""
            line = f"left out: {marker} tests ({count}), run by {RUN_BY.get(marker, _CORE_RUN_BY)}{beside}"
            terminalreporter.write_line(line, yellow=True, bold=True)
