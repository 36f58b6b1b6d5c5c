"""Upper part of the comparison page: the outline, with charts and links to cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.comparison.decision import DecisionOutcome
from assay.comparison.model import ComparisonVerdict
from assay.reports.comparison.words.figures import figures_of, metric_text
from assay.reports.comparison.words.outline import OPENING, Part, outline
from assay.reports.formats.html.summary_view import moment
from assay.reports.formats.html.svg import difference_bar
from assay.reports.words.metric_text import count_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from markupsafe import Markup

    from assay.comparison.model import MetricComparison, PairComparison
    from assay.reports.comparison.document.comparison_report import ComparisonReport
    from assay.reports.comparison.formats.html.case_data import PageCases
    from assay.reports.comparison.words.outline import Section, Table
    from assay.reports.comparison.words.tables import Row

_MOST_FLIPPED = 20
"""Cases that readers without JavaScript see."""


class PageView:
    """The parts of the page above its list of cases.

    Args:
        report: The comparison.
        cases: Cases of the page.
    """

    def __init__(self, report: ComparisonReport, cases: PageCases) -> None:
        self.report = report
        self.comparison = report.comparison
        self.pairs = list(report.baseline_pairs)
        self._cases = cases
        sections = outline(report)
        self.opening: Mapping[Part, Sequence[str]] = {
            section.part: section.sentences for section in sections if section.part in OPENING
        }
        self.sections = [section for section in sections if section.part not in OPENING]

    def kind(self) -> str:
        """Return the class of the verdict."""
        if self.report.decision.outcome is DecisionOutcome.REGRESSION:
            return "fail"
        better = any(pair.metric(self.comparison.primary).verdict is ComparisonVerdict.B_BETTER for pair in self.pairs)
        return "pass" if better else "incomplete"

    def compared_at(self) -> str:
        """Return the time of the comparison."""
        return moment(self.report.timestamp)

    def strips(self) -> list[dict[str, object]]:
        """Return the primary difference of each run from the first, with a chart."""
        ones = [pair.metric(self.comparison.primary) for pair in self.pairs]
        shown = [metric.worst_case or metric for metric in ones]
        ends = [abs(end) for metric in shown for end in (*(metric.interval or ()), metric.difference or 0.0)]
        reach = max([*ends, (self.comparison.settings.margin or 0.0) * 1.5]) * 1.1 or 1.0
        return [
            {
                "name": f"{pair.b.label} - {pair.a.label}",
                "change": self._change(metric),
                "chart": self._chart(f"difference-{pair.b.label}", metric, pair, reach),
            }
            for pair, metric in zip(self.pairs, ones, strict=True)
        ]

    def _chart(self, name: str, metric: MetricComparison, pair: PairComparison, reach: float) -> Markup | str:
        if metric.difference is None:
            return ""
        title = f"{pair.b.label} - {pair.a.label}, {metric.metric}: {self._change(metric)}"
        is_good = {ComparisonVerdict.B_BETTER: True, ComparisonVerdict.A_BETTER: False}.get(metric.verdict)
        margin, shown = self.comparison.settings.margin, metric.worst_case or metric
        return difference_bar(
            name, title, shown.difference or 0.0, shown.interval, reach, margin=margin, is_good=is_good
        )

    def _change(self, metric: MetricComparison) -> str:
        """Return the difference, after that of the worst case if there is one."""
        figures = figures_of(self.report, metric.metric)
        if metric.worst_case is None:
            return figures.change(metric)
        return f"{figures.change(metric.worst_case)} worst case, {figures.change(metric)} complete cases"

    def rows(self, table: Table) -> Sequence[Row]:
        """Return the rows shown on the page, heading first; metrics by run get one line per metric."""
        if table.head_names:  # metrics by run: columns follow the label and the number of cases
            (_, *labels), _, *metrics = zip(*table.rows, strict=True)
            return [("metric", *labels), *metrics]
        return table.rows if table.total is None else table.rows[: _MOST_FLIPPED + 1]

    def links(self, section: Section) -> dict[str, object]:
        """Return the counts of a pair's cases, which link to these cases."""
        assert section.pair is not None, "only sections of pairs have links"
        pair, primary = section.pair, section.pair.metric(self.comparison.primary)
        return {
            "place": self.pairs.index(pair),
            "metric": metric_text(self.report, primary.metric),
            "counts": [
                ("b_better", f"{pair.b.label} better", primary.win_count),
                ("a_better", f"{pair.a.label} better", primary.loss_count),
                ("same", "same", primary.tie_count),
            ],
            "flipped_count": pair.flipped_case_count,
        }

    def carried(self) -> str:
        """Return the numbers of cases on the page, and of those with texts."""
        total, entries, texts = self._cases.total, len(self._cases.entries), len(self._cases.texts)
        if not total:
            return "The cases of the runs are not in this page."
        cases = count_text(total, "case")
        listed = f"all {cases}" if entries == total else f"{entries:,} of {cases}"
        answers = f"has the answers of {texts:,}, the worst first"
        return f"The page lists {listed} and {answers}; comparison_cases.csv has all values."
