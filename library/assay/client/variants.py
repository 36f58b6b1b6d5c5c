"""Running the variants of a spec: a group of runs over the same dataset."""

from __future__ import annotations

import asyncio
import dataclasses
import secrets
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from assay.client.input_checks import InputChecks, read_together
from assay.client.progress.group_progress import GroupProgress
from assay.client.run_driver import drive_run, guard_stack, start_runs
from assay.client.service_start import showing_start
from assay.comparison.stopping_settings import planned_stopping
from assay.errors import AssayError, InvalidInputError, NotFoundError, Problem, SpecError
from assay.filters.conditions import quoted
from assay.model.labels import VARIANT_LABEL
from assay.specs.variants import MAX_VARIANTS

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from assay.agent_host.user_code import UserCode
    from assay.client.client import Client
    from assay.client.encoded_cases import EncodedCases
    from assay.client.input_checks import TakeCase
    from assay.comparison.model import ComparisonSettings
    from assay.datasets import Dataset, DatasetInfo
    from assay.local_stack.stack import LocalStack
    from assay.model.run import Run
    from assay.model.stopping import StoppingSettings
    from assay.specs.model import Spec


def new_group_id() -> str:
    """Return an id for a new group of runs."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def check_variants(specs: Sequence[Spec], dataset: Dataset, take: TakeCase | None = None) -> DatasetInfo:
    """Read and check the whole dataset for all variants, before anything is started or called; return its description.

    Args:
        specs: Specs, one per variant.
        dataset: The cases.
        take: Receives each case of the same pass, even if a later case is wrong.

    Raises:
        InvalidInputError: The dataset is wrong or does not fit a variant; lists every problem with its variants.
    """
    checks = [InputChecks(spec) for spec in specs]
    read = read_together(dataset, [*(receiver for check in checks for receiver in check.takes), take])
    variants_of: dict[Problem, list[str]] = {}
    infos: list[DatasetInfo] = []
    for spec, check in zip(specs, checks, strict=True):
        try:
            infos.append(check.finish(read))
        except InvalidInputError as error:
            for problem in error.problems:
                variants_of.setdefault(problem, []).append(name_of(spec))
    if variants_of:
        raise InvalidInputError(problems_of_variants(variants_of))
    warnings = tuple(dict.fromkeys(warning for info in infos for warning in info.warnings))
    return dataclasses.replace(infos[0], warnings=warnings)


def problems_of_variants(by_problem: Mapping[Problem, Sequence[str]]) -> list[Problem]:
    """Return the problems with the names of their variants.

    Args:
        by_problem: Names of the variants by problem.
    """
    return [
        dataclasses.replace(problem, field=": ".join(filter(None, (", ".join(names), problem.field))))
        for problem, names in by_problem.items()
    ]


def name_of(spec: Spec) -> str:
    """Return the name of a spec's variant."""
    return spec.settings.labels[VARIANT_LABEL]


async def start_variants(
    client: Client,
    specs: Sequence[Spec],
    cases: EncodedCases,
    info: DatasetInfo,
    group_id: str,
    stopping: StoppingSettings | None = None,
) -> list[Run]:
    """Upload the dataset once and create a run per variant in a new group; return the runs in order.

    Args:
        client: Client of the orchestrator.
        specs: Specs, one per variant.
        cases: The checked cases.
        info: Description of the dataset.
        group_id: Id of the new group.
        stopping: Stopping rule from `plan_stopping`; None to run all cases.
    """
    grouped = [
        dataclasses.replace(spec, settings=dataclasses.replace(spec.settings, group_id=group_id, stopping=stopping))
        for spec in specs
    ]
    return await start_runs(client, grouped, cases, info)


def plan_stopping(
    rule: str, specs: Sequence[Spec], info: DatasetInfo, settings: ComparisonSettings
) -> StoppingSettings:
    """Return the settings of early stopping for the runs of variants.

    Args:
        rule: "always-valid" or "five-looks".
        specs: Specs, one per variant, the baseline first.
        info: Description of the dataset.
        settings: Settings of the comparison.

    Raises:
        InvalidInputError: The runs cannot stop early; lists every problem.
    """
    return planned_stopping(
        rule, [spec.settings for spec in specs], list(map(name_of, specs)), info.case_count, settings
    )


