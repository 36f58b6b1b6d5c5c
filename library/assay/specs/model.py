"""The checked spec."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from assay.errors import Problem
from assay.metrics import METRICS
from assay.metrics.checks.judged_checks import JUDGED_CHECKS
from assay.metrics.checks.similar_checks import SIMILAR_CHECKS
from assay.metrics.core.embedding import EmbeddingSettings
from assay.model.report_settings import DEFAULT_REPORTS, ReportSettings
from assay.specs.judging import key_variable_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from assay.datasets import Dataset
    from assay.judging.recorded_verdicts import RecordedVerdicts
    from assay.model.run import MetricSpec, RunSpec
    from assay.model.run_spec import CaseSelection


@dataclass(frozen=True, slots=True)
class Spec:
    """An evaluation: the settings of its run, the dataset and the reports.

    Args:
        settings: The part that is sent to the orchestrator.
        dataset: The dataset file; None if cases are given as objects.
        dataset_map: The dataset's own field names, by canonical field.
        dataset_encoding: The dataset's encoding; None for UTF-8, or the encoding of its byte order mark.
        dataset_format: The dataset's format; None to detect it from the records.
        on_bad_case: For an invalid record, "refuse" the dataset or "skip" the record.
        reports: The reports to write.
        base_dir: The absolute folder that relative names in the spec are resolved against.
        source: The spec's file; None if it is not from a file.
        recorded_verdicts: Recorded verdicts that replace a judge; None if there are none.
        lines: The lines of its file, by path: "metrics.NAME", "metrics.NAME.threshold", "gates[0]", ...; empty if it is
            not from a file.
        judge_problems: Problems of the judge if only checks of the cases might ask it.
    """

    settings: RunSpec
    dataset: Path | None = None
    dataset_map: Mapping[str, str] = field(default_factory=dict)
    dataset_encoding: str | None = None
    dataset_format: str | None = None
    on_bad_case: str = "refuse"
    reports: tuple[ReportSettings, ...] = DEFAULT_REPORTS
    base_dir: Path = Path()
    source: Path | None = None
    recorded_verdicts: RecordedVerdicts | None = None
    judge_problems: tuple[Problem, ...] = ()
    lines: Mapping[str, int] = field(default_factory=dict)

    def place(self, path: str, message: str) -> Problem:
        """Return a message about a part of the spec, with its file and line.

        Args:
            path: The part, e.g. "metrics.rouge.threshold" or "gates[0]".
        """
        line = self.lines.get(path) or self.lines.get(path.rpartition(".")[0])
        return Problem(message, path, str(self.source or ""), line)

    def open_dataset(
        self, selection: CaseSelection | None = None, failed_cases: Collection[str] = frozenset()
    ) -> Dataset:
        """Return the dataset, which must not be None; nothing is read yet.

        Args:
            selection: The selection of cases; None for all.
            failed_cases: The ids of the cases that failed in the run that `selection.failed_of` names.
        """
        from assay.datasets import open_dataset
        from assay.model.run_spec import CaseSelection

        assert self.dataset is not None, "the caller refuses a spec without a dataset"
        return open_dataset(
            self.dataset,
            field_map=self.dataset_map,
            encoding=self.dataset_encoding,
            selection=selection or CaseSelection(),
            failed_cases=failed_cases,
            on_bad_case=self.on_bad_case,
            format=self.dataset_format,
        )

    def embedding_models(self, checks: Collection[str]) -> tuple[str, ...]:
        """Return the embedding models that the metrics need, sorted.

        Args:
            checks: The types of the cases' checks.
        """
        return tuple(sorted({settings.model for settings in needed_embeddings(self.settings.metrics, checks)}))

    @property
    def judge_keys(self) -> tuple[str, ...]:
        """The environment variables with the keys of the judges, without duplicates."""
        members = (member for judge in self.settings.judges for member in judge.members)
        return tuple(dict.fromkeys(filter(None, map(key_variable_of, members))))

    def needs_judge(self, checks: Collection[str]) -> bool:
        """Return whether a judge will be asked: one is configured, and a metric uses its verdicts.

        Args:
            checks: The types of the cases' checks.
        """
        return asks_judge(self.settings, checks)


def needed_embeddings(metrics: Iterable[MetricSpec], checks: Collection[str]) -> dict[EmbeddingSettings, str]:
    """Return the vectors that metrics need, each with the spec path of the last metric that needs it.

    Args:
        metrics: The metrics.
        checks: The types of the cases' checks, as far as known.
    """
    has_similar = not SIMILAR_CHECKS.keys().isdisjoint(checks)
    return {
        EmbeddingSettings.of(metric.parameters): f"metrics.{metric.name}"
        for metric in metrics
        if metric.kind in METRICS
        and METRICS[metric.kind].info.needs_embedder
        and (has_similar or metric.kind != "assertions")
    }


def wants_verdicts(metrics: Iterable[MetricSpec], checks: Collection[str] | None) -> bool:
    """Return whether any of the metrics is computed from verdicts.

    Args:
        checks: The types of the cases' checks; None if unknown.
    """
    has_judged = checks is None or not JUDGED_CHECKS.keys().isdisjoint(checks)
    return any(
        metric.kind in METRICS and METRICS[metric.kind].info.needs_judge and (has_judged or metric.kind != "assertions")
        for metric in metrics
    )


def asks_judge(settings: RunSpec, checks: Collection[str] | None) -> bool:
    """Return whether any metric uses the verdicts of a judge that is asked rather than recorded.

    Args:
        settings: The settings of the run.
        checks: The types of the cases' checks; None if unknown.
    """
    asking = [
        metric
        for metric in settings.metrics
        if (judge := settings.judge_of(metric)) is not None and not judge.recorded_file
    ]
    return wants_verdicts(asking, checks)


def checks_of(settings: RunSpec) -> Collection[str] | None:
    """Return the types of a run's checks; None if its client did not report them."""
    return settings.dataset.checks if settings.dataset is not None else None
