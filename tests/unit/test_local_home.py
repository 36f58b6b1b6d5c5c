"""The state directory: its sockets lie where no other user reaches them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from assay.errors import SetupError
from assay.local.home import Home

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o1777, 0o710, 0o701, 0o740])
def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path, mode: int) -> None:
    """Another user may have put sockets there, or reach ours; once the folder is private, it is taken."""
    folder = tmp_path / "home" / "run"
    folder.mkdir(parents=True)
    folder.chmod(mode)
    with pytest.raises(SetupError, match="is not a private folder of yours"):
        Home.open(tmp_path / "home")
    folder.chmod(0o700)
    assert Home.open(tmp_path / "home").sockets == folder


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    """A link may be turned to another folder later: it is refused also where it leads to a private one."""
    (tmp_path / "home").mkdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "home" / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SetupError, match="is not a private folder of yours"):
        Home.open(tmp_path / "home")


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_folders_that_are_made_are_private(tmp_path: Path, mask: int) -> None:
    """The state directory, its sockets and its logs are for their owner alone, under any umask."""
    before = os.umask(mask)
    try:
        home = Home.open(tmp_path / "home")
    finally:
        os.umask(before)
    folders = (home.path, home.sockets, home.path / "logs")
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700] * 3
