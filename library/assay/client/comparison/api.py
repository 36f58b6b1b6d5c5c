"""`assay.compare`: whether one run is better than another, in Python."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from assay.client.comparison.join import (
    RunSource,
    check_packages,
    compare_reports,
    is_file,
    reports_of,
    with_baseline_first,
)
from assay.client.frames import arrow_table, data_frame
from assay.client.loop_thread import run_to_end
from assay.comparison.decision import Decision, DecisionRules, decide
from assay.comparison.model import Comparison, ComparisonSettings, Verdict
from assay.comparison.run_names import run_names
from assay.comparison.settings import check_settings
from assay.reports.comparison.document.comparison_report import report_of_runs
from assay.reports.comparison.formats.notebook_html import comparison_html
from assay.reports.comparison.formats.short_text import short_lines
from assay.reports.comparison.formats.text import comparison_lines
from assay.reports.comparison.words.headline import verdict_sentence

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True, repr=False)
class ComparisonResult:
    """What a comparison came to.

    Args:
        comparison: All figures; the first run is the baseline, A.
        decision: The exit status of `assay compare`, and why.
        sentence: The verdict as a sentence.
        text: What the command prints.
        details: What the command prints with --verbose.
        html: What a notebook shows.
    """

    comparison: Comparison
    decision: Decision
    sentence: str
    text: str
    details: str = ""
    html: str = ""

    def __repr__(self) -> str:
        """Return what the command prints."""
        return self.text

    @property
    def verdict(self) -> Verdict:
        """What the primary metric says of the second run against the first."""
        return self.comparison.pairs[0].metric(self.comparison.primary).verdict

    @property
    def exit_status(self) -> int:
        """The exit status of `assay compare`: 0, 1, 3 or 4."""
        return self.decision.exit_status

    def to_pandas(self) -> Any:
        """Return the compared metrics as a pandas DataFrame: one line per pair of runs and metric.

        Raises:
            SetupError: pandas is not installed.
        """
        return data_frame(self._records())

    def to_arrow(self) -> Any:
        """Return the compared metrics as an Arrow table, with the columns of `to_pandas`.

        Raises:
            SetupError: pyarrow is not installed.
        """
        return arrow_table(self._records())

    def _records(self) -> list[dict[str, Any]]:
        names = run_names(self.comparison.variants)
        return [
            {
                "a": names[pair.a],
                "b": names[pair.b],
                "metric": one.metric,
                "primary": one.is_primary,
                "verdict": one.verdict.value,
                "n_pairs": one.n_pairs,
                "value_a": one.a.value if one.a else None,
                "value_b": one.b.value if one.b else None,
                "difference": one.difference,
                "low": one.interval[0] if one.interval else None,
                "high": one.interval[1] if one.interval else None,
                "p": one.p,
                "p_adjusted": one.p_adjusted,
                "better": one.wins,
                "same": one.ties,
                "worse": one.losses,
            }
            for pair in self.comparison.pairs
            for one in pair.metrics
        ]

    def _repr_html_(self) -> str:
        return self.html


def compare(
    *runs: RunSource,
    primary: str = "",
    margin: float | None = None,
    difference: float | None = None,
    cluster: str = "",
    adjust: str = "holm",
    alpha: float = 0.05,
    seed: int = 0,
    where: str = "",
    baseline: RunSource | None = None,
    all_pairs: bool = False,
    fail_on: str = "regression",
    max_drop: float | None = None,
    max_drop_test: bool = False,
    strict: bool = False,
    allow_mismatch: bool = False,
    server: str | None = None,
) -> ComparisonResult:
    """Compare runs over the same cases; the first is the baseline.

    Args:
        runs: Two to 26 results of `assay.evaluate`, names of results.json files, or ids of stored runs.
        primary: The metric that decides; empty for exact match, else quality, else the first metric.
        margin: Differences of the primary metric within ± this are equivalent.
        difference: Of the primary metric, for which the needed cases are computed; None for the margin, else the drop.
        cluster: What cases share with others: "category", or "tag:NAME" for tags such as NAME:value.
        adjust: How p-values of several tests are adjusted: "holm" or "bh".
        alpha: Level of the tests.
        seed: Of all random draws.
        where: Only cases that meet this filter (docs/filters.md); such figures have no verdict.
        baseline: The run that the others are compared with, one of `runs` or another; None for the first.
        all_pairs: Whether every pair of runs decides, and p-values are adjusted over all of them.
        fail_on: What makes `exit_status` 1: "regression", "inconclusive" or "never".
        max_drop: The largest drop of the primary metric that is not 1, whatever the p-value.
        max_drop_test: Whether `exit_status` is 1 unless the values exclude a larger drop, by a one-sided bound.
        strict: Whether anything undecided makes `exit_status` 4.
        allow_mismatch: Whether runs that must not be compared give 0 in place of 3.
        server: The orchestrator that stores the runs; None for the local stack.

    Raises:
        InvalidInputError: A setting is wrong, a file is no report, or the runs have no common case.
        NotFoundError: There is no such run.
        SetupError: numpy or scipy is not installed.
    """
    check_packages()
    settings, rules = check_settings(
        ComparisonSettings(
            primary, margin, cluster, alpha=alpha, seed=seed, where=where, all_pairs=all_pairs, difference=difference
        ),
        DecisionRules(max_drop=max_drop, max_drop_test=max_drop_test, strict=strict, allow_mismatch=allow_mismatch),
        adjust=adjust,
        fail_on=fail_on,
    )
    return run_to_end(_compare(with_baseline_first(runs, baseline), settings, rules, server))


async def _compare(
    runs: Sequence[RunSource], settings: ComparisonSettings, rules: DecisionRules, server: str | None
) -> ComparisonResult:
    async with reports_of(runs, server) as reports:
        comparison = compare_reports(reports, settings)
        report = report_of_runs(comparison, decide(comparison, rules), reports)
        if not any(map(is_file, runs)):
            report = replace(report, server=server or "")
        text, details = ("\n".join(lines(report)) for lines in (short_lines, comparison_lines))
        return ComparisonResult(
            comparison, report.decision, verdict_sentence(report), text, details, comparison_html(report)
        )
