"""The Python API: `assay.rescore`."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.agent_host.user_code import open_user_code
from assay.client.arguments import Arguments
from assay.client.evaluate import Following, connected, named_reports
from assay.client.loop_thread import run_to_end
from assay.client.rescoring import rescoring_spec
from assay.client.run_references import find_run_id
from assay.client.service_start import start_services_of, wait_for_downloads
from assay.errors import InvalidInputError, Problem
from assay.reports.atomic import check_folder
from assay.reports.writing import check_formats

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from assay.client.evaluation import Evaluation
    from assay.model.run import CaseResult, Run, StateChange


def rescore(
    run: str = "latest",
    spec: str | Path | Mapping[str, Any] | None = None,
    *,
    metrics: Sequence[str] | None = None,
    server: str | None = None,
    on_event: Callable[[Run | StateChange | CaseResult], None] | None = None,
    progress: bool | None = None,
    output_dir: str | Path | None = None,
    reports: Sequence[str] | None = None,
) -> Evaluation:
    """Score the stored answers of a run again, as a new run; the agent is not asked.

    Answers keep their latency and usage, and errors of the agent stay errors.

    Args:
        run: The run whose answers are scored: an id, a unique beginning of one, a baseline's name, or "latest".
        spec: What names metrics, gates and judge, a file or a mapping in the shape of one; None for those of the run.
        metrics: Names of the only metrics to compute, with the parameters that the spec or the run has for them.
        server: An orchestrator's address; None for the local stack.
        on_event: Called with every snapshot and event as it comes.
        progress: Whether progress goes to stderr; None for yes, unless there is `on_event`.
        output_dir: A folder for the reports; None for no report.
        reports: Formats to write there, e.g. ["json"]; None for those that the spec lists.

    Raises:
        InvalidInputError: An argument or the spec is wrong; holds every problem.
        NotFoundError: There is no such run.
        WrongStateError: The run is still active.
        AssayError: The new run did not finish; the message says how it stands.

    Example:
        >>> rescore("latest", metrics=["exact_match", "rouge"]).summary.pass_rate  # doctest: +SKIP
    """
    given = Arguments(
        {} if spec is None else spec,
        server=server,
        on_event=on_event,
        progress=progress,
        output_dir=output_dir,
        reports=reports,
    )
    given.check()
    if isinstance(metrics, str):
        raise InvalidInputError([Problem(f"must be a list of names, such as [{metrics!r}]", "metrics")])
    file = Path(spec) if isinstance(spec, str | Path) else spec
    folder = Path(output_dir).absolute() if output_dir is not None else None
    if folder is not None:
        check_folder(folder, option="output_dir")

    async def main() -> Evaluation:
        async with connected(server) as (client, stack):
            source = await client.get_run(await find_run_id(client, run), partial=False)
            found, _ = rescoring_spec(source, file, metrics=metrics, judge_environ=None if server else os.environ)
            if reports is not None:
                found = dataclasses.replace(found, reports=named_reports(reports))
            if folder is not None:
                check_formats(found.reports)
            code = open_user_code(found.settings, found.base_dir)
            if stack is not None:
                start_services_of(stack, found)
                await wait_for_downloads(stack)
            started = await client.create_run(found.settings, source.dataset.dataset_id)
            return await Following(found, code, server, folder, on_event, given.shows_progress).to_end(
                client, stack, started
            )

    return run_to_end(main())
