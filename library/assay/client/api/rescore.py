"""The Python API `assay.rescore`."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.agent_host.user_code import open_user_code
from assay.client.api.arguments import Arguments
from assay.client.api.evaluate import Following, connected, named_reports
from assay.client.api.loop_thread import run_to_end
from assay.client.rescoring import rescoring_spec
from assay.client.run_references import find_run_id
from assay.client.service_start import start_services_of, wait_for_downloads
from assay.errors import InvalidInputError, Problem
from assay.reports.atomic import check_folder
from assay.reports.writing import check_formats

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from assay.client.api.evaluation import Evaluation
    from assay.model.run import RowResult, Run, StateChanged


def rescore(
    run: str = "latest",
    spec: str | Path | Mapping[str, Any] | None = None,
    *,
    metrics: Sequence[str] | None = None,
    server: str | None = None,
    on_event: Callable[[Run | StateChanged | RowResult], None] | None = None,
    progress: bool | None = None,
    output_dir: str | Path | None = None,
    reports: Sequence[str] | None = None,
) -> Evaluation:
    """Score the stored answers of a run again, as a new run; the agent is not called.

    Answers keep their latency and usage, and agent errors stay errors.

    Args:
        run: Run with the answers: an id, a unique prefix of one, a baseline's name, or "latest".
        spec: Spec with metrics, gates and judge, as a file or a mapping; None for the run's settings.
        metrics: Only these metrics, with parameters from the spec or the run.
        server: Address of an orchestrator; None for the local stack.
        on_event: Called with every snapshot and event.
        progress: Whether to show progress on stderr; None shows it unless `on_event` is given.
        output_dir: Folder for the reports; None for no reports.
        reports: Formats to write, e.g. ["json"]; None for the spec's.

    Raises:
        InvalidInputError: An argument or the spec is wrong; lists every problem.
        NotFoundError: The run does not exist.
        WrongStateError: The run is still active.
        AssayError: The new run did not finish; the message gives its state.

    Example:
        >>> rescore("latest", metrics=["exact_match", "rouge"]).summary.pass_rate  # doctest: +SKIP
    """
    arguments = Arguments(
        {} if spec is None else spec,
        server=server,
        on_event=on_event,
        progress=progress,
        output_dir=output_dir,
        reports=reports,
    )
    arguments.check()
    if isinstance(metrics, str):
        raise InvalidInputError([Problem(f"must be a list of names, such as [{metrics!r}]", "metrics")])
    file = Path(spec) if isinstance(spec, str | Path) else spec
    folder = Path(output_dir).absolute() if output_dir is not None else None
    if folder is not None:
        check_folder(folder, option="output_dir")

    async def main() -> Evaluation:
        async with connected(server) as (client, stack):
            source = await client.get_run(await find_run_id(client, run), partial=False)
            rescoring, _ = rescoring_spec(source, file, metrics=metrics, judge_environ=None if server else os.environ)
            if reports is not None:
                rescoring = dataclasses.replace(rescoring, reports=named_reports(reports))
            if folder is not None:
                check_formats(rescoring.reports)
            code = open_user_code(rescoring.settings, rescoring.base_dir)
            if stack is not None:
                start_services_of(stack, rescoring)
                await wait_for_downloads(stack)
            started = await client.create_run(rescoring.settings, source.dataset.dataset_id)
            return await Following(rescoring, code, server, folder, on_event, arguments.shows_progress).to_end(
                client, stack, started
            )

    return run_to_end(main())
