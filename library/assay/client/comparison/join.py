"""Comparing runs: files, stored runs and results in memory, by the same arithmetic."""

from __future__ import annotations

import contextlib
import tempfile
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.client.comparison.noise_floors import find_floor
from assay.client.evaluate import connected
from assay.client.evaluation import Evaluation
from assay.client.run_references import find_run_id
from assay.comparison.compare import compare_runs, flipped_ids, with_floors, with_questions
from assay.errors import SetupError, WrongStateError
from assay.local_stack.home import Home
from assay.local_stack.install_hint import install_hint
from assay.model.baseline import MAX_NAME_CHARS, SPEC_BASELINE
from assay.reports.comparison.document.compared_run import compared_run
from assay.reports.document.document import head_document
from assay.reports.document.report import Report, report_of_file, report_of_run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from contextlib import AsyncExitStack

    from assay.client.client import Client
    from assay.comparison.model import Comparison, ComparisonSettings
    from assay.model.run import CaseResult, Run

RunSource = str | Path | Evaluation
"""A results.json, a stored run by its id, a beginning of it or "latest", or what `assay.evaluate` returned."""


def is_file(source: RunSource) -> bool:
    """Whether a source is a file: it ends in .json, or there is one of that name."""
    return not isinstance(source, Evaluation) and (Path(source).suffix == ".json" or Path(source).is_file())


def with_baseline_first(sources: Sequence[RunSource], baseline: RunSource | None) -> list[RunSource]:
    """Return what is compared, the baseline first.

    Args:
        sources: The runs.
        baseline: The run that the others are compared with, one of them or another; nothing for the first of them.
    """
    if baseline is None or baseline == "":
        return list(sources)
    is_path = not isinstance(baseline, Evaluation)
    return [baseline, *(one for one in sources if one is not baseline and not (is_path and one == baseline))]


@asynccontextmanager
async def reports_of(sources: Sequence[RunSource], server: str | None) -> AsyncIterator[list[Report]]:
    """Yield the report of each source; stored runs are read from a server, or from the local stack.

    Nothing is started where all sources are files or results in memory.

    Args:
        sources: What is compared.
        server: An orchestrator's address; None for the local stack.

    Raises:
        InvalidInputError: A file is no report of a run.
        NotFoundError: There is no such run.
        WrongStateError: A run has no row yet.
    """
    needs_client = not all(isinstance(source, Evaluation) or is_file(source) for source in sources)
    async with contextlib.AsyncExitStack() as stack:
        client = (await stack.enter_async_context(connected(server)))[0] if needs_client else None
        yield await stack.enter_async_context(read_reports(sources, client))


@asynccontextmanager
async def read_reports(
    sources: Sequence[RunSource], client: Client | None, spec_baseline: str = ""
) -> AsyncIterator[list[Report]]:
    """Yield the report of each source.

    Args:
        sources: What is compared.
        client: To the orchestrator that stores the runs; None where all are files or results in memory.
        spec_baseline: The name of the baseline that "baseline" means; empty for that of the other sources' spec.

    Raises:
        InvalidInputError: A file is no report of a run.
        NotFoundError: There is no such run.
        WrongStateError: A run has no row yet.
    """
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="assay-compare-")))
        found: dict[int, Report] = {}
        # The others first: they say whose baseline "baseline" is.
        for index, source in sorted(enumerate(sources), key=lambda each: each[1] == SPEC_BASELINE):
            if isinstance(source, Evaluation):
                found[index] = await _in_memory(source, folder, stack)
            elif client is None or is_file(source):
                found[index] = stack.enter_context(report_of_file(Path(source)))
            else:
                name = spec_baseline or next((_spec_baseline(report) for report in found.values()), "")
                found[index] = await _stored(client, str(source), folder, stack, name)
        yield [found[index] for index in range(len(sources))]


def _spec_baseline(report: Report) -> str:
    run = report.head["run"]
    return str(run.get("spec_name") or run.get("name") or "")[:MAX_NAME_CHARS].strip()


