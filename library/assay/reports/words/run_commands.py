"""Commands in messages about a run, ready to paste."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from assay.text.unsafe_text import clean

if TYPE_CHECKING:
    from pathlib import Path

    from assay.model.run import Run

SPEC = "SPEC"
"""The placeholder for a spec whose path is unknown."""


def resume_command(run: Run, *, retry_errors: bool = False, spec: Path | None = None, server: str | None = None) -> str:
    """Return the command that continues a run.

    Args:
        run: The run.
        retry_errors: Whether its rows with errors are retried.
        spec: The spec that started it; None where only the run is known.
        server: The server, where the user named one.
    """
    awaits_verdicts = run.awaits_verdicts_alone and not retry_errors
    words = ["assay", "runs", "resume", run.run_id]
    words += ["--retry-errors"] if retry_errors else []
    words += ["--spec", str(spec or SPEC)] if run.spec.needs_host and not awaits_verdicts else []
    return shlex.join([*words, *_on(server)])


def case_command(run_id: str, case_id: str, *, server: str | None = None) -> str:
    """Return the command that shows the rows of a case, whose id is untrusted."""
    return shlex.join(["assay", "runs", "show", run_id, "--case", clean(case_id), *_on(server)])


def rescore_command(run: Run, *, spec: Path | None = None, server: str | None = None) -> str:
    """Return the command that scores the stored answers of a run with the metrics of its spec."""
    return shlex.join(["assay", "rescore", run.run_id, "--spec", str(spec or SPEC), *_on(server)])


def _on(server: str | None) -> list[str]:
    return ["--server", server] if server else []
