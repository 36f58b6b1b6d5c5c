"""`--record`: the answers of a run as a dataset for the replay adapter."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from assay.datasets.cases.case_record import case_record
from assay.datasets.records import MAX_RAW_CHARS
from assay.errors import InvalidInputError, Problem
from assay.reports.atomic import check_folder
from assay.reports.words.metric_text import count_text
from assay.text.unsafe_text import clean, json_text

if TYPE_CHECKING:
    from pathlib import Path
    from typing import IO

    from assay.model.answers.agent_response import AgentResponse
    from assay.model.case import Case
    from assay.model.run import RowResult, Run

    _Answers = tuple[AgentResponse, ...]

_OPTION = "--record"
_ENDING = ".jsonl"


def check_record_file(path: Path, *, dataset: Path | None, verdicts: Path | None) -> None:
    """Check that answers can be recorded in a file.

    Args:
        path: The file for the answers.
        dataset: Dataset of the run.
        verdicts: The file of --record-verdicts, if given.

    Raises:
        InvalidInputError: The name does not end in .jsonl, or the file is the dataset or the verdict file.
        SetupError: The file cannot be written.
    """
    if path.suffix.lower() != _ENDING:
        raise InvalidInputError([Problem(f"writes JSON Lines: name a file that ends in {_ENDING}", _OPTION)])
    for used, role in ((dataset, "the dataset"), (verdicts, "the file of --record-verdicts")):
        if used is not None and path.resolve() == used.resolve():
            raise InvalidInputError([Problem(f"would replace {role}: choose another name", _OPTION)])
    check_folder(path.parent, option=_OPTION)


def _answers(row: RowResult) -> _Answers:
    """Return the answers of a row, one per turn; empty if an answer of the agent is missing."""
    if not row.turns:
        return (row.response,) if row.response is not None else ()
    if any(turn.left_out for turn in row.turns):
        return ()  # the row was too large for a message
    return tuple(turn.response for turn in row.turns if turn.response is not None)


class AnswerRecording:
    """Records the answers of a run with their cases, one case per line.

    Agent errors are recorded as errors, and conversations with the answers to all turns. A case is left out if a repeat
    has no answer, if the dataset no longer has the case, or if its line would exceed the limit for datasets.

    Args:
        run: The recorded run.
    """

    option = _OPTION

    def __init__(self, run: Run) -> None:
        self._run = run
        self._index = -1
        self._case: Case | None = None
        self._answers: list[_Answers] = []
        self._cases = self._errors = 0

    def take(self, row: RowResult, case: Case | None, file: IO[str]) -> None:
        """Add a row; when its case begins, write the previous case."""
        if row.case_index != self._index:
            self.finish(file)
            self._index, self._case, self._answers = row.case_index, case, []
        if answers := _answers(row):
            self._answers.append(answers)

    def finish(self, file: IO[str]) -> None:
        """Write the current case if all its repeats have answers."""
        case, answers = self._case, self._answers
        if case is None or len(answers) != self._run.spec.repeats:
            return
        case = replace(case, recordings=tuple(answers))
        line = json_text(case_record(case))
        if len(line) >= MAX_RAW_CHARS:
            return
        file.write(line + "\n")
        self._cases += 1
        self._errors += sum(turns[-1].is_failed for turns in answers)

    def summary(self, shown: Path) -> str:
        """Return how many cases were recorded and left out."""
        parts = [f"answers: {count_text(self._cases, 'case')} recorded in {clean(str(shown))}"]
        if self._errors:
            parts.append(f"{count_text(self._errors, 'error')} of the agent among them, replayed as such")
        if missing := self._run.dataset.case_count - self._cases:
            parts.append(f"{count_text(missing, 'case')} left out, without an answer to each repeat or too long")
        return "; ".join(parts)
