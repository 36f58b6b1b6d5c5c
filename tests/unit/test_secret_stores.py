"""Where secrets are: files of one folder a team, variables that the operator has named."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from assay.errors import InvalidInputError
from assay.parsing.secret_references import SecretReference
from assay.process.secret_stores import FolderSecrets, open_secrets, read_secret_variables, value_problem
from assay_judge.settings import Settings as JudgeSpec
from assay_orchestrator.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

KEY = SecretReference("search", "key")


def write(folder: Path, team: str, name: str, value: str) -> Path:
    """Write a secret as an operator does."""
    path = folder / team / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value)
    return path


@pytest.mark.parametrize(
    ("content", "value"), [("abc", "abc"), ("abc\n", "abc"), ("abc\r\n", "abc"), ("a\nb\n", "a\nb")]
)
def test_a_file_is_a_secret_without_the_line_feed_at_its_end(tmp_path: Path, content: str, value: str) -> None:
    """Editors add one; further ones belong to the value."""
    path = write(tmp_path, "search", "key", "")
    path.write_bytes(content.encode())
    assert FolderSecrets(tmp_path).read(KEY) == value


def test_a_mounted_secret_of_kubernetes_is_read_and_rotated(tmp_path: Path) -> None:
    """Its files are links to those of a folder that is exchanged whole."""
    own = tmp_path / "search"
    for version in ("..1", "..2"):
        write(own, version, "key", f"value {version}")
    (own / "..data").symlink_to("..1")
    (own / "key").symlink_to("..data/key")
    store = FolderSecrets(tmp_path)
    assert store.read(KEY) == "value ..1"
    (own / "..new").symlink_to("..2")
    (own / "..new").replace(own / "..data")
    assert store.read(KEY) == "value ..2"


def test_no_link_leads_out_of_the_folder_of_the_team(tmp_path: Path) -> None:
    """Neither to another team, nor to a file of the machine, nor by a link in the place of the folder."""
    folder = tmp_path / "secrets"
    write(folder, "other", "key", "of another team")
    (tmp_path / "outside").write_text("outside")
    own = folder / "search"
    own.mkdir()
    for target in ("../other/key", "../../outside", str(tmp_path / "outside"), "key", "/dev/zero"):
        (own / "key").unlink(missing_ok=True)
        (own / "key").symlink_to(target)
        assert FolderSecrets(folder).read(KEY) is None
    (own / "key").unlink()
    own.rmdir()
    own.symlink_to("other")
    assert FolderSecrets(folder).read(KEY) is None


def test_what_is_no_small_text_file_is_no_secret(tmp_path: Path) -> None:
    """A folder, a pipe, which would wait for a writer, bytes that are no text, and more than 8 KiB."""
    path = write(tmp_path, "search", "key", "x" * (8 * 1024 + 1))
    store = FolderSecrets(tmp_path)
    assert store.read(KEY) is None
    path.write_bytes(b"\xff\xfe")
    assert store.read(KEY) is None
    path.unlink()
    assert store.read(KEY) is None
    os.mkfifo(path)
    assert store.read(KEY) is None
    path.unlink()
    path.mkdir()
    assert store.read(KEY) is None


def test_files_come_before_variables(tmp_path: Path) -> None:
    """A variable is a secret where the operator has named it, for one team alone."""
    names = read_secret_variables("search/key=SEARCH_KEY, search/other=OTHER_KEY")
    environ = {"SEARCH_KEY": "of the variable", "OTHER_KEY": "", "UNNAMED": "x"}
    store = open_secrets(tmp_path, names, environ)
    assert store.read(KEY) == "of the variable"
    assert store.read(SecretReference("ads", "key")) is None
    assert store.read(SecretReference("search", "other")) is None
    write(tmp_path, "search", "key", "of the file")
    assert store.read(KEY) == "of the file"


@pytest.mark.parametrize("text", ["key=VARIABLE", "search/key", "search/key=", "../key=X", "a/b/c=X"])
def test_variables_of_secrets_name_their_team(text: str) -> None:
    """Without it, each team could name them."""
    with pytest.raises(ValueError, match="TEAM/NAME=VARIABLE"):
        read_secret_variables(text)


def test_a_missing_secret_is_one_of_another_team() -> None:
    """What is said tells neither from the other; a short one is refused, as it could not be taken out of texts."""
    assert value_problem(None, "secret://key", "here") == value_problem("", "secret://key", "here")
    assert "shorter than 8" in value_problem("1234567", "secret://key", "here")
    assert value_problem("12345678", "secret://key", "here") == ""


@pytest.mark.parametrize("kind", [Settings, JudgeSpec])
def test_services_take_a_folder_and_variables(kind: type[Settings | JudgeSpec], tmp_path: Path) -> None:
    """A folder that is not mounted is refused at the start."""
    read = kind.read(["--secrets", str(tmp_path), "--secret-variables", "search/key=KEY"], {})
    assert (read.secrets, dict(read.secret_variables)) == (tmp_path, {KEY: "KEY"})
    with pytest.raises(InvalidInputError, match="--secrets"):
        kind.read(["--secrets", str(tmp_path / "none")], {})


def test_variables_of_a_shared_installation_are_bound_to_hosts() -> None:
    """Otherwise any team could send them to any host that another may call."""
    for entry, is_right in (("*", False), ("OPENAI_API_KEY", False), ("OPENAI_API_KEY@api.openai.com", True)):
        arguments = ["--auth", "tokens", "--agent-env", entry]
        if is_right:
            assert Settings.read(arguments, {}).agent_env == (entry,)
            continue
        with pytest.raises(InvalidInputError, match="needs a host"):
            Settings.read(arguments, {})
