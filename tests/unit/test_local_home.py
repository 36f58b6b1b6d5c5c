"""The state directory: where it is, and that its sockets lie where no other user reaches them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from assay.errors import SetupError
from assay.local_stack.home import Home
from assay.local_stack.service_logs import MOST_BYTES, last_words, open_log


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


def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    """Only its owner decides who enters it."""
    if os.getuid() != 0:
        pytest.skip("only root gives a folder to another user")
    Home.open(tmp_path / "home")
    os.chown(tmp_path / "home" / "run", 1, -1)
    with pytest.raises(SetupError, match="is not a private folder of yours"):
        Home.open(tmp_path / "home")


def test_the_state_directory_is_named_or_of_the_environment_or_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this order; an empty ASSAY_HOME names none, and a tilde is the user's folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("ASSAY_HOME", "/var/assay")
    assert Home.find(Path("/srv/assay")).path == Path("/srv/assay")
    assert Home.find(Path("~/assay")).path == tmp_path / "assay"
    assert Home.find().path == Path("/var/assay")
    monkeypatch.setenv("ASSAY_HOME", "")
    assert Home.find().path == tmp_path / ".assay"
    monkeypatch.delenv("ASSAY_HOME")
    assert Home.find().path == tmp_path / ".assay"


def test_what_an_earlier_version_kept_is_found(tmp_path: Path) -> None:
    """Names below the state directory stay from version to version; logs can be written at once."""
    home = Home.open(tmp_path)
    assert home.database == tmp_path / "assay.db"
    assert home.verdicts == tmp_path / "verdicts"
    assert home.socket("judge") == tmp_path / "run" / "judge.sock"
    home.log("judge").write_text("")
    assert (tmp_path / "logs" / "judge.log").exists()
    assert Home.open(tmp_path) == home


def test_a_start_appends_to_the_log_of_its_service(tmp_path: Path) -> None:
    """What was logged before stays, within a bound; why a service ended is looked for in its own start."""
    path = tmp_path / "judge.log"
    for start, text in ((0, b"assay judge: old\nmore\n"), (22, b"line\nassay judge: new\n")):
        with open_log(path) as log:
            assert log.tell() == start
            log.write(text)
    assert last_words(path, 22, "judge") == "assay judge: new"
    assert last_words(path, path.stat().st_size, "judge") == ""
    assert path.stat().st_mode & 0o777 == 0o600
    with open_log(path) as log:
        log.truncate(MOST_BYTES + 1)
    with open_log(path) as log:
        assert log.tell() == 0
    assert (tmp_path / "judge.log.1").read_bytes().startswith(b"assay judge: old\n")
    assert last_words(tmp_path / "none", 0, "judge") == "(no log)"


def test_a_long_path_has_its_sockets_elsewhere() -> None:
    """The kernel takes no path of over 107 bytes for a socket; two state directories never share their sockets."""
    fitting = Home.find(Path("/" + 85 * "x"))
    assert fitting.sockets == Path("/" + 85 * "x" + "/run")
    long, other = Home.find(Path("/" + 86 * "x")), Home.find(Path("/" + 86 * "y"))
    assert len(os.fsencode(long.socket("orchestrator"))) <= 107
    assert long.sockets != other.sockets
    assert long == Home.find(Path("/" + 86 * "x"))


def test_an_unused_directory_is_removed_with_what_services_create(tmp_path: Path) -> None:
    """Only that: another file keeps the directory."""
    home = Home.open(tmp_path / "home")
    assert home.is_new
    assert not Home.open(tmp_path / "home").is_new
    for file in (home.socket("orchestrator"), home.log("orchestrator"), home.database):
        file.touch()
    note = home.path / "note"
    note.touch()
    home.remove()
    assert list(home.path.iterdir()) == [note]
    note.unlink()
    home.remove()
    Home.open(home.path).remove()
    assert not home.path.exists()
