"""Comparison of runs from files, an orchestrator, or memory, with the same arithmetic."""

from __future__ import annotations

import contextlib
import tempfile
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from assay.client.api.evaluate import connected
from assay.client.api.evaluation import Evaluation
from assay.client.comparison.calls import compare_on_server
from assay.client.comparison.noise_floors import find_floor
from assay.client.run_references import find_run_id
from assay.comparison.compare import compare_runs, flipped_ids, with_floors, with_questions
from assay.comparison.facts import facts_of
from assay.errors import SetupError, WrongStateError
from assay.local_stack.home import Home
from assay.local_stack.install_hint import install_hint
from assay.model.baseline import MAX_NAME_CHARS, SPEC_BASELINE
from assay.reports.comparison.document.compared_run import compared_run
from assay.reports.comparison.document.comparison_report import ComparisonReport
from assay.reports.document.document import head_document
from assay.reports.document.prepared_rows import report_of_run
from assay.reports.document.report import Report, report_of_file

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from contextlib import AsyncExitStack

    from assay.client.api.evaluation import RunSource
    from assay.client.client import Client
    from assay.comparison.decision import DecisionRules
    from assay.comparison.model import Comparison, ComparisonSettings
    from assay.model.run import RowResult, Run


def is_file(source: RunSource) -> bool:
    """Return whether a source is a file: it ends in .json, or a file has that name."""
    return not isinstance(source, Evaluation) and (Path(source).suffix == ".json" or Path(source).is_file())


def with_baseline_first(sources: Sequence[RunSource], baseline: RunSource | None) -> list[RunSource]:
    """Return the compared runs, the baseline first.

    Args:
        sources: The runs.
        baseline: The run to compare the others with, among them or not; empty for the first.
    """
    if baseline is None or baseline == "":
        return list(sources)
    is_path = not isinstance(baseline, Evaluation)
    return [
        baseline,
        *(source for source in sources if source is not baseline and not (is_path and source == baseline)),
    ]


@asynccontextmanager
async def reports_of(sources: Sequence[RunSource], server: str | None) -> AsyncIterator[list[Report]]:
    """Yield the report of each source; stored runs come from a server or the local stack.

    If all sources are files or results in memory, nothing is started.

    Args:
        sources: The runs to compare.
        server: Address of an orchestrator; None for the local stack.

    Raises:
        InvalidInputError: A file is not the report of a run.
        NotFoundError: A run does not exist.
        WrongStateError: A run has no rows yet.
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
        sources: The runs to compare.
        client: Client of the orchestrator that stores the runs; None if all are files or results in memory.
        spec_baseline: Name of the baseline that "baseline" means; empty for the one of the other sources' spec.

    Raises:
        InvalidInputError: A file is not the report of a run.
        NotFoundError: A run does not exist.
        WrongStateError: A run has no rows yet.
    """
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="assay-compare-")))
        reports: dict[int, Report] = {}
        # Others first: their spec determines the meaning of "baseline".
        for index, source in sorted(enumerate(sources), key=lambda numbered: numbered[1] == SPEC_BASELINE):
            if isinstance(source, Evaluation):
                reports[index] = await _in_memory(source, folder, stack)
            elif client is None or is_file(source):
                reports[index] = stack.enter_context(report_of_file(Path(source)))
            else:
                name = spec_baseline or next((_spec_baseline(report) for report in reports.values()), "")
                reports[index] = await _stored(client, str(source), folder, stack, name)
        yield [reports[index] for index in range(len(sources))]


def _spec_baseline(report: Report) -> str:
    run = report.head["run"]
    return str(run.get("spec_name") or run.get("name") or "")[:MAX_NAME_CHARS].strip()


async def _in_memory(source: Evaluation, folder: Path, stack: AsyncExitStack) -> Report:
    async def rows() -> AsyncIterator[RowResult]:
        for row in source.rows:
            yield row

    return await _report(source.run, rows(), folder, stack)


async def _stored(client: Client, reference: str, folder: Path, stack: AsyncExitStack, spec_baseline: str) -> Report:
    run = await _run(client, reference, spec_baseline)
    return await _report(run, client.list_rows(run.run_id), folder, stack)


async def _run(client: Client, reference: str, spec_baseline: str) -> Run:
    run = await client.get_run(await find_run_id(client, reference, baseline_name=spec_baseline))
    if run.summary is None:
        raise WrongStateError(f"run {run.run_id} has no rows yet: nothing to compare")
    return run


async def _report(run: Run, rows: AsyncIterator[RowResult], folder: Path, stack: AsyncExitStack) -> Report:
    return await stack.enter_async_context(report_of_run(run, None, rows, folder))


async def compare_stored(
    references: Sequence[str], server: str | None, settings: ComparisonSettings, rules: DecisionRules
) -> ComparisonReport:
    """Let the orchestrator compare stored runs, and return the report. No row leaves the orchestrator.

    Args:
        references: Ids of runs, prefixes of them, names of baselines, or "latest".
        server: Address of an orchestrator; None for the local stack.
        settings: Settings of the comparison.
        rules: What fails the comparison.

    Raises:
        InvalidInputError: The runs cannot be compared, or a setting is wrong.
        NotFoundError: A run does not exist.
        WrongStateError: A run has no rows yet.
    """
    async with connected(server) as (client, _):
        runs = await _runs(client, references)
        comparison, decision = await compare_on_server(client, [run.run_id for run in runs], settings, rules)
        heads = [head_document(run, None) for run in runs]
        comparison = with_floors(comparison, find_floor(Home.find(), heads[0]))
        return ComparisonReport(comparison, decision, [facts_of(head) for head in heads], heads, server=server or "")


async def _runs(client: Client, references: Sequence[str]) -> list[Run]:
    """Return the runs that references mean; "baseline" is the baseline of the other runs' spec."""
    runs: dict[int, Run] = {}
    for index, reference in sorted(enumerate(references), key=lambda numbered: numbered[1] == SPEC_BASELINE):
        name = next((run.spec.baseline_name for run in runs.values()), "")
        runs[index] = await _run(client, reference, name)
    return [runs[index] for index in range(len(references))]


def compare_reports(reports: Sequence[Report], settings: ComparisonSettings) -> Comparison:
    """Compare runs by their reports; the first is the baseline, and its noise floor is included.

    Raises:
        InvalidInputError: The runs cannot be compared, or a setting is wrong.
        SetupError: numpy or scipy is not installed.
    """
    check_packages()
    comparison = compare_runs([compared_run(report, settings) for report in reports], settings)
    comparison = with_questions(comparison, _questions(reports[0], flipped_ids(comparison)))
    return with_floors(comparison, find_floor(Home.find(), reports[0].head))


def _questions(report: Report, case_ids: set[str]) -> dict[str, str]:
    """Return the questions of some cases of a run."""
    questions: dict[str, str] = {}
    for row in report.rows():
        if len(questions) == len(case_ids):
            break
        if row["case_id"] in case_ids:
            questions[row["case_id"]] = row["question"] or ""
    return questions


def check_packages() -> None:
    """Check that the packages for significance tests are installed, before anything runs.

    Raises:
        SetupError: A package is missing; the message says how to install it.
    """
    missing = [name for name in ("numpy", "scipy") if find_spec(name) is None]
    if missing:
        needed = " and ".join(missing)
        raise SetupError(
            f"comparing runs needs {needed}, not installed here: {install_hint('compare')}", reason="NOT_INSTALLED"
        )
