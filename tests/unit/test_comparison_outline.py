"""The formats of a comparison render one outline: each shows every sentence and every cell of it."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING

import pytest
from tests.support.reports.comparison_reports import compared, three, two
from tests.unit.test_report_html import Page

from assay.comparison.model import NoiseFloor
from assay.reports.comparison.formats.markdown import comparison_markdown, comparison_section
from assay.reports.comparison.formats.notebook_html import comparison_html
from assay.reports.comparison.formats.text import comparison_lines
from assay.reports.comparison.words.headline import Naming
from assay.reports.comparison.words.outline import Part, outline
from assay.reports.comparison.writing import write_comparison

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from assay.reports.comparison.document.comparison_report import ComparisonReport
    from assay.reports.comparison.words.outline import Section

LEAST_SHOWN = 5
"""Cases that came out differently of which every format shows at least as many."""


def plain(text: str) -> str:
    """Return a text without marks, escapes and spacing."""
    return re.sub(r"[\s`\\|\u200b]+|&#8203;", "", unescape(text))


def of_page(report: ComparisonReport, folder: Path) -> str:
    """Return what the page says without JavaScript."""
    (path,) = write_comparison(report, folder / "out", ["html"]).written
    return Page(path.read_text("utf-8")).said()


def of_notebook(report: ComparisonReport) -> str:
    """Return what a notebook shows."""
    return re.sub("<[^>]*>", "", comparison_html(report))


RENDERERS: dict[str, Callable[[ComparisonReport, Path], str]] = {
    "text": lambda report, _: "\n".join(comparison_lines(report)),
    "markdown": lambda report, _: comparison_markdown(report),
    "html": of_page,
    "notebook": lambda report, _: of_notebook(report),
}


@pytest.fixture(scope="module", params=[two, three], ids=["two", "three"])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComparisonReport]:
    """A comparison of two runs, and one of three."""
    floors = {"accuracy": NoiseFloor(0.04, 0.125, 32)}
    with compared(tmp_path_factory.mktemp("runs"), request.param(), noise_floors=floors) as found:
        yield found


def texts(sections: list[Section]) -> Iterator[tuple[Part, str]]:
    """Yield the sentences and cells of sections that no format leaves out."""
    for section in sections:
        yield from ((section.part, sentence) for sentence in section.sentences)
        for table in section.tables:
            rows = table.rows if table.total is None else table.rows[: LEAST_SHOWN + 1]
            yield from ((section.part, cell) for row in rows for cell in row)


@pytest.mark.parametrize("name", RENDERERS)
def test_a_format_shows_the_whole_outline(name: str, report: ComparisonReport, tmp_path: Path) -> None:
    """No sentence and no cell of any section is missing, whatever the format."""
    sections = outline(report, Naming.NAME if name == "notebook" else Naming.BOTH)
    shown = plain(RENDERERS[name](report, tmp_path))
    assert {part for part, _ in texts(sections)} >= set(Part) - {Part.BANNERS, Part.CAUTIONS, Part.DIFFERENCES}
    assert [text for text in texts(sections) if plain(text[1]) not in shown] == []


def test_the_section_in_the_report_of_a_run_has_the_figures(report: ComparisonReport) -> None:
    """Verdict, metrics, method and cases stand there; what was compared, changed and spent is in the other reports."""
    left_out = (Part.RUNS, Part.CHANGES, Part.FACTS)
    shown = plain(comparison_section(report))
    sections = [section for section in outline(report) if section.part not in left_out]
    assert [text for text in texts(sections) if plain(text[1]) not in shown] == []
