"""What the page says above its cases: tables of untrusted texts, and charts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.comparison.model import Verdict
from assay.reports.comparison.words.figures import figures_of, metric_text
from assay.reports.comparison.words.headline import pair_sentence, verdict_sentence
from assay.reports.comparison.words.sentences import (
    adjustment_text,
    agent_errors_text,
    banners,
    cautions,
    counts_text,
    decision_sentence,
    detectable_sentence,
    effort_texts,
    floor_sentence,
    joined_text,
    judge_sentence,
    matrix_heading,
    meaning_sentence,
    method_text,
    omnibus_sentence,
    ranking_texts,
)
from assay.reports.comparison.words.tables import (
    changed_rows,
    code_sentence,
    differing_count,
    flipped_cases,
    flipped_row,
    matrix,
    metrics_of_pair,
    metrics_of_runs,
    table_metric,
    two_by_two,
)
from assay.reports.formats.html.summary_view import moment
from assay.reports.formats.html.svg import difference_bar
from assay.reports.words.metric_text import count_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from assay.comparison.model import MetricComparison, PairComparison
    from assay.reports.comparison.document.comparison_report import ComparisonReport
    from assay.reports.comparison.formats.html.case_data import PageCases

    Rows = Sequence[Sequence[str]]

_MOST_FLIPPED = 20
"""Cases that readers without JavaScript see."""


class PageView:
    """The parts of the page above its list of cases.

    Args:
        report: The comparison.
        cases: Those that the page has.
    """

    def __init__(self, report: ComparisonReport, cases: PageCases) -> None:
        self.report = report
        self.comparison = report.comparison
        self.pairs = list(report.baseline_pairs)
        self._cases = cases

    def sentence(self) -> str:
        """Return the verdict."""
        return verdict_sentence(self.report)

    def kind(self) -> str:
        """Return the class of the verdict."""
        if self.report.decision.is_regression:
            return "fail"
        better = any(pair.metric(self.comparison.primary).verdict is Verdict.B_BETTER for pair in self.pairs)
        return "pass" if better else "incomplete"

    def warnings(self) -> list[str]:
        """Return what stands before all figures."""
        return banners(self.report)

    def cautions(self) -> list[str]:
        """Return what to know before believing them."""
        return cautions(self.report)

    def compared_at(self) -> str:
        """Return when the runs were compared."""
        return moment(self.report.timestamp)

    def strips(self) -> list[dict[str, object]]:
        """Return the primary difference of each run from the first: a sentence, counts and a chart."""
        ones = [pair.metric(self.comparison.primary) for pair in self.pairs]
        shown = [one.worst_case or one for one in ones]
        ends = [abs(end) for one in shown for end in (*(one.interval or ()), one.difference or 0.0)]
        reach = max([*ends, (self.comparison.settings.margin or 0.0) * 1.5]) * 1.1 or 1.0
        return [
            {
                "name": f"{pair.b} - {pair.a}",
                "sentence": pair_sentence(self.report, pair) if len(self.pairs) > 1 else "",
                "change": self._change(one),
                "counts": counts_text(one, pair.a, pair.b),
                "cases": count_text(one.n_pairs, "paired case"),
                "joined": joined_text(pair, one),
                "chart": self._chart(f"difference-{pair.b}", one, pair, reach),
            }
            for pair, one in zip(self.pairs, ones, strict=True)
        ]

    def _chart(self, name: str, one: MetricComparison, pair: PairComparison, reach: float) -> Markup | str:
        if one.difference is None:
            return ""
        said = f"{pair.b} - {pair.a}, {one.metric}: {self._change(one)}"
        is_good = {Verdict.B_BETTER: True, Verdict.A_BETTER: False}.get(one.verdict)
        margin, shown = self.comparison.settings.margin, one.worst_case or one
        return difference_bar(
            name, said, shown.difference or 0.0, shown.interval, reach, margin=margin, is_good=is_good
        )

    def _change(self, one: MetricComparison) -> str:
        """Return the difference, that of the worst case first where there is one."""
        figures = figures_of(self.report, one.metric)
        if one.worst_case is None:
            return figures.change(one)
        return f"{figures.change(one.worst_case)} worst case, {figures.change(one)} complete cases"

    def floor(self) -> str:
        """Return how far the first run is from itself."""
        return floor_sentence(self.report, self.pairs[0].metric(self.comparison.primary))

    def runs(self) -> Rows:
        """Return what is compared, heading first."""
        return [
            ("label", "name", "prompt", "run", "cases", "agent errors"),
            *(
                (one.label, one.name, one.prompt_path or "–", one.run_id, f"{one.cases:,}", agent_errors_text(one))
                for one in self.comparison.variants
            ),
        ]

    def metrics(self) -> Rows:
        """Return the metrics, heading first: of two runs with their difference, of more the value of each run."""
        if len(self.pairs) == 1:
            heading, (name, *primary), *rows = metrics_of_pair(self.report, self.pairs[0])
            return [heading, (f"{name} *", *primary), *rows]
        columns = list(zip(*metrics_of_runs(self.report), strict=True))
        (_, *labels), _, (name, *first), *others = columns
        return [("metric", *labels), (f"{name} *", *first), *others]

    def matrix(self) -> Rows:
        """Return the differences between all runs; empty for two."""
        return matrix(self.report) if len(self.pairs) > 1 else ()

    def matrix_heading(self) -> str:
        """Return what they show."""
        said = matrix_heading(self.report, self.comparison.primary).removesuffix(":")
        return f"{said[:1].upper()}{said[1:]}"

    def notes(self) -> list[str]:
        """Return how the figures were made."""
        primary = self.pairs[0].metric(self.comparison.primary)
        adjusted = f"{adjustment_text(self.report)}-adjusted"
        found = [
            f"* primary metric: {method_text(self.report, primary)}; all other metrics are exploratory, {adjusted}",
            meaning_sentence(self.report),
            omnibus_sentence(self.report, primary.metric),
            *(detectable_sentence(self.report, pair.metric(primary.metric)) for pair in self.pairs[:1]),
        ]
        return [one for one in found if one]

    def facts(self) -> list[str]:
        """Return cost, latency, tokens, ranking, judge and decision."""
        settings = self.comparison.settings
        return [
            decision_sentence(self.report),
            *effort_texts(self.report),
            f"ranking: {', '.join(ranking_texts(self.report))}",
            judge_sentence(self.report),
            f"Assay {self.comparison.assay_version}, seed {settings.seed}, level {settings.alpha:g}",
        ]

    def changes(self) -> Rows:
        """Return in which settings the runs differ, heading first."""
        return changed_rows(self.report)

    def changed(self) -> str:
        """Return how the agent's code changed, or that nothing did."""
        said = code_sentence(self.report)
        return f"{said[:1].upper()}{said[1:]}"

    def tables(self) -> list[dict[str, object]]:
        """Return for every run after the first its 2 x 2 table, counts, and the cases that came out differently."""
        return [self._table(place, pair) for place, pair in enumerate(self.pairs)]

    def _table(self, place: int, pair: PairComparison) -> dict[str, object]:
        one = table_metric(self.report, pair)
        primary = pair.metric(self.comparison.primary)
        shown = flipped_cases(self.report, pair)[:_MOST_FLIPPED]
        return {
            "place": place,
            "name": f"{pair.b} against {pair.a}",
            "table": two_by_two(one, pair.a, pair.b) if one is not None else (),
            "counts": [
                ("b_better", f"{pair.b} better", primary.wins),
                ("a_better", f"{pair.a} better", primary.losses),
                ("same", "same", primary.ties),
            ],
            "metric": metric_text(self.report, primary.metric),
            "flipped_count": differing_count(self.report, pair),
            "flipped": [
                ("case", "category", "differs in", pair.a, pair.b),
                *(flipped_row(self.report, pair, case) for case in shown),
            ],
        }

    def carried(self) -> str:
        """Return how many cases the page has, and of how many the texts."""
        total, entries, texts = self._cases.total, len(self._cases.entries), len(self._cases.texts)
        if not total:
            return "The cases of the runs are not in this page."
        cases = count_text(total, "case")
        listed = f"all {cases}" if entries == total else f"{entries:,} of {cases}"
        answers = f"has the answers of {texts:,}, the worst first"
        return f"The page lists {listed} and {answers}; comparison_cases.csv has all values."
