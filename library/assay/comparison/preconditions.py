"""Reasons not to compare runs: different arithmetic, embeddings or judges, few common cases, missing rows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.comparison.mismatch import Mismatch, MismatchReason
from assay.model.run_spec import FUNCTION_METRIC, TURN_SCORES, UNREADABLE, AgentSpec
from assay.text.unsafe_text import shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.comparison.facts import MetricFacts, RunFacts

_PARAMETER_CHARS = 100  # of a value in a message
LEAST_OVERLAP = 0.5
"""Share of the smaller run's cases that both runs must have."""


@dataclass(frozen=True, slots=True)
class Overlap:
    """The cases that two runs have in common.

    Args:
        a: The id of the first.
        b: The id of the second.
        share: Common cases as a share of the smaller run.
        common_case_count: Cases in both.
        changed_case_count: How many of these have another question or other references.
    """

    a: str
    b: str
    share: float
    common_case_count: int
    changed_case_count: int


def mismatches(
    runs: Sequence[RunFacts],
    metrics: Mapping[str, MetricFacts],
    overlaps: Sequence[Overlap],
) -> list[Mismatch]:
    """Return all reasons why runs must not be compared, each once.

    Args:
        runs: The runs.
        metrics: The metrics that all of them have.
        overlaps: What each pair has in common.
    """
    return [
        *_unfinished(runs),
        *_overlaps(overlaps),
        *_conversations(runs),
        *_versions(runs, metrics),
        *_judges(runs, metrics),
    ]


def _unfinished(runs: Sequence[RunFacts]) -> Iterator[Mismatch]:
    for run in runs:
        if run.partial:
            code = " --spec SPEC" if _needs_code(run) else ""
            yield Mismatch(
                MismatchReason.UNFINISHED,
                f"run {run.run_id} has {run.finished:,} of {run.total:,} rows: finish it with "
                f"`assay runs resume {run.run_id}{code}`, then compare",
            )


def _needs_code(run: RunFacts) -> bool:
    """Return whether the agent of a run, or one of its metrics, is code on the user's side."""
    agent, metrics = run.config.get("agent") or {}, run.config.get("metrics") or ()
    is_hosted = AgentSpec(str(agent.get("adapter") or UNREADABLE), str(agent.get("target"))).is_hosted
    return is_hosted or any(metric.get("kind") == FUNCTION_METRIC for metric in metrics)


def _overlaps(overlaps: Sequence[Overlap]) -> Iterator[Mismatch]:
    for overlap in overlaps:
        runs = f"runs {overlap.a} and {overlap.b}"
        if not overlap.common_case_count:
            yield Mismatch(
                MismatchReason.OVERLAP,
                f"{runs} have no case in common: they ran over different datasets, or over different selections of "
                "one; run both over the same cases",
            )
        elif overlap.changed_case_count == overlap.common_case_count:
            yield Mismatch(
                MismatchReason.OVERLAP,
                f"{runs} have no case in common: every case id that both have stands for another question or other "
                "references; run both over the same dataset",
            )
        elif overlap.share < LEAST_OVERLAP:
            cases = "1 case is" if overlap.common_case_count == 1 else f"{overlap.common_case_count:,} cases are"
            yield Mismatch(
                MismatchReason.OVERLAP,
                f"{runs} have too few common cases: {cases} in both, {overlap.share:.0%} of the smaller run; "
                "the same dataset",
            )


def _conversations(runs: Sequence[RunFacts]) -> Iterator[Mismatch]:
    values = {str(run.config.get("turns") or TURN_SCORES[0]) for run in runs}
    if len(values) > 1:
        yield Mismatch(
            MismatchReason.METRIC_VERSION,
            f"the value of a conversation is another in each run: `turns` is {_listed(values)}; score both runs with "
            "one of them",
        )


def _versions(runs: Sequence[RunFacts], metrics: Mapping[str, MetricFacts]) -> Iterator[Mismatch]:
    for name in metrics:
        versions = {run.metrics[name].version for run in runs} - {""}
        if len(versions) > 1:
            yield Mismatch(
                MismatchReason.METRIC_VERSION,
                f"{name} was computed by other rules: versions {_listed(versions)}; run again with this version",
            )
        kinds = {run.metrics[name].kind for run in runs}
        if len(kinds) > 1:
            yield Mismatch(MismatchReason.METRIC_VERSION, f"{name} is another metric in each run: {_listed(kinds)}")
        yield from _parameters(name, [run.metrics[name] for run in runs])
        yield from _embedders(name, [run.metrics[name] for run in runs])


