"""The facts of a run as a whole, from the head of its document: metrics, judge, dataset, settings and cost."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from assay.comparison.model import PASS_RATE
from assay.metrics import METRICS
from assay.metrics.core.embedding import vectors_text
from assay.model.run_spec import FUNCTION_METRIC, MAX_ERRORS
from assay.model.stopping import StoppedEarly, StoppingSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.metrics.core.info import MetricInfo
    from assay.model.run_spec import RunSpec

_IMPLIED = {"latency": "s", "tokens": "tokens", "cost": "USD"}
"""The metrics that are compared for every run even if they are not configured, with their units."""
_SECONDARY = frozenset(_IMPLIED)
"""Kinds that are primary only if they are chosen."""
_PRIMARY_KINDS = ("exact_match", "quality")
"""Kinds that are preferred as the primary metric."""

_NOT_MEASURED = frozenset(
    {
        *("threshold", "goal"),  # the value to reach
        *("model", "dimension", "windowed"),  # compared as what the run records of its vectors
        *("input_price", "output_price", "cache_read_ratio", "cache_write_ratio"),  # of the agent's model
        "timeout_s",
    }
)
"""Parameters that do not change what a metric measures."""
_THRESHOLDS_OF_ROWS = frozenset(
    {
        *("cost", "formula", "judge_score", "latency", "python", "quality", "rouge", "satisfaction"),
        *("semantic_similarity", "tokens"),
    }
)
"""Kinds whose threshold decides whether a row passes; other thresholds apply only to the run's value."""
_DIRECTION = "higher_is_better"
_EXACT = "exact"
"""The precision at which every engine gives the cosines of every other, to 1e-5."""


@dataclass(frozen=True, slots=True)
class MetricFacts:
    """A metric of a run.

    Args:
        name: Its name.
        kind: Its kind, a name in `METRICS`; its own name for an unknown kind.
        unit: Unit of its values.
        version: The version of its arithmetic; empty if the document has none.
        models: The embedding models and revisions behind its values.
        precisions: The precisions of these models; empty if the document has none.
        forms: The compared parts of vectors, e.g. "whole vectors" or "256 values, windowed"; empty without vectors.
        engines: The engines that computed the vectors, unless their precision is "exact", at which engines agree.
        is_judged: Whether it reads a judge's verdict.
        higher_is_better: False if lower values are better.
        scale: The bounds of its values, if it has any.
        is_implied: Whether it is compared without being configured.
        measures: The parameters that determine its values, complete; empty if the document has none.
        row_threshold: The value with which a row passes; None without such a threshold.
        decides_rows: Whether rows passed or failed by it.
        is_direction_assumed: Whether "higher is better" is only assumed.
    """

    name: str
    kind: str
    unit: str = ""
    version: str = ""
    models: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()
    engines: tuple[str, ...] = ()
    is_judged: bool = False
    higher_is_better: bool = True
    scale: tuple[float, float] | None = None
    is_implied: bool = False
    measures: Mapping[str, Any] = field(default_factory=dict)
    row_threshold: float | None = None
    decides_rows: bool = False
    is_direction_assumed: bool = False

    @property
    def bounds(self) -> tuple[float, float]:
        """The least and the greatest value, infinite without a bound."""
        if self.scale is not None or self.kind not in METRICS:
            return self.scale or (-math.inf, math.inf)
        return METRICS[self.kind].info.bounds


