"""`assay run --record`: which answers of a run's rows are in the file, and what is said of the others."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

import pytest

from assay.datasets import open_dataset
from assay.datasets.records import MAX_RAW_CHARS
from assay.errors import InvalidInputError
from assay.model.answers.agent_response import AgentErrorKind, AgentResponse, AgentStatus, error_response
from assay.model.case import Case, Turn
from assay.model.run import AgentSpec, DatasetRef, RowResult, Run, RunCounts, RunSpec, RunState, TurnResult
from assay_cli.recording.answers import AnswerRecording, check_record_file
from assay_cli.recording.writer import recorded_rows

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path


def case(number: int, *, turns: int = 1) -> Case:
    """Return a case."""
    return Case(f"c{number}", tuple(Turn(f"q{index}") for index in range(turns)))


def row(number: int, response: AgentResponse | None, repeat: int = 0) -> RowResult:
    """Return a row of a case."""
    status = response.status if response is not None else AgentStatus.ERROR
    return RowResult(f"c{number}", number, repeat, "", status, None, (), None, "", response=response)


async def record(path: Path, rows: Sequence[RowResult], cases: Sequence[Case], repeats: int = 1) -> list[RowResult]:
    """Record rows, and return those that went on."""
    settings = RunSpec(name="n", agent=AgentSpec("replay"), metrics=(), repeats=repeats)
    run = Run("r", settings, DatasetRef("d", "d", len(cases)), RunState.COMPLETED, "", RunCounts())

    async def stored() -> AsyncIterator[RowResult]:
        for one in rows:
            yield one

    return [one async for one in recorded_rows(stored(), cases, path, path, AnswerRecording(run))]


async def test_what_is_recorded_and_what_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Errors are recorded; a case without an answer, or with another one's id, or too long for a line is counted."""
    file = tmp_path / "answers.jsonl"
    late = error_response(AgentErrorKind.TIMEOUT, "late", retryable=True)
    huge = AgentResponse(text="x" * MAX_RAW_CHARS)
    rows = [row(0, AgentResponse(text="a")), row(1, late), row(2, None), row(3, huge), row(5, AgentResponse(text="b"))]
    cases = [case(0), case(1), case(2), case(3), case(4), Case("other", (Turn("q"),))]
    assert await record(file, rows, cases) == rows
    recorded = {one.case_id: one.recorded for one in open_dataset(file).cases()}
    assert recorded == {"c1": late, "c0": AgentResponse(text="a")}
    assert capsys.readouterr().err == (
        f"answers: 2 cases recorded in {file}; 1 error of the agent among them, replayed as such; "
        "4 cases left out, without an answer to each repeat or too long\n"
    )


async def test_conversations_are_recorded_turn_by_turn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All answers are recorded, up to the one that failed; a conversation with a text that is left out is not."""
    file = tmp_path / "answers.jsonl"
    said, late = [AgentResponse(text=text, cold=True) for text in "ab"], error_response(AgentErrorKind.TIMEOUT, "late")

    def talk(number: int, *answers: AgentResponse | None, left_out: bool = False) -> RowResult:
        turns = [TurnResult(f"q{index}", response=answer) for index, answer in enumerate(answers)]
        turns[0] = dataclasses.replace(turns[0], left_out=left_out)
        return dataclasses.replace(row(number, [each for each in answers if each][-1]), turns=turns)

    rows = [talk(0, *said), talk(1, late, None), talk(2, None, said[1], left_out=True)]
    await record(file, rows, [case(number, turns=2) for number in range(3)])
    recorded = {one.case_id: one.recordings[0] for one in open_dataset(file).cases()}
    assert recorded == {"c0": tuple(said), "c1": (late,)}
    assert "2 cases recorded" in (said_of := capsys.readouterr().err)
    assert "1 case left out" in said_of


async def test_each_repeat_has_its_answer(tmp_path: Path) -> None:
    """A case is recorded with the answers of all its repeats, in order, or not at all."""
    file = tmp_path / "answers.jsonl"
    answers = [AgentResponse(text=text) for text in "abc"]
    await record(file, [row(0, answers[0], 0), row(0, answers[1], 1), row(1, answers[2], 0)], [case(0), case(1)], 2)
    (found,) = open_dataset(file).cases()
    assert found.recordings == ((answers[0],), (answers[1],))


def test_a_recording_that_does_not_end_leaves_the_old_file(tmp_path: Path) -> None:
    """If the rows cannot be read to the end, the file is unchanged."""
    file = tmp_path / "answers.jsonl"
    file.write_text("old")
    with pytest.raises(AttributeError):
        asyncio.run(record(file, [row(0, AgentResponse(text="a")), None], [case(0)]))  # type: ignore[list-item]  # no row
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("out.csv", "name a file that ends in .jsonl"),
        ("qa.jsonl", "would replace the dataset"),
        ("verdicts.jsonl", "would replace the file of --record-verdicts"),
    ],
)
def test_a_file_that_others_need_is_refused(tmp_path: Path, name: str, message: str) -> None:
    """Recorded answers replace neither the dataset nor the verdicts, and go to a file that is read as JSON Lines."""
    with pytest.raises(InvalidInputError, match=message):
        check_record_file(tmp_path / name, dataset=tmp_path / "qa.jsonl", verdicts=tmp_path / "." / "verdicts.jsonl")
    check_record_file(tmp_path / "answers.jsonl", dataset=tmp_path / "qa.jsonl", verdicts=None)
