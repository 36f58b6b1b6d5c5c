"""The progress lines of a run: the speed they tell is that of the cases, and of nothing else."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from assay.client.progress.group_progress import GroupProgress
from assay.client.progress.run_progress import make_progress
from assay.model.answers.agent_response import AgentStatus
from assay.model.run import (
    AgentSpec,
    DatasetRef,
    MetricSpec,
    RowResult,
    Run,
    RunCounts,
    RunSpec,
    RunState,
    StateChanged,
)

if TYPE_CHECKING:
    import pytest


def going(total: int, *, stored: int = 0) -> Run:
    """A run of so many rows, some of them stored."""
    settings = RunSpec("test", AgentSpec("replay"), [MetricSpec("exact_match")])
    dataset = DatasetRef("d", "qa.json", total)
    return Run("r1", settings, dataset, RunState.RUNNING, "", RunCounts(total, stored), "now")


def told(
    capsys: pytest.CaptureFixture[str], total: int, *, stored: int = 0, seconds: float, start_s: float = 0.0
) -> str:
    """The last line about a run whose stored rows come at once, and whose others take so many seconds together."""
    now = [0.0]
    run = going(total, stored=stored)
    with make_progress(run, hidden=False, clock=lambda: now[0]) as progress:
        progress.take(run)
        now[0] += start_s
        for index in range(total):
            if index > max(stored - 1, 0):
                now[0] += seconds / (total - max(stored, 1))
            progress.take(RowResult(f"c{index}", index, 1, "", AgentStatus.SUCCESS, True, (), 1.0, ""))
    return capsys.readouterr().err.splitlines()[-1]


def test_the_speed_leaves_out_what_was_there_before(capsys: pytest.CaptureFixture[str]) -> None:
    """The speed counts neither the start of services nor rows of an interrupted run."""
    assert told(capsys, 101, seconds=10, start_s=60) == "101/101 cases  100.0% passed  10 cases/s"
    assert told(capsys, 200, stored=100, seconds=20) == "200/200 cases  100.0% passed  5.0 cases/s"


def test_the_time_left_of_a_resumed_run_leaves_out_its_start(capsys: pytest.CaptureFixture[str]) -> None:
    """Loading the model again is not part of the rate."""
    now = [0.0]
    run = going(40, stored=16)
    with make_progress(run, hidden=False, clock=lambda: now[0]) as progress:
        progress.take(run)
        for index in range(26):
            now[0] += 60.0 if index == 16 else 1.0 if index > 16 else 0.0
            progress.take(RowResult(f"c{index}", index, 1, "", AgentStatus.SUCCESS, True, (), 1.0, ""))
    assert "22/40 cases  100.0% passed  1.0 cases/s  18 s left" in capsys.readouterr().err


def test_a_pause_before_a_resume_is_not_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Earlier states of a resumed run are not shown; its present and later ones are."""
    run = replace(going(4), last_sequence=3)
    with make_progress(run, hidden=False) as progress:
        progress.take(run)
        progress.take(StateChanged(2, RunState.PAUSED, "requested by its owner", "now"))
        progress.take(StateChanged(3, RunState.RUNNING, "", "now"))
        assert "paused" not in capsys.readouterr().err
        progress.take(StateChanged(4, RunState.PAUSED, "the database refuses rows", "now"))
        progress.take(StateChanged(5, RunState.RUNNING, "", "now"))
    assert "paused: the database refuses rows" in capsys.readouterr().err


def test_the_present_state_is_told_where_a_watch_begins_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    """The present state is shown, although its event is as old as the snapshot."""
    run = replace(going(4), last_sequence=2, state_message="waiting for the embedder")
    with make_progress(run, hidden=False) as progress:
        progress.take(run)
        progress.take(StateChanged(2, RunState.RUNNING, "waiting for the embedder", "now"))
    assert "waiting for the embedder" in capsys.readouterr().err


def test_rows_that_come_all_at_once_tell_no_speed(capsys: pytest.CaptureFixture[str]) -> None:
    """A few rows within milliseconds show no speed."""
    assert told(capsys, 6, seconds=0.0005) == "6/6 cases  100.0% passed"


