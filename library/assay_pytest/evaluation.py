"""An evaluation of a pytest session: run once, even if several pytest-xdist workers share the items."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.client.api.evaluate import evaluate
from assay.errors import AssayError, SpecError
from assay.local_stack.stack import environment_for
from assay.model.answers.agent_response import FAILED_STATUSES
from assay.parsing.names import folder_name
from assay.reports.document.report import report_of_file
from assay.reports.folder import ReportFolder
from assay.reports.writing import write_formats
from assay.specs.loader import find_spec_file, load_spec

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    import pytest

    from assay.reports.document.report import Report


@dataclass
class Case:
    """Rows of a case, one per repeat."""

    passed: int = 0
    failed: int = 0
    undecided: int = 0
    errors: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)

    def take(self, row: dict[str, Any]) -> None:
        """Add the next row of the case."""
        self.rows.append(row)
        if row["status"] in FAILED_STATUSES:
            self.errors += 1
        elif row["passed"] is None:
            self.undecided += 1
        else:
            self.passed += row["passed"]
            self.failed += not row["passed"]


class MarkedEvaluation:
    """The evaluation of a marker.

    Args:
        spec: Path of the spec.
        agent: A function that replaces the spec's agent, or None.
        server: Address of an orchestrator; None for the local stack.
        number: Number of the evaluation in the session; all workers collect in the same order.
        closing: Exit stack of the session.
    """

    def __init__(
        self, spec: Path, agent: Callable[..., Any] | None, server: str | None, number: int, closing: ExitStack
    ) -> None:
        self._spec, self._agent, self._server = find_spec_file(spec), agent, server
        overrides = ["agent={adapter: python, target: 'caller:agent'}"] if agent is not None else []
        checked = load_spec(
            self._spec,
            overrides=overrides,
            environ=environment_for(server),
            judge_environ=environment_for(server, "judge"),
        )
        if checked.dataset is None:
            raise SpecError(f"{spec} names no dataset")
        self.name = checked.settings.name
        self.gates = tuple(checked.settings.gates)
        self._reports = checked.reports
        self.case_ids = tuple(case.case_id for case in checked.open_dataset())
        self._closing, self._folder = closing, _shared_folder(self._spec, number, closing)
        self._report: Report | None = None
        self._problem: AssayError | None = None
        self._cases: dict[str, Case] = {}

    def report(self, config: pytest.Config) -> Report:
        """Return the report; the first call of any worker runs the evaluation.

        Raises:
            AssayError: The evaluation failed; later calls raise the same error.
        """
        if self._problem is not None:
            raise self._problem
        if self._report is None:
            try:
                output_dir = config.getoption("assay_output_dir")
                # An agent may change the current folder.
                self._make(Path(output_dir).absolute() if output_dir is not None else None)
                self._report = self._closing.enter_context(report_of_file(self._folder / "results.json"))
            except AssayError as error:
                self._problem = error
                raise
        return self._report

    def _make(self, output_dir: Path | None) -> None:
        """Run the evaluation, or wait for the report of the worker that runs it."""
        with (self._folder / ".making").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            failure = self._folder / ".failure"
            if failure.exists():
                raise AssayError(failure.read_text("utf-8"))
            if (self._folder / "results.json").exists():
                return
            try:
                evaluate(
                    self._spec,
                    self._agent,
                    server=self._server,
                    progress=False,
                    output_dir=self._folder,
                    reports=["json"],
                )
            except AssayError as error:
                failure.write_text(error.message, "utf-8")
                raise
        if output_dir is not None:
            with report_of_file(self._folder / "results.json") as report:
                place = output_dir / folder_name(self.name)
                folder = ReportFolder(place, report.run_id, option="--assay-output-dir")
                write_formats(report, self._reports, folder)
                folder.attempts.warn()

    def case(self, case_id: str, report: Report) -> Case | None:
        """Return the rows of a case; None if the run has none."""
        if not self._cases:
            for row in report.rows():
                self._cases.setdefault(row["case_id"], Case()).take(row)
        return self._cases.get(case_id)


def _shared_folder(spec: Path, number: int, closing: ExitStack) -> Path:
    """Yield the folder of an evaluation, shared by the workers of a session; the last worker removes it.

    Workers collect all items before any worker runs an item, so every worker holds its lock by then.
    """
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID") or secrets.token_hex(16)
    # The number distinguishes evaluations of the same spec with other agents or servers.
    name = f"{number}-{hashlib.sha256(str(spec.resolve()).encode()).hexdigest()[:16]}"
    folder = Path(tempfile.gettempdir()) / f"assay-pytest-{os.getuid()}-{session}-{name}"
    folder.mkdir(mode=0o700, exist_ok=True)
    users = closing.enter_context((folder / ".users").open("w"))
    fcntl.flock(users, fcntl.LOCK_SH)

    def leave() -> None:
        with contextlib.suppress(OSError):  # another worker still uses it
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)

    closing.callback(leave)
    return folder
