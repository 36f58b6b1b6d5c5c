"""Admission of runs: collects every problem of a request before anything is stored or called."""

from __future__ import annotations

import dataclasses
import json
from importlib.util import find_spec
from typing import TYPE_CHECKING

from assay.errors import InvalidInputError, Problem, SpecError, WrongStateError
from assay.gates.gates import parse_gate
from assay.metrics import METRICS, complete_parameters, count_problem
from assay.metrics.rows.order import check_metrics
from assay.model.cluster_key import cluster_problem
from assay.model.labels import VARIANT_LABEL, label_problems
from assay.model.limits import MAX_GROUP_CHARS, MAX_REPEATS, MAX_RUN_WEIGHT, MAX_TEAM_CHARS, MIN_RUN_WEIGHT
from assay.model.run_spec import TURN_SCORES
from assay.parsing.names import metric_name_problem, name_problem
from assay.specs.agents import check_agent
from assay.specs.approvals import check_approvals
from assay.specs.judging import check_cap, check_judges
from assay.specs.model import asks_judge, checks_of
from assay.wire.run import SETTINGS
from assay_orchestrator.agents.access import AgentAccess
from assay_orchestrator.agents.http_hosts import check_host
from assay_orchestrator.store.runs.lifecycle import ACTIVE_STATES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.run import CaseSelection, DatasetReading, MetricSpec, Run, RunSpec
    from assay_orchestrator.settings import Settings
    from assay_orchestrator.store.updates import RunUpdate

_MAX_DIGEST_CHARS = 64
_MAX_NAME_CHARS = 200
_MAX_RUN_ID_CHARS = 120
_MAX_KEPT_BYTES = 500_000
_MAX_SPEC_BYTES = 2 * 1024 * 1024  # with its summary a run must fit in one message


def check_settings(
    settings: RunSpec,
    limits: Settings,
    access: AgentAccess | None = None,
    unreadable: Sequence[Problem] = (),
) -> RunSpec:
    """Return the settings with every metric parameter filled in.

    Args:
        settings: The settings of the request.
        limits: The limits of this process.
        access: What the agents of the run's team may reach; None for what `limits` allow every team.
        unreadable: Problems of parts of the request that the settings lack.

    Raises:
        SpecError: Something is wrong; contains every problem.
    """
    problems = [*unreadable, *_check_names(settings)]
    if not 1 <= settings.repeats <= MAX_REPEATS:
        problems.append(Problem(f"must be 1 to {MAX_REPEATS}", "repeats"))
    problems += _check_weight(settings.weight)
    if settings.turns not in TURN_SCORES:
        problems.append(Problem(f"must be one of {', '.join(TURN_SCORES)}, not {settings.turns[:60]!r}", "turns"))
    problems += _check_bounds(settings)
    problems += _check_cluster(settings)
    problems += label_problems(settings.labels, settings.note)
    problems += _check_size("dataset", settings.dataset, "leave warnings out")
    problems += _check_size("selection", settings.selection, "select fewer cases by their ids, or use patterns")
    problems += check_agent(settings.agent)
    problems += check_approvals(settings)
    problems += check_host(settings.agent, access or AgentAccess.of_all(limits))
    if too_many := _check_counts(settings):
        raise SpecError([*problems, *too_many])  # scanning every entry is costly
    metrics = _complete_metrics(settings, problems)
    problems += check_judges(settings)
    if not limits.judge and asks_judge(settings, checks_of(settings)):
        problems.append(Problem("this orchestrator has no judge: its operator gives it one with --judge", "judges"))
    problems += _check_gates(settings)
    problems += _check_stopping(settings)
    if problems:
        raise SpecError(_without_consequences(problems, unreadable))
    complete = dataclasses.replace(settings, metrics=tuple(metrics))
    if (size := SETTINGS.to_wire(complete).ByteSize()) > _MAX_SPEC_BYTES:
        remedy = "shorten prompts, schemas and lists, or split the run"
        raise SpecError([Problem(f"has {size:,} bytes, more than {_MAX_SPEC_BYTES:,}: {remedy}", "spec")])
    return complete


def _without_consequences(problems: Sequence[Problem], unreadable: Sequence[Problem]) -> list[Problem]:
    """Return problems without those of a metric or agent's options that only follow from its unreadable text."""
    parts = tuple(problem.field.removesuffix("_json").removesuffix("parameters") for problem in unreadable)
    return [problem for problem in problems if problem in unreadable or not (parts and problem.field.startswith(parts))]


def check_source(source: Run, settings: RunSpec, dataset_id: str) -> None:
    """Raise unless the answers of a run can be scored with other settings.

    Args:
        source: The run.
        settings: Checked settings of the run that scores its answers.
        dataset_id: The dataset of the new run; empty if not known yet.

    Raises:
        WrongStateError: The source is active, so more answers may follow.
        SpecError: It has another dataset, or another number of repeats.
    """
    if source.state in ACTIVE_STATES:
        raise WrongStateError(
            f"run {source.run_id} is {source.state.value}: its answers can be scored when it has ended or is paused",
            reason="RUN_ACTIVE",
        )
    problems = []
    if source.spec.repeats != settings.repeats:
        problems.append(Problem(f"must be {source.spec.repeats}, as in run {source.run_id}", "repeats"))
    if dataset_id and dataset_id != source.dataset.dataset_id:
        problems.append(Problem(f"must be that of run {source.run_id}, whose answers are scored", "dataset_id"))
    if problems:
        raise SpecError(problems)


