"""Long texts on a pipe and on a terminal: cut, with the command that shows the whole of them."""

from __future__ import annotations

import dataclasses
import io
from typing import TYPE_CHECKING

import pytest
from tests.unit.test_report_document import finished

from assay.model.answers.agent_response import AgentError, AgentErrorKind, AgentResponse, AgentStatus
from assay.model.run import RowResult, Score, ScoreStatus
from assay_cli.commands.runs.rows import row_table
from assay_cli.output.case_view import case_view
from assay_cli.output.console import ConsoleSummary
from assay_cli.output.failing_rows import FailingCounts
from assay_cli.output.row_blocks import VerboseProgress
from assay_cli.output.terminal import WIDE, cut_width

if TYPE_CHECKING:
    from collections.abc import Callable

LONG = "word " * 40_000
ERROR = AgentError(AgentErrorKind.RAISED, f"ValueError: {LONG}", traceback=f"Traceback:\n  here\nValueError: {LONG}")


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


ROWS = {
    "answer": AgentResponse(text=LONG),
    "error": AgentResponse(status=AgentStatus.ERROR, error=ERROR),
}


def failing(kind: str) -> RowResult:
    """A row that fails, all of whose texts are long."""
    response = ROWS[kind]
    reason = f"agent error (raised): {ERROR.message}" if kind == "error" else f"contains: {LONG}"
    return RowResult(
        "a case", 0, 1, "", response.status, False, (), None, reason,
        response=response, input=LONG, references=(LONG,),
    )  # fmt: skip


def summary(row: RowResult, out: io.StringIO) -> str:
    """The summary of a run with one failing row."""
    console = ConsoleSummary(finished(), out)
    console.take(row)
    return console.render()


def block(row: RowResult, out: io.StringIO) -> str:
    """What --verbose prints."""
    VerboseProgress(finished(), out).take(row)
    return out.getvalue()


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("shown", [summary, block])
@pytest.mark.parametrize("stream", [io.StringIO, Terminal])
def test_long_texts_are_cut_and_the_whole_is_named(
    kind: str,
    shown: Callable[[RowResult, io.StringIO], str],
    stream: type[io.StringIO],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Question, answer, reference, reason and traceback are lines of a CI log, too; `runs show --case` cuts none."""
    monkeypatch.setenv("COLUMNS", "90")
    row = failing(kind)
    lines = shown(row, stream()).splitlines()
    assert any("word word" in line for line in lines)
    assert max(map(len, lines)) <= WIDE + 20
    hints = [line.strip() for line in lines if "are cut" in line]
    assert hints == ["texts that end in … are cut: see the reports or `assay runs show r1 --case 'a case'`"]
    assert LONG.strip() in case_view(finished(), row, [])


def test_a_row_shows_its_values_before_what_produced_them() -> None:
    """Versions, models and revisions are in one line, after what the score is made of; what is absent is left out."""
    detail = {"version": "1", "revision": "a" * 64, "position": None, "rouge1": 0.5, "model": "m"}
    score = Score("rouge", ScoreStatus.SCORED, 0.5, None, "", detail)
    shown = case_view(finished(), dataclasses.replace(failing("answer"), scores=(score,)), [])
    block = shown.partition("scores:\n")[2].splitlines()[1:3]
    assert block == ["    rouge1: 0.5", f"    made by: version 1, model m, revision {'a' * 64}"]
    assert "position" not in shown


def test_short_texts_need_no_hint() -> None:
    """If no text was cut, no line names the command that shows it in full."""
    row = dataclasses.replace(
        failing("answer"), response=AgentResponse(text="a"), input="q", references=("b",), message="exact_match: no"
    )
    assert "whole" not in summary(row, io.StringIO())


def test_a_pipe_has_room_for_the_whole_id_of_a_case() -> None:
    """A terminal cuts names to keep columns together; a script that reads a pipe needs them."""
    row = dataclasses.replace(failing("answer"), case_id="c" * 100)
    piped = row_table(finished(), [row], cut_width(io.StringIO()))
    assert "c" * 100 in piped
    assert max(map(len, piped.splitlines())) < 3 * WIDE
    assert "c" * 100 not in row_table(finished(), [row], 80)


@pytest.mark.parametrize(
    ("failed", "undecided", "message"),
    [(1, 0, "1 failing row"), (0, 2, "2 undecided rows"), (1, 1, "1 failing row and 1 undecided row")],
)
def test_counts_of_failing_rows_read_as_english(failed: int, undecided: int, message: str) -> None:
    """One row is a row, whatever stands beside it."""
    assert str(FailingCounts(failed, undecided)) == message
