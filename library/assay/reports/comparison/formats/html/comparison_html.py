"""comparison.html: the verdict, the figures, and the cases with their answers side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from assay.reports.comparison.formats.html.case_data import blocks, page_cases
from assay.reports.comparison.formats.html.page_view import PageView
from assay.reports.comparison.words.figures import figures_of
from assay.reports.comparison.words.tables import table_metric
from assay.reports.formats.html import html_report
from assay.reports.formats.html.row_data import script_json
from assay.text.unsafe_text import UNSAFE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.comparison.model import PairComparison
    from assay.reports.comparison.document.comparison_report import ComparisonReport
    from assay.reports.comparison.formats.html.case_data import PageCases
    from assay.reports.folder import ReportFolder

_HERE = Path(__file__).parent
_STYLES = (html_report.HERE / "style.css", _HERE / "comparison.css")
_SCRIPTS = (html_report.HERE / "rows.js", html_report.HERE / "case.js", _HERE / "comparison.js")
_ENTRIES_PER_BLOCK = 5_000
_TEXTS_PER_BLOCK = 50


def write(report: ComparisonReport, folder: ReportFolder, plot_format: str) -> None:
    """Write comparison.html."""
    del plot_format
    cases = page_cases(report)
    style, script = html_report.joined(_STYLES), html_report.joined(_SCRIPTS)
    page = html_report.environment(_HERE).get_template("comparison.html.j2")
    pieces = page.generate(
        view=PageView(report, cases),
        policy=html_report.content_policy(style, script),
        style=Markup(style),  # noqa: S704 - files of Assay
        script=Markup(script),  # noqa: S704 - files of Assay
        setup=_data(json.dumps(_setup(report), ensure_ascii=False)),
        entries=map(_data, blocks(cases.entries, _ENTRIES_PER_BLOCK)),
        texts=map(_data, _texts(cases)),
    )
    with folder.text("comparison.html") as file:
        for piece in pieces:
            file.write(piece)


def _data(text: str) -> Markup:
    return Markup(script_json(text))  # noqa: S704 - nothing in it ends the element


def _texts(cases: PageCases) -> Iterator[str]:
    return blocks([[case_id, details] for case_id, details in cases.texts.items()], _TEXTS_PER_BLOCK)


def _setup(report: ComparisonReport) -> dict[str, Any]:
    """Return the comparison's data for the script."""
    comparison = report.comparison
    primary = comparison.pairs[0].metric(comparison.primary)
    names = [metric.metric for metric in report.shown(comparison.pairs[0])]
    return {
        "labels": [variant.label for variant in comparison.variants],
        "titles": [report.title(variant) for variant in comparison.variants],
        "primary": {
            "name": primary.metric,
            "decimals": figures_of(report, primary.metric).decimals,
            "higher_is_better": primary.higher_is_better,
        },
        "tables": [_table_of(report, pair) for pair in report.baseline_pairs],
        "metrics": [{"name": name, "decimals": figures_of(report, name).decimals} for name in names],
        "whole_texts": "evaluation_1.json and so on",
        "unsafe": UNSAFE.pattern,
    }


def _table_of(report: ComparisonReport, pair: PairComparison) -> str | None:
    """Return the field of an entry that a pair's 2 x 2 table counts: "primary" or "passed"; None without a table."""
    metric = table_metric(report, pair)
    return None if metric is None else "primary" if metric.metric == report.comparison.primary else "passed"