def _check_stopping(settings: RunSpec) -> list[Problem]:
    if settings.stopping is None:
        return []
    from assay.comparison.stopping_settings import stopping_problems  # imported here: few runs stop early

    problems = stopping_problems(settings, settings.labels.get(VARIANT_LABEL, ""))
    if find_spec("scipy") is None:
        problems.append(Problem("needs scipy, which this orchestrator lacks: install it, or run all cases", "stopping"))
    return problems


def _check_names(settings: RunSpec) -> list[Problem]:
    problems_by_name = {
        "name": name_problem(settings.name, _MAX_NAME_CHARS),
        "team": name_problem(settings.team, MAX_TEAM_CHARS, required=False),
        "group_id": name_problem(settings.group_id, MAX_GROUP_CHARS, required=False),
        "spec_name": name_problem(settings.spec_name, _MAX_NAME_CHARS, required=False),
        "source_run_id": name_problem(settings.source_run_id, _MAX_RUN_ID_CHARS, required=False),
    }
    if settings.source_run_id and settings.agent.adapter != "replay":
        problems_by_name["agent.adapter"] = "must be replay: the answers are those of another run"
    if (code := settings.code) is not None:
        for name, text in (("commit", code.commit), ("agent_sha256", code.agent_sha256)):
            problems_by_name[f"code.{name}"] = name_problem(text, _MAX_DIGEST_CHARS, required=False)
    return [Problem(problem, field) for field, problem in problems_by_name.items() if problem]


def _check_cluster(settings: RunSpec) -> list[Problem]:
    problem = cluster_problem(settings.cluster)
    return [Problem(problem, "cluster")] if problem else []


def _check_bounds(settings: RunSpec) -> list[Problem]:
    bounds = {"max_agent_errors": settings.max_agent_errors, "max_metric_errors": settings.max_metric_errors}
    return [
        Problem(f"must be a share from 0 to 1, not {bound!r}", name)
        for name, bound in bounds.items()
        if not 0 <= bound <= 1
    ]


def _check_gates(settings: RunSpec) -> list[Problem]:
    kinds = {metric.name: metric.kind for metric in settings.metrics}
    problems: list[Problem] = []
    for index, gate in enumerate(settings.gates):
        try:
            parse_gate(gate, metrics=kinds, repeats=settings.repeats)
        except InvalidInputError as problem:
            problems += [dataclasses.replace(refusal, field=f"gates[{index}]") for refusal in problem.problems]
    return problems


def _check_counts(settings: RunSpec) -> list[Problem]:
    entries_by_field = {"metrics": settings.metrics, "gates": settings.gates}
    return [
        Problem(problem, field)
        for field, entries in entries_by_field.items()
        if (problem := count_problem(field, len(entries)))
    ]


def _check_size(field: str, stored: DatasetReading | CaseSelection | None, remedy: str) -> list[Problem]:
    size = len(json.dumps(dataclasses.asdict(stored))) if stored is not None else 0
    if size <= _MAX_KEPT_BYTES:
        return []
    return [Problem(f"is {size:,} bytes as JSON, more than {_MAX_KEPT_BYTES:,}: {remedy}", field)]


def _complete_metrics(settings: RunSpec, problems: list[Problem]) -> list[MetricSpec]:
    if not settings.metrics:
        problems.append(Problem(f"name at least one metric of {', '.join(METRICS)}", "metrics"))
    names = [metric.name for metric in settings.metrics]
    completed = []
    paths: dict[str, MetricSpec] = {}
    for index, metric in enumerate(settings.metrics):
        where = f"metrics[{index}]"
        if problem := metric_name_problem(metric.name):
            problems.append(Problem(f"{problem}, not {metric.name[:60]!a}", f"{where}.name"))
        if names.index(metric.name) != index:
            problems.append(Problem(f"{metric.name} is listed twice", where))
        try:
            parameters = complete_parameters(metric.kind, metric.parameters, where=where)
        except InvalidInputError as problem:
            problems += problem.problems
        else:
            completed.append(dataclasses.replace(metric, parameters=parameters))
            paths[f"{where}.{metric.name}"] = completed[-1]
    known_names = {metric.name for metric in completed}
    problems += check_metrics(paths, others=[name for name in names if name not in known_names])
    return completed


def check_update(run: Run, update: RunUpdate) -> None:
    """Raise unless a run can have the new values.

    Raises:
        InvalidInputError: A value is invalid, or the run has no judge to cap; contains every problem.
    """
    problems = label_problems(update.labels or {}, update.note or "")
    if update.weight is not None:
        problems += _check_weight(update.weight)
    if update.spend_cap is not None and not run.spec.judges:
        problems.append(Problem(f"run {run.run_id} has no judge, so it spends nothing", "spend_cap_nano_usd"))
    elif update.spend_cap is not None:
        problems += check_cap(update.spend_cap.nano_usd, "spend_cap_nano_usd")
    if problems:
        raise InvalidInputError(problems)


def _check_weight(weight: float) -> list[Problem]:
    if MIN_RUN_WEIGHT <= weight <= MAX_RUN_WEIGHT:
        return []
    return [Problem(f"must be a number from {MIN_RUN_WEIGHT} to {MAX_RUN_WEIGHT}", "weight")]
