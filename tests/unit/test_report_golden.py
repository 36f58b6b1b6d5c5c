"""Reports of the same document stay the same to the byte; tests/support/reports/golden_reports.py rewrites them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.reports.golden_reports import expected, reports

if TYPE_CHECKING:
    from pathlib import Path


def test_reports_are_those_that_were_reviewed(tmp_path: Path) -> None:
    """Columns, words and order of text reports and of the console change where someone reviews them."""
    found = dict(reports(tmp_path))
    wanted = expected()
    assert sorted(found) == sorted(wanted)
    for name, content in found.items():
        assert content.decode() == wanted[name].decode(), name
