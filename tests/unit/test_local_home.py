"""The state directory: its sockets lie where no other user reaches them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from assay.errors import SetupError
from assay.local.home import Home

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o1777, 0o710, 0o701, 0o740])
def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path, mode: int) -> None:
    """Whoever made it first: another user may have put sockets there, or reach ours."""
    folder = tmp_path / "home" / "run"
    folder.mkdir(parents=True)
    folder.chmod(mode)
    with pytest.raises(SetupError, match="is not a private folder of yours"):
        Home.open(tmp_path / "home")
    folder.chmod(0o700)
    assert Home.open(tmp_path / "home").sockets == folder


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    """It may be turned to another folder later."""
    (tmp_path / "home").mkdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "home" / "run").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SetupError, match="is not a private folder of yours"):
        Home.open(tmp_path / "home")


def test_the_folder_that_is_made_is_private(tmp_path: Path) -> None:
    """Whatever the umask."""
    assert Home.open(tmp_path / "home").sockets.stat().st_mode & 0o777 == 0o700
