"""The guide to the life of a run names commands, options and settings that there are."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from assay.model.run import PauseCause, RunState
from assay_cli.commands.runs.group import runs
from assay_orchestrator.settings import Settings

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "runs.md").read_text(encoding="utf-8")


def test_every_command_of_the_group_is_in_the_guide() -> None:
    """No command is left for its users to find out about."""
    assert {name for name in runs.commands if f"assay runs {name}" not in GUIDE} == set()


def test_the_tables_hold_every_state_and_cause() -> None:
    """The states and causes of the guide are those of the contract."""
    for value in (*RunState, *PauseCause):
        assert f"| `{value.value}` |" in GUIDE


def test_the_figures_are_those_of_the_settings() -> None:
    """The defaults that the guide tells are the orchestrator's, and its flags exist."""
    defaults = {field.name: field.default for field in dataclasses.fields(Settings)}
    assert (defaults["watch_bookmark_s"], defaults["watch_stall_s"], defaults["row_try_limit"]) == (15.0, 30.0, 3)
    assert defaults["unattended_pause_s"] == 30 * 60
    for flag in ("--unattended-pause-s", "--watch-bookmark-s", "--watch-stall-s", "--row-try-limit"):
        assert flag in GUIDE
        assert flag.removeprefix("--").replace("-", "_") in defaults
