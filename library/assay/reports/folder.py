"""The folder of a run's reports."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from assay.errors import InvalidInputError
from assay.parsing.names import run_id_problem
from assay.reports.atomic import atomic_binary_writer, atomic_writer, remove_leftovers
from assay.reports.failures import Attempts

if TYPE_CHECKING:
    from collections.abc import Iterator

_OWNER = ".assay-run"
_HEAD_BYTES = 1 << 20
_RUN_ID = re.compile(r'"run_id": ("(?:[^"\\]|\\.)*")')


class ReportFolder:
    """Writes the files of a report: each file appears complete, and none replaces a file of another run.

    If the folder already has the report of another run, the file names include this run's id.

    Args:
        path: The folder; it is made.
        run_id: The run.
        option: The option that names another folder, for messages.

    Raises:
        InvalidInputError: The id has not the form of ids.
        SetupError: The folder cannot be written.
    """

    def __init__(self, path: Path, run_id: str, *, option: str = "--output-dir") -> None:
        if problem := run_id_problem(run_id):
            raise InvalidInputError(problem)
        self.path = path
        self.shown = path
        """The folder as the user named it, for display."""
        self.written: list[Path] = []
        self.notes: list[str] = []
        """Warnings about the written files, as sentences."""
        self.attempts = Attempts()
        """The attempts to write, with their failures."""
        self._option = option
        self._run_id = run_id
        owner = _owner(path)
        self.other_run = owner if owner not in (None, run_id) else None
        """Another run whose report is in this folder already; None without one."""
        remove_leftovers(path)
        if owner is None:
            with atomic_writer(path / _OWNER, option=option) as file:
                file.write(run_id + "\n")

    def shown_path(self, path: Path) -> Path:
        """Return the path of a file in the folder for display."""
        return self.shown / path.relative_to(self.path)

    @contextmanager
    def text(self, name: str) -> Iterator[IO[str]]:
        """Open a text file by its name in the folder, e.g. "results.json", in UTF-8."""
        path = self.place(name)
        with atomic_writer(path, option=self._option) as file:
            yield file
        self.written.append(path)

    @contextmanager
    def binary(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file of bytes by its name in the folder, e.g. "charts/dashboard.png"."""
        path = self.place(name)
        remove_leftovers(path.parent)
        with atomic_binary_writer(path, option=self._option) as file:
            yield file
        self.written.append(path)

    def place(self, name: str) -> Path:
        """Return the path of a file of that name."""
        if self.other_run is None:
            return self.path / name
        first, *rest = Path(name).parts
        own = Path(first) if rest else Path(first).with_suffix("")
        renamed = f"{own.name}-{self._run_id}" + ("" if rest else Path(first).suffix)
        return self.path.joinpath(renamed, *rest)


def _owner(folder: Path) -> str | None:
    """Return the run whose report is in a folder; None if there is none."""
    try:
        return (folder / _OWNER).read_text("utf-8").strip()
    except (OSError, ValueError):
        pass
    try:
        with (folder / "results.json").open(encoding="utf-8", errors="replace") as file:
            match = _RUN_ID.search(file.read(_HEAD_BYTES))
    except OSError:
        return None
    return str(json.loads(match[1])) if match else "another run"