@dataclass(frozen=True, slots=True)
class RunFacts:
    """A run as a whole.

    Args:
        run_id: Its id.
        name: The file of its prompt without folder and ending, else its variant label, else its name.
        prompt_path: The file of its prompt; empty if it has none.
        state: Its state.
        partial: Whether rows are missing.
        finished: Rows with a result.
        total: All rows of the run.
        metrics: By name, in report order.
        fingerprints: The fingerprints of judge and rubrics.
        judge_cost_usd: The cost of the judge; None without a price.
        verdict_count: Verdicts of the judge.
        invalid_verdict_count: Invalid verdicts of the judge.
        dataset_id: The id of the dataset's content.
        dataset_name: The name of the dataset.
        p95_latency_ms: The 95th percentile of latencies.
        ranking: The means that the classical ranking weighs, by their names in it.
        config: Its settings.
        code: The code of its agent, as `run.code` of its document; empty if unknown.
        group_id: Its group of variants; empty for none.
        variant: Its variant, from its labels.
        stopping: The rule by which it stops early with the other run of its group; None if it asks all cases.
        stopped: When it stopped early; None if it did not.
        max_agent_errors: The largest share of its rows whose agent may fail.
    """

    run_id: str
    name: str
    prompt_path: str = ""
    state: str = ""
    partial: bool = False
    finished: int = 0
    total: int = 0
    metrics: Mapping[str, MetricFacts] = field(default_factory=dict)
    fingerprints: tuple[str, ...] = ()
    judge_cost_usd: float | None = None
    verdict_count: int = 0
    invalid_verdict_count: int = 0
    dataset_id: str = ""
    dataset_name: str = ""
    p95_latency_ms: float | None = None
    ranking: Mapping[str, float | None] = field(default_factory=dict)
    config: Mapping[str, Any] = field(default_factory=dict)
    code: Mapping[str, Any] = field(default_factory=dict)
    group_id: str = ""
    variant: str = ""
    stopping: StoppingSettings | None = None
    stopped: StoppedEarly | None = None
    max_agent_errors: float = MAX_ERRORS

    @property
    def cluster(self) -> str:
        """The cluster key of its spec; empty for none."""
        return str(self.config.get("cluster") or "")


def facts_of(head: Mapping[str, Any]) -> RunFacts:
    """Return the facts of a run from the head of its document; `docs/report.md` describes it."""
    run, summary, config = head["run"], head["summary"], head["config"]
    judging = summary.get("judging") or {}
    prompt = head.get("prompt_path") or ""
    labels = run.get("labels") or {}
    dataset = run.get("dataset") or {}
    return RunFacts(
        run_id=run["run_id"],
        name=str(labels.get("variant") or (PurePath(prompt).stem if prompt else "") or run["name"] or run["run_id"]),
        prompt_path=prompt,
        state=run.get("state") or "",
        partial=bool(summary.get("partial")),
        finished=summary.get("finished_count", 0),
        total=summary["total_count"],
        metrics=_metrics(head["results"], config.get("metrics") or ()),
        fingerprints=tuple(judging.get("fingerprints") or ()),
        judge_cost_usd=judging.get("cost_usd"),
        verdict_count=judging.get("verdict_count") or 0,
        invalid_verdict_count=judging.get("failed_count") or 0,
        dataset_id=dataset.get("sha256") or dataset.get("dataset_id") or "",
        dataset_name=dataset.get("name") or head.get("test_cases_path") or "",
        p95_latency_ms=(summary.get("latency") or {}).get("p95_ms"),
        ranking=_ranking(head["results"]),
        config=config,
        code=run.get("code") or {},
        group_id=run.get("group_id") or "",
        variant=str(labels.get("variant") or ""),
        stopping=_stopping(run.get("stopping")),
        stopped=_stopped(summary.get("stopped_early")),
        max_agent_errors=config.get("max_agent_errors", MAX_ERRORS),
    )


def _stopping(data: Mapping[str, Any] | None) -> StoppingSettings | None:
    if data is None:
        return None
    known = _known(StoppingSettings, data)
    return StoppingSettings(**{**known, "variants": tuple(known["variants"])})


def _stopped(data: Mapping[str, Any] | None) -> StoppedEarly | None:
    if data is None:
        return None
    known = _known(StoppedEarly, data)
    return StoppedEarly(**{**known, "looks": tuple(known.get("looks", ()))})


