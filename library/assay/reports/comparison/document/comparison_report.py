"""The data that all reports of a comparison share."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from hashlib import blake2b
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from assay.comparison.facts import facts_of
from assay.comparison.model import PASS_RATE
from assay.comparison.run_names import run_names
from assay.reports.comparison.document.compared_cases import ReportedCases
from assay.text.unsafe_text import json_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.comparison.decision import ComparisonDecision
    from assay.comparison.facts import RunFacts
    from assay.comparison.model import Comparison, MetricComparison, PairComparison, Variant
    from assay.reports.comparison.document.compared_cases import ComparedCases
    from assay.reports.document.report import Report

_DIGEST_BYTES = 4


@dataclass(frozen=True)
class ComparisonReport:
    """Data of the comparison reports; `docs/comparison-report.md` describes them.

    Args:
        comparison: The figures.
        decision: The decision for a pipeline.
        facts: The runs as a whole, in order.
        heads: The documents of the runs without their rows, in order.
        cases: The compared cases; None if only the figures are known.
        runs: The documents of the runs with their rows, in order; empty where a server compared them.
        timestamp: Time of the comparison, ISO 8601, UTC.
        of_run: Whether this is the comparison of a run with its baseline, made when the run ends.
        server: The server that stores the runs, as the user named it; empty for the local stack, and None where
            they are files.
    """

    comparison: Comparison
    decision: ComparisonDecision
    facts: Sequence[RunFacts]
    heads: Sequence[Mapping[str, Any]]
    cases: ComparedCases | None = None
    runs: Sequence[Report] = ()
    timestamp: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    of_run: bool = False
    server: str | None = None

    @cached_property
    def comparison_id(self) -> str:
        """An id derived from runs and settings: repeating a comparison gives the same id."""
        settings = repr((self.comparison.settings, [variant.run_id for variant in self.comparison.variants]))
        return f"comparison-{blake2b(settings.encode('utf-8', 'replace'), digest_size=_DIGEST_BYTES).hexdigest()}"

    @cached_property
    def units(self) -> Mapping[str, str]:
        """The unit of each metric by name; empty for a plain number."""
        return {metric.metric: metric.unit for metric in self.comparison.pairs[0].metrics}

    @cached_property
    def implied(self) -> frozenset[str]:
        """Metrics that are compared although no spec asks for them."""
        return frozenset(metric.metric for metric in self.comparison.pairs[0].metrics if metric.is_implied)

    @cached_property
    def names(self) -> Mapping[str, str]:
        """Distinct display names of the runs, by label."""
        return run_names(self.comparison.variants, of_run=self.of_run)

    @property
    def baseline_pairs(self) -> Sequence[PairComparison]:
        """Every run against the first."""
        return self.comparison.baseline_pairs

    def shown(self, pair: PairComparison) -> Sequence[MetricComparison]:
        """Return the metrics of two runs, without those that no spec asks for and no run has."""
        variants = self.comparison.variants
        return [
            metric
            for metric in pair.metrics
            if metric.metric not in self.implied
            or any(variant.metrics[metric.metric].case_count for variant in variants)
        ]

    def distinct(self, pair: PairComparison) -> Sequence[MetricComparison]:
        """Return the metrics of two runs to show, without a pass rate that repeats another metric."""
        variants, shown = self.comparison.variants, self.shown(pair)
        estimates = {metric.metric: [variant.metrics[metric.metric] for variant in variants] for metric in shown}
        rate = estimates.pop(PASS_RATE, None)
        is_repeated = rate in estimates.values() and self.comparison.primary != PASS_RATE
        return [metric for metric in shown if metric.metric != PASS_RATE or not is_repeated]

    def place(self, label: str) -> int:
        """Return the index of a label's run."""
        return [variant.label for variant in self.comparison.variants].index(label)

    def title(self, variant: Variant) -> str:
        """Return a run's title for headings: the file name of its prompt, else the run's name."""
        file = PurePath(variant.prompt_path).name
        is_shared = (
            sum(PurePath(other_variant.prompt_path).name == file for other_variant in self.comparison.variants) > 1
        )
        return self.names[variant.label] if self.of_run or is_shared or not file else file


def report_of_runs(
    comparison: Comparison, decision: ComparisonDecision, runs: Sequence[Report], *, of_run: bool = False
) -> ComparisonReport:
    """Return the report of a comparison from the documents of its runs.

    Args:
        comparison: The figures.
        decision: The decision for a pipeline.
        runs: The documents.
        of_run: As in `ComparisonReport`.
    """
    return ComparisonReport(
        comparison=comparison,
        decision=decision,
        facts=[facts_of(run.head) for run in runs],
        heads=[run.head for run in runs],
        cases=ReportedCases(runs, comparison.settings),
        runs=runs,
        of_run=of_run,
    )


def setting_text(value: object) -> str:
    """Return a run's setting in one line, untrusted; a dash if it has none."""
    return "–" if value is None or value == "" else value if isinstance(value, str) else json_text(value)