def _parameters(name: str, metrics: Sequence[MetricFacts]) -> Iterator[Mismatch]:
    if len({metric.kind for metric in metrics}) > 1:
        return
    known = [metric.measures for metric in metrics if metric.measures]
    for parameter in dict.fromkeys(parameter_name for measures in known for parameter_name in measures):
        values = [measures.get(parameter) for measures in known]
        if any(value != values[0] for value in values):
            texts = {shorten(json.dumps(value, ensure_ascii=False), _PARAMETER_CHARS) for value in values}
            yield Mismatch(
                MismatchReason.METRIC_VERSION,
                f"{name} measures something else in each run: `{parameter}` is {_listed(texts)}; score both runs with "
                "one definition, or give the metric two names",
            )


def other_rules_of_rows(runs: Sequence[RunFacts], metrics: Mapping[str, MetricFacts]) -> str:
    """Return why the rows' verdicts of runs must not be compared; empty if they may be.

    Rows pass by other thresholds in each run, or a metric decides them that not all of the runs have.

    Args:
        runs: The runs.
        metrics: The metrics that all of them have.
    """
    thresholds = []
    for name in metrics:
        row_thresholds = [run.metrics[name].row_threshold for run in runs]
        if len(set(row_thresholds)) > 1:
            thresholds.append(
                f"{name} {_listed({'none' if threshold is None else f'{threshold:g}' for threshold in row_thresholds})}"
            )
    if thresholds:
        return f"rows pass by other thresholds in each run: {shorten(', '.join(thresholds), 300)}"
    names = dict.fromkeys(name for run in runs for name, metric in run.metrics.items() if metric.decides_rows)
    missing = [name for name in names if not all(name in run.metrics for run in runs)]
    return f"rows pass by other metrics in each run: not all have {shorten(', '.join(missing), 300)}" if missing else ""


def _embedders(name: str, metrics: Sequence[MetricFacts]) -> Iterator[Mismatch]:
    models = {metric.models for metric in metrics} - {()}
    if len(models) > 1:
        yield Mismatch(
            MismatchReason.EMBEDDER,
            f"{name} rests on other embeddings: {_texts(models)}; score both runs with one model",
        )
    forms = {metric.forms for metric in metrics} - {()}
    if len(forms) > 1:
        yield Mismatch(
            MismatchReason.EMBEDDER,
            f"{name} rests on embeddings of another dimension, or with other windows: {_texts(forms)}; score both "
            "runs with one `dimension` and `windowed`",
        )
    precisions = {metric.precisions for metric in metrics} - {()}
    if len(precisions) > 1:
        yield Mismatch(
            MismatchReason.EMBEDDER,
            f"{name} rests on embeddings of another precision: {_texts(precisions)}; score both runs with one "
            "(ASSAY_EMBEDDER_PRECISION)",
        )
    engines = {metric.engines for metric in metrics} - {()}
    if len(engines) > 1 and len(precisions) == 1:
        yield Mismatch(
            MismatchReason.EMBEDDER,
            f"{name} rests on embeddings of another engine: {_texts(engines)}; score both runs on one kind of machine, "
            "or with ASSAY_EMBEDDER_PRECISION=exact",
        )


def _texts(values: set[tuple[str, ...]]) -> str:
    return _listed({", ".join(value) for value in values})


def _judges(runs: Sequence[RunFacts], metrics: Mapping[str, MetricFacts]) -> Iterator[Mismatch]:
    if not any(metric.is_judged for metric in metrics.values()):
        return
    judges = {run.fingerprints for run in runs} - {()}
    if len(judges) > 1:
        short = {", ".join(fingerprint[:8] for fingerprint in fingerprints) for fingerprints in judges}
        yield Mismatch(
            MismatchReason.JUDGE,
            f"the runs were judged by another model, rubric or parameters (fingerprints {_listed(short)}): grade both "
            "with one judge",
        )


def _listed(values: set[str]) -> str:
    return shorten(" and ".join(sorted(values)), 300)
