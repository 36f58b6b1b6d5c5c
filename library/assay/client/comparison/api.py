"""The Python API `assay.compare`: test whether one run is better than another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from assay.client.api.evaluation import RunSource
from assay.client.api.frames import arrow_table, data_frame
from assay.client.api.loop_thread import run_to_end
from assay.client.comparison.join import (
    check_packages,
    compare_reports,
    is_file,
    reports_of,
    with_baseline_first,
)
from assay.comparison.decision import ComparisonDecision, DecisionRules, decide
from assay.comparison.model import Adjustment, Comparison, ComparisonSettings, ComparisonVerdict, FailOn
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
    """The result of a comparison.

    Args:
        comparison: All figures; the first run is the baseline.
        decision: The exit status of `assay compare` with its reasons.
        sentence: The verdict as a sentence.
        text: The command's output.
        details: The command's output with --verbose.
        html: The notebook view.
    """

    comparison: Comparison
    decision: ComparisonDecision
    sentence: str
    text: str
    details: str = ""
    html: str = ""

    def __repr__(self) -> str:
        """Return the command's output."""
        return self.text

    @property
    def verdict(self) -> ComparisonVerdict:
        """The primary metric's verdict on the second run against the first."""
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
                "a": names[pair.a.label],
                "b": names[pair.b.label],
                "metric": metric.metric,
                "primary": metric.is_primary,
                "verdict": metric.verdict.value,
                "pair_count": metric.pair_count,
                "value_a": metric.a.value if metric.a else None,
                "value_b": metric.b.value if metric.b else None,
                "difference": metric.difference,
                "low": metric.interval.low if metric.interval else None,
                "high": metric.interval.high if metric.interval else None,
                "p": metric.p,
                "p_adjusted": metric.p_adjusted,
                "better": metric.win_count,
                "same": metric.tie_count,
                "worse": metric.loss_count,
            }
            for pair in self.comparison.pairs
            for metric in pair.metrics
        ]

    def _repr_html_(self) -> str:
        return self.html


def compare(
    *runs: RunSource,
    primary: str | None = None,
    margin: float | None = None,
    difference: float | None = None,
    cluster: str | None = None,
    adjust: str | None = None,
    alpha: float = 0.05,
    seed: int = 0,
    where: str | None = None,
    baseline: RunSource | None = None,
    all_pairs: bool = False,
    fail_on: str | None = None,
    max_drop: float | None = None,
    max_drop_test: bool = False,
    strict: bool = False,
    allow_mismatch: bool = False,
    server: str | None = None,
) -> ComparisonResult:
    """Compare runs over the same cases; the first is the baseline.

    Args:
        runs: Two to 26 results of `assay.evaluate`, names of results.json files, or ids of stored runs.
        primary: The metric that decides; None for exact match, else quality, else the first metric.
        margin: Differences of the primary metric within ± this are equivalent.
        difference: Difference of the primary metric to plan for; None for the margin, else the allowed drop.
        cluster: Key of dependent cases: "category", or "tag:NAME" for tags such as NAME:value; None for none.
        adjust: Adjustment of p-values for several tests: "holm" or "bh"; None for "holm".
        alpha: Significance level of the tests.
        seed: Seed of all random draws.
        where: Only cases that match this filter (docs/filters.md); there is no verdict then. None for all cases.
        baseline: The run to compare the others with, in `runs` or not; None for the first.
        all_pairs: Whether every pair of runs decides, with p-values adjusted over all pairs.
        fail_on: Result with `exit_status` 1: "regression", "inconclusive" or "never"; None for "regression".
        max_drop: Largest allowed drop of the primary metric, whatever the p-value.
        max_drop_test: Whether `exit_status` is 1 unless a one-sided bound excludes a larger drop.
        strict: Whether anything undecided makes `exit_status` 4.
        allow_mismatch: Whether runs that must not be compared give 0 instead of 3.
        server: Orchestrator that stores the runs; None for the local stack.

    Raises:
        InvalidInputError: A setting is wrong, a file is not a report, or the runs have no common case.
        NotFoundError: A run does not exist.
        SetupError: numpy or scipy is not installed.
    """
    check_packages()
    settings, rules = check_settings(
        ComparisonSettings(
            primary or "",
            margin,
            cluster or "",
            alpha=alpha,
            seed=seed,
            where=where or "",
            all_pairs=all_pairs,
            difference=difference,
        ),
        DecisionRules(max_drop=max_drop, max_drop_test=max_drop_test, strict=strict, allow_mismatch=allow_mismatch),
        adjust=Adjustment.HOLM.value if adjust is None else adjust,
        fail_on=FailOn.REGRESSION.value if fail_on is None else fail_on,
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
