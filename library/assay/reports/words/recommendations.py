"""Recommendations of a run's summary with the commands that follow them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.model.run_summary import Remedy
from assay.reports.words.run_commands import rescore_command, resume_command

if TYPE_CHECKING:
    from pathlib import Path

    from assay.model.run import Run


def recommendations(run: Run, spec: Path | None = None, server: str | None = None) -> list[str]:
    """Return the recommendations of a run's summary, with commands; empty if there are none.

    Args:
        run: The run.
        spec: The file of its spec, for commands that need it; None where only the run is known.
        server: The server that stores the run, where the user named one.
    """
    sentences = []
    for advice in run.summary.recommendations if run.summary is not None else ():
        message = advice.message.removesuffix(".")
        if advice.remedy is Remedy.RETRY_ERRORS:
            command = resume_command(run, retry_errors=True, spec=spec, server=server)
            sentences.append(f"{message}; once that has passed: `{command}`.")
        elif advice.remedy is Remedy.RESCORE:
            command = rescore_command(run, spec=spec, server=server)
            sentences.append(f"{message}; correct the function, then score the stored answers with `{command}`.")
        else:
            sentences.append(advice.message)
    return sentences
