"""The outline of a comparison: the sections of its reports in order, with their sentences and tables.

Text, Markdown, HTML and notebooks render these sections, so that no format lacks a sentence that another has. All
texts are untrusted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from assay.reports.comparison.words.figures import figures_of
from assay.reports.comparison.words.headline import Naming, pair_sentence, verdict_sentence
from assay.reports.comparison.words.sentences import (
    adjustment_text,
    agent_errors_text,
    banners,
    cautions,
    classical_texts,
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
    matrix,
    metrics_of_pair,
    metrics_of_runs,
    table_metric,
    two_by_two,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from assay.comparison.model import PairComparison
    from assay.reports.comparison.document.comparison_report import ComparisonReport
    from assay.reports.comparison.words.tables import Row

PRIMARY = " *"
"""The mark of the primary metric in tables, after its name."""
_MOST_CLASSICAL = 4


class Part(StrEnum):
    """The subject of a section."""

    VERDICT = "verdict"
    BANNERS = "banners"
    CAUTIONS = "cautions"
    DECISION = "decision"
    RUNS = "runs"
    METRICS = "metrics"
    METHOD = "method"
    DIFFERENCES = "differences"
    PAIR = "pair"
    CHANGES = "changes"
    FACTS = "facts"


OPENING = (Part.VERDICT, Part.BANNERS, Part.CAUTIONS, Part.DECISION)
"""The sections at the top of a report; a terminal shows the decision last, where the reader looks."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a section.

    Args:
        caption: What it shows.
        rows: Its cells, the heading first.
        names: The columns that hold texts of users; the other cells are figures and labels.
        head_names: The cells of the heading that are texts of users.
        total: How many rows there are, where `rows` may leave some out; None if `rows` is complete.
    """

    caption: str
    rows: Sequence[Row]
    names: range = range(0)
    head_names: range = range(0)
    total: int | None = None

    def counted(self, shown: int) -> str:
        """Return the caption with the numbers of all rows and of shown ones."""
        count = f"{shown:,} of {self.total:,}" if self.total is not None and self.total > shown else f"{shown:,}"
        return f"{self.caption} ({count})"


@dataclass(frozen=True, slots=True)
class Section:
    """A section of a comparison's report.

    Args:
        part: What it is about; only `PAIR` may occur several times.
        title: Its heading.
        sentences: What it says, one line each.
        tables: What it shows below.
        pair: The two runs of a section about a pair.
    """

    part: Part
    title: str
    sentences: Sequence[str] = ()
    tables: Sequence[Table] = ()
    pair: PairComparison | None = None


def outline(report: ComparisonReport, naming: Naming = Naming.BOTH) -> list[Section]:
    """Return the sections of a comparison.

    Args:
        report: The comparison.
        naming: What sentences call the runs; with `Naming.NAME` headings of tables have the names, too.
    """
    called = report.names.__getitem__ if naming is Naming.NAME else str
    sections = [
        Section(Part.VERDICT, "Verdict", (verdict_sentence(report, naming),)),
        Section(Part.BANNERS, "Why there is no verdict", banners(report)),
        Section(Part.CAUTIONS, "Cautions", cautions(report)),
        Section(Part.DECISION, "Decision", (decision_sentence(report),)),
        Section(Part.RUNS, "What was compared", tables=(_runs(report),)),
        *_figures(report, called),
        *_pairs(report, naming, called),
        Section(Part.CHANGES, "What changed", tuple(filter(None, [code_sentence(report)])), _changes(report)),
        Section(Part.FACTS, "Cost, latency, judge and provenance", tuple(_facts(report))),
    ]
    return [section for section in sections if section.sentences or section.tables]


def _runs(report: ComparisonReport) -> Table:
    rows = [
        (
            variant.label,
            variant.name,
            variant.prompt_path or "–",
            variant.run_id,
            f"{variant.case_count:,}",
            agent_errors_text(variant),
        )
        for variant in report.comparison.variants
    ]
    return Table("What was compared", [("", "name", "prompt", "run", "cases", "agent errors"), *rows], range(1, 4))


def _figures(report: ComparisonReport, called: Callable[[str], str]) -> Iterator[Section]:
    """Yield the metrics, their method, and the differences between three or more runs."""
    first = report.baseline_pairs[0]
    if len(report.comparison.variants) > 2:
        (label, cases, primary, *names), *rows = metrics_of_runs(report)
        heading = (label, cases, f"{primary}{PRIMARY}", *names)
        table = Table(
            "Metrics", [heading, *((called(run), *cells) for run, *cells in rows)], head_names=range(2, len(heading))
        )
        yield Section(Part.METRICS, "Metrics", tables=(table,))
        yield Section(Part.METHOD, "Method", tuple(_method_of_runs(report, first)))
        heading_sentence = matrix_heading(report, report.comparison.primary)
        shown = Table("Differences between all runs", matrix(report))
        yield Section(Part.DIFFERENCES, "Differences between all runs", (heading_sentence,), (shown,))
    elif first.common_case_count > first.changed_case_count:
        (name, _, _, difference, *others), (primary, *cells), *rows = metrics_of_pair(report, first)
        heading = (name, called(first.a.label), called(first.b.label), difference, *others)
        table = Table("Metrics", [heading, (f"{primary}{PRIMARY}", *cells), *rows], range(1))
        yield Section(Part.METRICS, "Metrics", tables=(table,))
        yield Section(Part.METHOD, "Method", tuple(_method_of_pair(report, first)))


def _method_of_pair(report: ComparisonReport, pair: PairComparison) -> Iterator[str]:
    """Yield the meaning of the figures of two runs, and the test of each metric."""
    primary, *others = report.shown(pair)
    yield f"* primary metric: {method_text(report, primary)} ({counts_text(primary, pair)})"
    yield meaning_sentence(report)
    yield floor_sentence(report, primary)
    for metric in others:
        if "as_primary" in metric.notes:
            yield f"{metric.metric}: all values are those of the primary metric"
            continue
        tested = f"{method_text(report, metric)} ({counts_text(metric, pair)})"
        yield f"{metric.metric}: {tested}, exploratory, {adjustment_text(report)}-adjusted"


def _method_of_runs(report: ComparisonReport, first: PairComparison) -> Iterator[str]:
    """Yield the meaning of the figures of three or more runs."""
    primary = first.metric(report.comparison.primary)
    yield f"* primary metric: {method_text(report, primary)}; values of each run are over all its cases"
    yield f"all other metrics are exploratory, {adjustment_text(report)}-adjusted"
    if omnibus := omnibus_sentence(report, primary.metric):
        yield omnibus
    yield meaning_sentence(report)
    yield floor_sentence(report, primary)


def _pairs(report: ComparisonReport, naming: Naming, called: Callable[[str], str]) -> Iterator[Section]:
    """Yield a section for each run after the first that shares cases with it."""
    for pair in report.baseline_pairs:
        if pair.common_case_count == pair.changed_case_count:
            continue
        a, b = called(pair.a.label), called(pair.b.label)
        tables = []
        if (metric := table_metric(report, pair)) is not None:
            tables.append(Table("2 x 2 table", two_by_two(metric, a, b), head_names=range(1)))
        if count := pair.flipped_case_count:
            caption = f"cases that came out differently, worst for {b} first"
            rows = [("case", "category", "question", "differs in", a, b), *_flipped(report, pair)]
            tables.append(Table(caption, rows, range(4), total=count))
        yield Section(Part.PAIR, f"{b} against {a}", tuple(_sentences_of(report, pair, naming)), tables, pair)


def _sentences_of(report: ComparisonReport, pair: PairComparison, naming: Naming) -> Iterator[str]:
    primary = pair.metric(report.comparison.primary)
    if len(report.comparison.variants) > 2:  # of two runs it is the verdict
        yield pair_sentence(report, pair, naming)
    yield f"paired cases: {primary.pair_count:,} ({joined_text(pair, primary)}); {counts_text(primary, pair)}"
    if detectable := detectable_sentence(report, primary):
        yield detectable
    if tests := classical_texts(report, pair):
        more = f"; and {len(tests) - _MOST_CLASSICAL} more" if len(tests) > _MOST_CLASSICAL else ""
        yield f"classical (unpaired): {'; '.join(tests[:_MOST_CLASSICAL])}{more}"


def _flipped(report: ComparisonReport, pair: PairComparison) -> Iterator[Row]:
    for case in pair.flipped_cases:
        values = map(figures_of(report, case.metric).value, (case.a, case.b))
        yield (case.case_id, case.category, case.question, case.metric, *values)


def _changes(report: ComparisonReport) -> Sequence[Table]:
    rows = changed_rows(report)
    return (Table("What changed", rows, range(len(rows[0]))),) if len(rows) > 1 else ()


def _facts(report: ComparisonReport) -> Iterator[str]:
    settings = report.comparison.settings
    yield from effort_texts(report)
    yield f"ranking: {', '.join(ranking_texts(report))}"
    yield judge_sentence(report)
    yield f"Assay {report.comparison.assay_version}, seed {settings.seed}, level {settings.alpha:g}"