def _known(plain: type[StoppingSettings | StoppedEarly], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known fields of a part of a document; a later version may add others."""
    return {field.name: data[field.name] for field in fields(plain) if field.name in data}


def facts_of_settings(settings: RunSpec) -> dict[str, MetricFacts]:
    """Return the facts of a run's metrics before it has a row, and of the pass rate; without unknown kinds."""
    known = ((metric.name, metric.kind) for metric in settings.metrics if metric.kind in METRICS)
    metrics = {name: _metric(name, {"kind": kind, "rule": METRICS[kind].info.rule}) for name, kind in known}
    return {**metrics, PASS_RATE: MetricFacts(PASS_RATE, PASS_RATE, "%", scale=(0.0, 1.0))}


def default_primary(metrics: Mapping[str, MetricFacts]) -> str:
    """Return the default primary metric: exact match, else quality, else the first metric.

    Latency, tokens and cost decide only if they are chosen; without another metric, the verdicts of rows decide.
    """
    for kind in _PRIMARY_KINDS:
        for metric in metrics.values():
            if metric.kind == kind:
                return metric.name
    return next((metric.name for metric in metrics.values() if metric.kind not in _SECONDARY), PASS_RATE)


def _metrics(results: Mapping[str, Any], configured: Sequence[Mapping[str, Any]]) -> dict[str, MetricFacts]:
    parameters = {entry["name"]: entry["parameters"] for entry in configured if "parameters" in entry}
    metrics = {name: _metric(name, result, parameters.get(name)) for name, result in results.items()}
    kinds = {metric.kind for metric in metrics.values()}
    for kind, unit in _IMPLIED.items():
        if kind not in kinds and kind not in metrics:
            metrics[kind] = MetricFacts(kind, kind, unit, higher_is_better=False, is_implied=True)
    return metrics


def _metric(name: str, result: Mapping[str, Any], parameters: Mapping[str, Any] | None = None) -> MetricFacts:
    kind = result.get("kind") or name
    info = METRICS[kind].info if kind in METRICS else None
    embedders = result.get("models") or ()
    models = {f"{embedder['model']} {embedder['revision'] or ''}".rstrip() for embedder in embedders}
    precisions = {embedder["precision"] for embedder in embedders if embedder.get("precision")}
    engines = {
        embedder["engine"] for embedder in embedders if embedder.get("engine") and embedder.get("precision") != _EXACT
    }
    return MetricFacts(
        name=name,
        kind=kind,
        unit=result.get("unit") or "",
        version=result.get("version") or "",
        models=tuple(sorted(models)),
        precisions=tuple(sorted(precisions)),
        forms=tuple(sorted({vectors_text(embedder) or "whole vectors" for embedder in embedders})),
        engines=tuple(sorted(engines)),
        is_judged=info is not None and info.needs_judge,
        higher_is_better=result.get("rule") != "at_most",
        scale=info.scale if info is not None else None,
        measures={} if parameters is None else _measures(info, parameters),
        row_threshold=result.get("threshold") if kind in _THRESHOLDS_OF_ROWS else None,
        decides_rows=bool(result.get("passed_count") or result.get("failed_count")),
        is_direction_assumed=kind == FUNCTION_METRIC and (parameters or {}).get(_DIRECTION, True) is None,
    )


def _measures(info: MetricInfo | None, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters that determine values, with defaults for missing ones."""
    known = (
        parameters
        if info is None
        else {parameter.name: parameters.get(parameter.name, parameter.default) for parameter in info.parameters}
    )
    measured = {name: value for name, value in known.items() if name not in _NOT_MEASURED}
    # Declaring a direction that was assumed before changes no value.
    return {**measured, _DIRECTION: measured[_DIRECTION] is not False} if _DIRECTION in measured else measured


def _ranking(results: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the first accuracy, consistency and quality of a run."""
    names = {"exact_match": "accuracy", "consistency": "consistency", "quality": "quality"}
    values: dict[str, float | None] = {}
    for name, result in results.items():
        if (known := names.get(result.get("kind") or name)) is not None:
            values.setdefault(known, result.get("value"))
    return values
