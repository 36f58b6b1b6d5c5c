"""Which file is loaded where several have the same name."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from assay.agent_host.loader import AgentImportError, load_agent
from assay.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def untouched_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget the modules and folders that a test loads."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def write(folder: Path, name: str, text: str) -> None:
    """Write a module."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_a_file_in_another_folder_can_import_its_neighbours(tmp_path: Path) -> None:
    """A target can import modules from its own folder, as when Python runs it."""
    write(tmp_path, "sub/near_agent.py", "from near_data import VALUE\ndef answer(question): return VALUE")
    write(tmp_path, "sub/near_data.py", "VALUE = 'near'")
    assert load_agent("sub/near_agent.py:answer", tmp_path)("q") == "near"


@pytest.mark.parametrize("target", ["shared_agent:answer", "shared_agent.py:answer"])
def test_two_specs_may_have_agents_of_one_name(target: str, tmp_path: Path) -> None:
    """Two specs can name agents of the same module name; each gets its own."""
    for name in ("one", "two"):
        write(tmp_path / name, "shared_agent.py", f"def answer(question): return {name!r}")
    assert load_agent(target, tmp_path / "one")("q") == "one"
    assert load_agent(target, tmp_path / "two")("q") == "two"


@pytest.mark.parametrize("target", ["json:answer", "json.py:answer"])
def test_a_file_named_like_a_module_of_python_s_is_loaded_beside_it(target: str, tmp_path: Path) -> None:
    """A user's json.py is called, and `import json` still finds Python's own."""
    write(tmp_path, "json.py", "def answer(question): return 'mine'")
    assert load_agent(target, tmp_path)("q") == "mine"
    assert hasattr(sys.modules["json"], "dumps")


def test_the_spec_s_folder_comes_first(tmp_path: Path) -> None:
    """The spec's folder is moved to the front of the path."""
    for name in ("other", "own"):
        write(tmp_path / name, "which_agent.py", f"def answer(question): return {name!r}")
    sys.path[:0] = [str(tmp_path / "other"), str(tmp_path / "own")]
    assert load_agent("which_agent:answer", tmp_path / "own")("q") == "own"


@pytest.mark.parametrize("target", ["answer", ":answer", "some_agent:"])
def test_a_target_without_a_function_is_explained(target: str, tmp_path: Path) -> None:
    """A malformed target is refused with the valid forms."""
    with pytest.raises(InvalidInputError, match="module:function"):
        load_agent(target, tmp_path)


def test_every_frame_of_the_users_is_shown(tmp_path: Path) -> None:
    """The traceback shows all frames of the user's functions."""
    write(tmp_path, "deep_agent.py", "def build():\n    raise KeyError('model')\nbuild()\n")
    with pytest.raises(AgentImportError) as refusal:
        load_agent("deep_agent:answer", tmp_path)
    shown = refusal.value.user_traceback
    assert shown.count("  File ") == shown.count("deep_agent.py") == 2