async def resume_variants(client: Client, specs: Sequence[Spec], group_id: str, stop_early: str = "") -> list[Run]:
    """Resume the unfinished runs of a group; return all runs in the order of their variants.

    Args:
        client: Client of the orchestrator.
        specs: Specs, one per variant.
        group_id: Id of the group.
        stop_early: Requested stopping rule; empty for the group's.

    Raises:
        NotFoundError: The group has no runs.
        SpecError: The group has other variants or another stopping rule.
    """
    stored = await client.list_runs(2 * MAX_VARIANTS, where=f"group:{quoted(group_id)}")
    runs = {run.spec.labels.get(VARIANT_LABEL, ""): run for run in stored if run.spec.group_id == group_id}
    if not runs:
        raise NotFoundError(f"no run belongs to the group {group_id}", reason="RUN_NOT_FOUND")
    names = [name_of(spec) for spec in specs]
    if set(runs) != set(names):
        raise SpecError(
            f"the group {group_id} has the variants {', '.join(sorted(runs))}, and {', '.join(names)} are given: "
            "resume it with the variants that started it"
        )
    problems = [
        Problem(
            f"called the agent {run.spec.agent.target!r}, and {spec.settings.agent.target!r} is given: resume the "
            "group with the variants that started it",
            name,
        )
        for name, spec in zip(names, specs, strict=True)
        if (run := runs[name]).spec.agent.target != spec.settings.agent.target
    ]
    problems += [
        Problem("has other Python metrics than these: resume the group with the spec that started it", name)
        for name, spec in zip(names, specs, strict=True)
        if runs[name].spec.function_targets != spec.settings.function_targets
    ]
    problems += _rule_problems(runs[names[0]], group_id, stop_early)
    if problems:
        raise SpecError(problems)
    return [runs[name] if runs[name].finished else await client.resume_run(runs[name].run_id) for name in names]


def _rule_problems(run: Run, group_id: str, stop_early: str) -> list[Problem]:
    planned = run.spec.stopping.rule if run.spec.stopping is not None else ""
    if stop_early in ("", planned):
        return []
    how = f"with --stop-early {planned}" if planned else "without --stop-early"
    message = f"cannot be added or changed later: the group {group_id} was started {how}. Leave it out, or start anew"
    return [Problem(message, "--stop-early")]


async def drive_variants(
    client: Client,
    runs: Sequence[Run],
    codes: Sequence[UserCode],
    *,
    stack: LocalStack | None = None,
    hidden: bool = False,
) -> list[Run]:
    """Drive all runs concurrently: host their agents if they are the user's code, and follow the runs to their end.

    Args:
        client: Client of the orchestrator.
        runs: Runs, one per variant.
        codes: The user's agents and metrics, per variant.
        stack: The local stack, watched for services that exit.
        hidden: Whether to hide the progress.

    Returns:
        The finished runs in the same order.

    Raises:
        AssayError: A run did not finish; names every such run with its reason.
    """
    names = {run.spec.labels.get(VARIANT_LABEL, run.run_id): run for run in runs}
    with GroupProgress(names, hidden=hidden) as progress:

        async def drive(run: Run, code: UserCode) -> Run:
            if run.finished:
                return await client.get_run(run.run_id, partial=False)
            return await drive_run(client, run, code, progress.taker(run.run_id), left_to=stack)

        async with showing_start(stack, progress):
            ended = await _all([drive(run, code) for run, code in zip(runs, codes, strict=True)], stack)
    unfinished = [
        f"run {run.run_id} ({name}) {run.state.value}: {run.state_message or 'no summary'}"
        for name, run in zip(names, ended, strict=True)
        if not run.finished or run.summary is None
    ]
    if unfinished:
        raise AssayError("\n".join(unfinished), reason="RUN_UNFINISHED")
    return ended


async def _all(driving: Sequence[Coroutine[Any, Any, Run]], stack: LocalStack | None) -> list[Run]:
    """Return the results of all coroutines; if one or the local stack fails, cancel the others."""
    runs = [asyncio.ensure_future(coroutine) for coroutine in driving]
    guards = [asyncio.ensure_future(guard_stack(stack))] if stack is not None else []
    waiting: set[asyncio.Future[Any]] = {*runs, *guards}
    try:
        while not all(run.done() for run in runs):
            finished, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in finished:
                task.result()
        return [run.result() for run in runs]
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
