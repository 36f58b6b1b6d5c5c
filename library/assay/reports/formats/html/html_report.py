"""report.html: the run as a page that works without a server, from an e-mail, a CI artifact or a disk.

The data of rows is collected while they arrive, or from a finished report; it stays on disk.
"""

from __future__ import annotations

import base64
import contextlib
import functools
import gzip
import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup, escape

from assay.reports.formats.html.page_rows import PageRows
from assay.reports.formats.html.row_data import OUTCOMES, script_json
from assay.reports.formats.html.row_figures import first_cases
from assay.reports.formats.html.summary_view import OUTCOME_NAMES, SummaryView
from assay.text.unsafe_text import UNSAFE, escaped, markup_without_commands

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from assay.reports.document.report import Report, RowCollector
    from assay.reports.folder import ReportFolder
    from assay.reports.formats.html.row_figures import RowFigures

HERE = Path(__file__).parent
STYLES = ("style.css",)
SCRIPTS = ("filter.js", "rows.js", "case.js", "report.js")
FIRST_CASES = 100
"""Cases that readers without JavaScript see."""
_ENTRIES_PER_BLOCK = 5_000
_DETAILS_PER_BLOCK = 200
_MAX_PLAIN_CHARS = 8_000_000
"""Texts of rows are compressed above this size: a browser reads 13 MB faster than 30."""
_NAME = "html"
_MOST_CHOICES = 500


def prepare() -> None:
    """Compile the page's template, which is half of the work for a small page."""
    _page()


def collector(metrics: Sequence[str], folder: Path) -> RowCollector:
    """Return what collects the rows of the page while they arrive.

    Args:
        metrics: The names of the run's metrics, in report order.
        folder: An existing folder for a temporary file.

    Raises:
        OSError: The file cannot be created.
    """
    return PageRows(metrics, folder)


def write(report: Report, folder: ReportFolder, options: Mapping[str, Any]) -> None:
    """Write report.html."""
    del options
    metrics = list(report.head["results"])
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(folder.text("report.html"))
        rows = report.collected.get(_NAME)
        if not isinstance(rows, PageRows):
            rows = stack.enter_context(contextlib.closing(PageRows(metrics, folder.path)))
            rows.read(report)
        for piece in _pieces(report, rows, metrics):
            file.write(piece)


def _pieces(report: Report, rows: PageRows, metrics: list[str]) -> Iterator[str]:
    figures = rows.figures
    view = SummaryView(report.head, figures)
    columns = [name for name in metrics if report.head["results"][name].get("kind", name) != "latency"]
    style, script = joined(HERE / name for name in STYLES), joined(HERE / name for name in SCRIPTS)
    return _page().generate(
        view=view,
        policy=content_policy(style, script),
        style=Markup(style),  # noqa: S704 - a file of Assay
        script=Markup(script),  # noqa: S704 - a file of Assay
        columns=columns,
        lines=[view.case_line(line) for line in first_cases(report.rows(), metrics, FIRST_CASES)],
        row_count=report.row_count,
        case_count=figures.case_count,
        setup=Markup(script_json(json.dumps(_setup(report, figures, columns), ensure_ascii=False))),  # noqa: S704 - as above
        entries=_entries(rows),
        details=_details(rows.details(report), is_compressed=figures.size > _MAX_PLAIN_CHARS),
    )


@functools.cache
def _page() -> jinja2.Template:
    return environment().get_template("page.html.j2")


def environment(*folders: Path) -> jinja2.Environment:
    """Return the environment of the templates: every text is escaped, and an undefined name is an error.

    Args:
        folders: Folders of templates besides those of this page.
    """
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader([HERE, *folders]),
        autoescape=True,
        finalize=_without_commands,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["shown"] = lambda text: escaped(str(text), keep_lines=True)
    templates.globals["OUTCOME_NAMES"] = OUTCOME_NAMES
    return templates


def _without_commands(value: object) -> object:
    """Return the value of an expression such that no line of the page is a command to a CI server.

    Markup stays unchanged: its texts were treated here before, and style and script must not change.
    """
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return Markup(markup_without_commands(escape(value)))  # noqa: S704 - escaped


def content_policy(style: str, script: str) -> str:
    """Return the Content-Security-Policy that allows a page only this style and this script."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def joined(paths: Iterable[Path]) -> str:
    """Return the text of a page's styles or scripts."""
    return "\n" + "\n".join(path.read_text("utf-8") for path in paths)


def _setup(report: Report, figures: RowFigures, columns: list[str]) -> dict[str, Any]:
    """Return the run's data for the script."""
    head = report.head
    return {
        "run_id": report.run_id,
        "row_count": report.row_count,
        "case_count": figures.case_count,
        "outcomes": OUTCOMES,
        "outcome_names": OUTCOME_NAMES,
        "details_per_block": _DETAILS_PER_BLOCK,
        "metrics": [
            {"name": name, "unit": result.get("unit") or "", "in_list": name in columns}
            for name, result in head["results"].items()
        ],
        "categories": [group["name"] for group in head["summary"]["categories"][:_MOST_CHOICES]],
        "tags": [group["name"] for group in head["summary"]["tags"][:_MOST_CHOICES]],
        "unsafe": UNSAFE.pattern,
    }


def _entries(rows: PageRows) -> Iterator[Markup]:
    """Yield the list entries of the rows, in blocks."""
    for block in _blocks(rows.entries(), _ENTRIES_PER_BLOCK):
        yield Markup(script_json(block))  # noqa: S704 - nothing in it ends the element


def _details(texts: Iterable[str], *, is_compressed: bool) -> Iterator[tuple[str, Markup]]:
    """Yield the texts of the rows, in blocks, each with its encoding."""
    for block in _blocks(texts, _DETAILS_PER_BLOCK):
        if is_compressed:
            packed = gzip.compress(script_json(block).encode(), 6, mtime=0)
            yield "gzip", Markup(base64.b64encode(packed).decode())  # noqa: S704 - letters and digits
        else:
            yield "", Markup(script_json(block))  # noqa: S704 - nothing in it ends the element


def _blocks(texts: Iterable[str], size: int) -> Iterator[str]:
    """Yield the texts as JSON lists of at most `size` texts."""
    block: list[str] = []
    for text in texts:
        block.append(text)
        if len(block) == size:
            yield f"[{','.join(block)}]"
            block = []
    if block:
        yield f"[{','.join(block)}]"
