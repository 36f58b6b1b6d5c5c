"""Scoring the stored answers of a run again, with other metrics, thresholds or another judge: `assay rescore`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from assay.errors import InvalidInputError, Problem, SpecError
from assay.gates.gates import parse_gate
from assay.model.run_settings import AgentSettings
from assay.specs.loader import load_spec, spec_from_mapping
from assay.specs.model import checks_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from assay.model.run import Run
    from assay.specs.model import Spec

_KEPT = ("max_agent_errors", "max_metric_errors", "turns", "note", "weight", "cluster")


def rescoring_spec(
    source: Run,
    spec: Path | Mapping[str, Any] | None = None,
    *,
    metrics: Sequence[str] | None = None,
    overrides: Sequence[str] = (),
    judge_environ: Mapping[str, str] | None = None,
) -> tuple[Spec, tuple[str, ...]]:
    """Return what scores the stored answers of a run, and the gates of the run that it lacks the metrics for.

    Args:
        source: The run.
        spec: What names metrics, gates and judge, a file or a mapping in the shape of one; None for those of the run.
        metrics: Names of the only metrics to compute, with the parameters that the spec or the run has for them.
        overrides: Changes in the form "key=value".
        judge_environ: The environment of the judge, where variables that are not set are a problem.

    Raises:
        SpecError: Something is wrong; holds every problem.
    """
    data, left_out = _mapping_of(source, metrics) if spec is None else (spec, ())
    if isinstance(data, Mapping):
        found = spec_from_mapping(
            data,
            overrides=overrides,
            metrics=metrics,
            needs_dataset=False,
            needs_agent=False,
            judge_environ=judge_environ,
        )
    else:
        found = load_spec(data, overrides=overrides, metrics=metrics, judge_environ=judge_environ)
    if spec is None and found.settings.judge is None:
        found = _with(found, judge=source.settings.judge)
    return _of_source(found, source), left_out


def _with(spec: Spec, **settings: Any) -> Spec:
    return dataclasses.replace(spec, settings=dataclasses.replace(spec.settings, **settings))


def _of_source(spec: Spec, source: Run) -> Spec:
    """Return a spec whose answers and cases are those of a run.

    Raises:
        SpecError: The judge cannot be asked, or its verdicts would have to come with the cases.
    """
    before = source.settings
    found = _with(
        spec,
        agent=AgentSettings("replay", concurrency=before.agent.concurrency),
        repeats=before.repeats,
        dataset=before.dataset,
        selection=before.selection,
        source_run_id=source.run_id,
        code=before.code,
        approvals=before.approvals,
    )
    if spec.recorded_verdicts is not None:
        message = "recorded verdicts come with a dataset: score one with `adapter: replay`, or name a judge to ask"
        raise SpecError([Problem(message, "judge.replay")])
    if found.judge_problems and found.needs_judge(checks_of(found.settings) or ()):
        raise SpecError(found.judge_problems)
    return found


def _mapping_of(source: Run, metrics: Sequence[str] | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a run's settings in the shape of a spec, and its gates that name a metric which is not computed."""
    settings = source.settings
    listed = {metric.name: metric for metric in settings.metrics}
    chosen = listed.keys() if metrics is None else metrics
    kinds = {name: listed[name].kind if name in listed else name for name in chosen}
    kept = [gate for gate in settings.gates if _can_hold(gate, kinds, settings.repeats)]
    data: dict[str, Any] = {
        "name": settings.name,
        "metrics": [_entry(metric.name, metric.kind, metric.parameters) for metric in settings.metrics],
        "gates": kept,
        "labels": dict(settings.labels),
        **{name: getattr(settings, name) for name in _KEPT},
    }
    return data, tuple(gate for gate in settings.gates if gate not in kept)


def _entry(name: str, kind: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {**parameters, **({"metric": kind} if kind != name else {})}}


def _can_hold(gate: str, kinds: Mapping[str, str], repeats: int) -> bool:
    try:
        parse_gate(gate, metrics=kinds, repeats=repeats)
    except InvalidInputError:
        return False
    return True
