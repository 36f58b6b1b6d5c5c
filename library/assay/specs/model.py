"""A checked spec."""

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

    from assay.judging.recorded_verdicts import RecordedVerdicts
    from assay.model.run import MetricSettings, RunSettings


@dataclass(frozen=True, slots=True)
class Spec:
    """What to run, over which dataset, and which reports to write.

    Args:
        settings: The part that travels to the orchestrator.
        dataset: The dataset file; None where cases are given as objects.
        dataset_map: Canonical field to the dataset's own field name.
        dataset_encoding: The dataset's encoding; None means UTF-8 or what its byte order mark says.
        dataset_format: The format to read the dataset as; None means what its records look like.
        on_bad_case: What is done about a record of the dataset that is wrong: "refuse" the dataset, or "skip" it.
        reports: The reports to write.
        base_dir: Folder that relative names in the spec start from, absolute.
        source: The spec's file; None where it is not from a file.
        recorded_verdicts: Verdicts that take the place of a judge; None where there are none.
        lines: The lines of its file, by path: "metrics.NAME", "metrics.NAME.threshold", "gates[0]", ...; empty where it
            is not from a file.
        judge_problems: What keeps the judge from being asked, where only checks of the cases may ask it.
    """

    settings: RunSettings
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
        """Return what is to be said about a part of the spec, with its file and line.

        Args:
            path: The part, e.g. "metrics.rouge.threshold" or "gates[0]".
        """
        line = self.lines.get(path) or self.lines.get(path.rpartition(".")[0])
        return Problem(message, path, str(self.source or ""), line)

    def embedding_models(self, checks: Collection[str]) -> tuple[str, ...]:
        """Return the embedding models that the metrics need, sorted.

        Args:
            checks: The types of the checks that the cases bring along.
        """
        return tuple(sorted({settings.model for settings in needed_embeddings(self.settings.metrics, checks)}))

    @property
    def judge_keys(self) -> tuple[str, ...]:
        """The environment variables with the keys of the judges, without doubles."""
        judges = self.settings.judge.judges if self.settings.judge is not None else ()
        return tuple(dict.fromkeys(filter(None, map(key_variable_of, judges))))

    def needs_judge(self, checks: Collection[str]) -> bool:
        """Return whether a judge is to be asked: one is configured, and any metric is computed from its verdicts.

        Args:
            checks: The types of the checks that the cases bring along.
        """
        judge = self.settings.judge
        return judge is not None and not judge.recorded_file and wants_verdicts(self.settings.metrics, checks)


def needed_embeddings(metrics: Iterable[MetricSettings], checks: Collection[str]) -> dict[EmbeddingSettings, str]:
    """Return which vectors metrics need, each with the place in the spec of the last metric that needs them.

    Args:
        metrics: The metrics.
        checks: The types of the checks that the cases bring along, as far as they are known.
    """
    has_similar = not SIMILAR_CHECKS.keys().isdisjoint(checks)
    return {
        EmbeddingSettings.of(metric.parameters): f"metrics.{metric.name}"
        for metric in metrics
        if metric.kind in METRICS
        and METRICS[metric.kind].info.needs_embedder
        and (has_similar or metric.kind != "assertions")
    }


def wants_verdicts(metrics: Iterable[MetricSettings], checks: Collection[str] | None) -> bool:
    """Return whether any of the metrics is computed from verdicts.

    Args:
        checks: The types of the checks that the cases bring along; None where they are not known.
    """
    has_judged = checks is None or not JUDGED_CHECKS.keys().isdisjoint(checks)
    return any(
        metric.kind in METRICS and METRICS[metric.kind].info.needs_judge and (has_judged or metric.kind != "assertions")
        for metric in metrics
    )


def checks_of(settings: RunSettings) -> Collection[str] | None:
    """Return the types of the checks that a run's cases bring along; None where its client did not say."""
    return settings.dataset.checks if settings.dataset is not None else None