def test_time_left_is_told_while_any_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    """Every few seconds a log line has progress and remaining time."""
    now = [0.0]
    with make_progress(going(100), hidden=False, clock=lambda: now[0]) as progress:
        for index in range(41):
            progress.take(RowResult(f"c{index}", index, 1, "", AgentStatus.SUCCESS, index > 0, (), 1.0, ""))
            now[0] += 0.125
    assert "41/100 cases  97.6% passed  8.0 cases/s  7 s left" in capsys.readouterr().err


def test_what_the_first_rows_wait_for_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A log names each starting service once, and none after the first row."""
    with make_progress(going(4), hidden=False, clock=lambda: 0.0) as progress:
        progress.take(going(4, stored=1))
        progress.wait_for(["embedder", "judge"])
        progress.wait_for(["judge"])
        progress.wait_for([])
        for index in range(4):
            progress.take(RowResult(f"c{index}", index, 1, "", AgentStatus.SUCCESS, True, (), 1.0, ""))
    assert capsys.readouterr().err.splitlines()[1:] == [
        "loading the embedding model and starting the judge …",
        "starting the judge …",
        "4/4 cases  100.0% passed",
    ]


def test_a_terminal_shows_what_is_waited_for_in_place_of_a_rate(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first new row, the live line names what the run waits for."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with make_progress(going(2, stored=1), hidden=False, clock=lambda: 0.0) as progress:
        progress.take(going(2, stored=1))
        progress.wait_for(["embedder"])
        assert capsys.readouterr().err.endswith("0/2 cases  loading the embedding model … 0 s")
        for index in range(2):
            progress.take(RowResult(f"c{index}", index, 1, "", AgentStatus.SUCCESS, True, (), 1.0, ""))
        assert capsys.readouterr().err.endswith("2/2 cases  100.0% passed")
        progress.wait_for([])


def test_a_run_with_repeats_counts_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """Three repeats of 32 cases are 96 rows."""
    run = going(96)
    run = replace(run, spec=replace(run.spec, repeats=3))
    with make_progress(run, hidden=False, clock=lambda: 0.0) as progress:
        for index in range(96):
            progress.take(
                RowResult(f"c{index // 3}", index // 3, index % 3 + 1, "", AgentStatus.SUCCESS, True, (), 1.0, "")
            )
    assert capsys.readouterr().err.splitlines()[-1] == "96/96 rows  100.0% passed"


def test_a_row_that_is_replaced_is_counted_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A retried row is counted once, with its last outcome."""
    run = going(8)
    run = replace(run, spec=replace(run.spec, repeats=2))
    with make_progress(run, hidden=False, clock=lambda: 0.0) as progress:
        for index in (*range(8), 2, 5, 5):
            passed = True if index not in (2, 5) else None
            progress.take(RowResult("c", index // 2, index % 2 + 1, "", AgentStatus.SUCCESS, passed, (), 1.0, ""))
        progress.take(RowResult("c", 1, 1, "", AgentStatus.SUCCESS, True, (), 1.0, ""))
        progress.take(RowResult("c", 2, 2, "", AgentStatus.SUCCESS, False, (), 1.0, ""))
    assert capsys.readouterr().err.splitlines()[1:] == ["8/8 rows  100.0% passed", "8/8 rows  87.5% passed"]


def test_variants_count_a_row_once() -> None:
    """The rows of each variant are counted by case and repeat, whatever its watch brings again."""
    progress = GroupProgress({"a": going(3)}, hidden=True)
    take = progress.taker("r1")
    for index in (0, 1, 1, 2, 2):
        take(RowResult("c", index, 1, "", AgentStatus.SUCCESS, True, (), 1.0, ""))
    assert progress.line() == "a 3/3"


def test_the_live_line_never_wraps(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where bar and text do not fit, the bar goes, and then the end of the text: a wrapped line cannot be redrawn."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    for columns in (60, 70, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        with make_progress(going(100_000), hidden=False, clock=lambda: 0.0) as progress:
            progress.wait_for(["embedder", "judge"])
        drawn = capsys.readouterr().err.split("\r\x1b[2K")[1:]
        assert all(len(line.rstrip("\n")) < columns for line in drawn)
        assert ("╌" in drawn[-1]) is (columns == 200)
