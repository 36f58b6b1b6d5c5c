"""`--record`: the answers of a run, as a dataset that the replay adapter scores without calling the agent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from assay.datasets.cases.case_record import case_record
from assay.datasets.records import MAX_RAW_CHARS
from assay.errors import InvalidInputError, Problem
from assay.reports.atomic import atomic_writer, check_folder
from assay.reports.words.metric_text import count_text
from assay.text.unsafe_text import clean, json_text
from assay_cli.recording.row_cases import RowCases

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable
    from pathlib import Path
    from typing import IO

    from assay.model.answers.agent_response import AgentResponse
    from assay.model.case import Case
    from assay.model.run import CaseResult, Run

    _Answers = tuple[AgentResponse, ...]

_OPTION = "--record"
_ENDING = ".jsonl"


def check_record_file(path: Path, *, dataset: Path | None, verdicts: Path | None) -> None:
    """Raise if answers cannot be recorded in a file.

    Args:
        path: The file.
        dataset: The dataset of the run.
        verdicts: The file for its verdicts, if there is one.

    Raises:
        InvalidInputError: Its name does not end in .jsonl, or it is one of the others.
        SetupError: It cannot be written.
    """
    if path.suffix.lower() != _ENDING:
        raise InvalidInputError([Problem(f"writes JSON Lines: name a file that ends in {_ENDING}", _OPTION)])
    for other, what in ((dataset, "the dataset"), (verdicts, "the file of --record-verdicts")):
        if other is not None and path.resolve() == other.resolve():
            raise InvalidInputError([Problem(f"would replace {what}: choose another name", _OPTION)])
    check_folder(path.parent, option=_OPTION)


async def answers_on_the_way(
    rows: AsyncIterator[CaseResult], run: Run, cases: Iterable[Case], path: Path, shown: Path
) -> AsyncIterator[CaseResult]:
    """Yield the rows of a run; after the last one their answers are in a file, with their cases, one case a line.

    Errors of the agent are recorded as such, and of a conversation the answers to all turns. A case is left out where a
    repeat has no answer, where the dataset no longer has it, or where its line would be longer than a dataset's may be.

    Args:
        rows: In the order of the dataset.
        run: Theirs.
        cases: The cases of the dataset, in order.
        path: The file, which is replaced.
        shown: The file as the user named it.

    Raises:
        SetupError: The file cannot be written.
    """
    found = RowCases(cases)
    answers: list[_Answers] = []
    index, case = -1, None
    with atomic_writer(path, option=_OPTION) as file:
        recording = _Recording(file, run.settings.repeats)
        async for row in rows:
            if row.case_index != index:
                recording.write(case, answers)
                index, case, answers = row.case_index, found.of(row), []
            if given := _answers(row):
                answers.append(given)
            yield row
        recording.write(case, answers)
        recording.missing = run.dataset.case_count - recording.cases
    click.echo(f"answers: {recording.summary(shown)}", err=True)


def _answers(row: CaseResult) -> _Answers:
    """Return the answers of a row, one a turn; empty where one is missing that the agent gave."""
    if not row.turns:
        return (row.response,) if row.response is not None else ()
    if any(turn.left_out for turn in row.turns):
        return ()  # they would not fit in a message
    return tuple(turn.response for turn in row.turns if turn.response is not None)


@dataclass(slots=True)
class _Recording:
    """Writes cases and counts them."""

    file: IO[str]
    repeats: int
    cases: int = 0
    missing: int = 0
    errors: int = 0

    def write(self, case: Case | None, answers: list[_Answers]) -> None:
        if case is None or len(answers) != self.repeats:
            return
        last = [each[-1] for each in answers]
        earlier = tuple(each[:-1] for each in answers) if len(case.turns) > 1 else ()
        case = replace(case, recorded=last[0], recorded_repeats=tuple(last[1:]), recorded_turns=earlier)
        line = json_text(case_record(case))
        if len(line) >= MAX_RAW_CHARS:
            return
        self.file.write(line + "\n")
        self.cases += 1
        self.errors += sum(answer.is_failed for answer in last)

    def summary(self, path: Path) -> str:
        parts = [f"{count_text(self.cases, 'case')} recorded in {clean(str(path))}"]
        if self.errors:
            parts.append(f"{count_text(self.errors, 'error')} of the agent among them, replayed as such")
        if self.missing:
            parts.append(f"{count_text(self.missing, 'case')} left out, without an answer to each repeat or too long")
        return "; ".join(parts)