async def _in_memory(source: Evaluation, folder: Path, stack: AsyncExitStack) -> Report:
    async def rows() -> AsyncIterator[CaseResult]:
        for row in source.rows:
            yield row

    return await _report(source.run, rows(), folder, stack)


async def _stored(client: Client, reference: str, folder: Path, stack: AsyncExitStack, spec_baseline: str) -> Report:
    run = await client.get_run(await find_run_id(client, reference, baseline_name=spec_baseline))
    if run.summary is None:
        raise WrongStateError(f"run {run.run_id} has no row yet: there is nothing to compare")
    return await _report(run, client.list_results(run.run_id), folder, stack)


async def _report(run: Run, rows: AsyncIterator[CaseResult], folder: Path, stack: AsyncExitStack) -> Report:
    return await stack.enter_async_context(report_of_run(run, None, rows, folder, lambda row: None))


async def compare_stored(
    references: Sequence[str], server: str | None, settings: ComparisonSettings
) -> tuple[Comparison, list[dict[str, Any]]] | None:
    """Return the comparison of stored runs as the orchestrator computes it, and the head of each run's document.

    No row leaves the orchestrator. None where it is of an older version, which compares nothing.

    Args:
        references: Ids of runs, beginnings of them, names of baselines, or "latest".
        server: An orchestrator's address; None for the local stack.
        settings: How they are compared.

    Raises:
        InvalidInputError: The runs cannot be compared, or a setting is wrong.
        NotFoundError: There is no such run.
        WrongStateError: A run has no row yet.
    """
    async with connected(server) as (client, _):
        runs = await _runs(client, references)
        for run in runs:
            if run.summary is None:
                raise WrongStateError(f"run {run.run_id} has no row yet: there is nothing to compare")
        try:
            comparison = await client.compare_runs([run.run_id for run in runs], settings)
        except SetupError as error:
            if error.reason != "SERVER_TOO_OLD":
                raise
            return None
        heads = [head_document(run, None) for run in runs]
        return with_floors(comparison, find_floor(Home.find(), heads[0])), heads


async def _runs(client: Client, references: Sequence[str]) -> list[Run]:
    """Return the runs that texts mean: "baseline" is that of the other runs' spec."""
    found: dict[int, Run] = {}
    for index, reference in sorted(enumerate(references), key=lambda each: each[1] == SPEC_BASELINE):
        name = next((run.settings.baseline_name for run in found.values()), "")
        found[index] = await client.get_run(await find_run_id(client, reference, baseline_name=name))
    return [found[index] for index in range(len(references))]


def compare_reports(reports: Sequence[Report], settings: ComparisonSettings) -> Comparison:
    """Return the comparison of runs by their reports; the first is the baseline, whose noise floor is shown.

    Raises:
        InvalidInputError: The runs cannot be compared, or a setting is wrong.
        SetupError: numpy or scipy is not installed.
    """
    check_packages()
    comparison = compare_runs([compared_run(report, settings) for report in reports], settings)
    comparison = with_questions(comparison, _questions(reports[0], flipped_ids(comparison)))
    return with_floors(comparison, find_floor(Home.find(), reports[0].head))


def _questions(report: Report, case_ids: set[str]) -> dict[str, str]:
    """Return what some cases of a run ask."""
    found: dict[str, str] = {}
    for row in report.rows():
        if len(found) == len(case_ids):
            break
        if row["case_id"] in case_ids:
            found[row["case_id"]] = row["question"] or ""
    return found


def check_packages() -> None:
    """Raise if what tests of significance need is missing; before anything is run.

    Raises:
        SetupError: It is; says how to install it.
    """
    from importlib.util import find_spec

    missing = [name for name in ("numpy", "scipy") if find_spec(name) is None]
    if missing:
        needed = " and ".join(missing)
        raise SetupError(
            f"comparing runs needs {needed}, not installed here: {install_hint('compare')}", reason="NOT_INSTALLED"
        )
