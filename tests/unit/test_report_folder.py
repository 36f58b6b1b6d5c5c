"""The folder of a report is tried before a run starts: no paid call precedes a report that cannot be written."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from assay.errors import InvalidInputError, SetupError
from assay.parsing.names import folder_name
from assay.reports.atomic import check_folder
from assay.reports.folder import ReportFolder


def test_a_folder_that_can_be_made_is_taken_and_left_alone(tmp_path: Path) -> None:
    """Neither the folder nor a trial file stays behind."""
    check_folder(tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_below_a_file_is_refused(tmp_path: Path) -> None:
    """The sentence names what is in the way, and the option."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match=r"file is not a folder\): choose another place with --output-dir"):
        check_folder(tmp_path / "file" / "out")


def test_an_id_that_is_a_path_makes_no_folder(tmp_path: Path) -> None:
    """Names of files carry the id of their run: one that leads elsewhere is refused before anything is written."""
    for run_id in ("x/../../PWNED", "/x", "..", ""):
        with pytest.raises(InvalidInputError, match="a run's id has 1 to 128 letters"):
            ReportFolder(tmp_path / "out", run_id)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("answers of v1", "answers of v1"),
        ("../x", "-.-x"),
        ("a/b\\c", "a-b-c"),
        ("/etc", "-etc"),
        (".", "-"),
        ("..", "-."),
    ],
)
def test_a_name_is_one_folder(name: str, folder: str) -> None:
    """The name of an evaluation is a folder of the reports of pytest, and never a path."""
    assert folder_name(name) == folder


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_file_system_that_refuses_every_user_is_noticed() -> None:
    """The superuser has all rights in /proc and can make no file there."""
    with pytest.raises(SetupError, match="/proc"):
        check_folder(Path("/proc/nope/out"))
