"""The spec of `assay rescore`: stored answers of a run with other metrics, thresholds or another judge."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from assay.errors import InvalidInputError, Problem, SpecError
from assay.gates.gates import parse_gate
from assay.model.run_spec import AgentSpec
from assay.specs.loader import load_spec, spec_from_mapping
from assay.specs.model import checks_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from assay.model.run import Run, RunSpec
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
    """Return a spec that scores the stored answers of a run, and the run's gates that are dropped for lack of metrics.

    Args:
        source: Run with the answers.
        spec: Spec with metrics, gates and judge, as a file or a mapping; None for the run's settings.
        metrics: Only these metrics, with parameters from the spec or the run.
        overrides: Overrides of the form "key=value".
        judge_environ: Environment of the judge, in which a missing variable is a problem; None to skip the check.

    Raises:
        SpecError: The spec is wrong; lists every problem.
    """
    data, left_out = _mapping_of(source, metrics) if spec is None else (spec, ())
    if isinstance(data, Mapping):
        rescoring = spec_from_mapping(
            data,
            overrides=overrides,
            metrics=metrics,
            needs_dataset=False,
            needs_agent=False,
            judge_environ=judge_environ,
        )
    else:
        rescoring = load_spec(data, overrides=overrides, metrics=metrics, judge_environ=judge_environ)
    if spec is None and not rescoring.settings.judges:
        rescoring = _with_judges(rescoring, source.spec)
    return _of_source(rescoring, source), left_out


def _with(spec: Spec, **settings: Any) -> Spec:
    return dataclasses.replace(spec, settings=dataclasses.replace(spec.settings, **settings))


def _with_judges(spec: Spec, source: RunSpec) -> Spec:
    """Return a spec with the judges and the rubrics of a run."""
    known = {metric.name: metric for metric in source.metrics}
    metrics = tuple(
        dataclasses.replace(metric, judge=own.judge, rubric=own.rubric, rubric_yaml=own.rubric_yaml)
        if (own := known.get(metric.name)) is not None and own.kind == metric.kind
        else metric
        for metric in spec.settings.metrics
    )
    return _with(spec, judges=source.judges, spend_cap_nano_usd=source.spend_cap_nano_usd, metrics=metrics)


def _of_source(spec: Spec, source: Run) -> Spec:
    """Return a spec with the answers and cases of a run.

    Raises:
        SpecError: The judge cannot be called, or its verdicts would have to come with the cases.
    """
    before = source.spec
    spec_of_run = _with(
        spec,
        agent=AgentSpec("replay", concurrency=before.agent.concurrency),
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
    if spec_of_run.judge_problems and spec_of_run.needs_judge(checks_of(spec_of_run.settings) or ()):
        raise SpecError(spec_of_run.judge_problems)
    return spec_of_run


def _mapping_of(source: Run, metrics: Sequence[str] | None) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a run's settings as a spec mapping, and its gates on metrics that are not computed."""
    settings = source.spec
    listed = {metric.name: metric for metric in settings.metrics}
    chosen = listed.keys() if metrics is None else metrics
    kinds = {name: listed[name].kind if name in listed else name for name in chosen}
    gates = [gate for gate in settings.gates if _can_hold(gate, kinds, settings.repeats)]
    data: dict[str, Any] = {
        "name": settings.name,
        "metrics": [_entry(metric.name, metric.kind, metric.parameters) for metric in settings.metrics],
        "gates": gates,
        "labels": dict(settings.labels),
        **{name: getattr(settings, name) for name in _KEPT},
    }
    return data, tuple(gate for gate in settings.gates if gate not in gates)


def _entry(name: str, kind: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: {**parameters, **({"kind": kind} if kind != name else {})}}


def _can_hold(gate: str, kinds: Mapping[str, str], repeats: int) -> bool:
    try:
        parse_gate(gate, metrics=kinds, repeats=repeats)
    except InvalidInputError:
        return False
    return True
