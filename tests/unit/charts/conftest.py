"""Charts are drawn with the fonts that come with matplotlib, whatever fonts this machine has."""

from __future__ import annotations

import matplotlib
import pytest
from matplotlib.font_manager import fontManager

from assay.reports.charts import fonts


@pytest.fixture(autouse=True)
def own_fonts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the fonts that are installed on this machine."""
    shipped = [entry for entry in fontManager.ttflist if entry.fname.startswith(matplotlib.get_data_path())]
    monkeypatch.setattr(fontManager, "ttflist", shipped)
    monkeypatch.setattr(fonts, "findSystemFonts", list)
