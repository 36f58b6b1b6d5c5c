"""Which code an agent is: the hash of its files and of what they import, and the commit they are checked out at."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from assay.agent_host.code_identity import GitState, code_identity, git_state
from assay.model.code_identity import CodeIdentity
from assay.model.run_spec import AgentSpec

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an agent as a module, as a package and as programs."""
    files = {
        "agent.py": "import helper\nimport json\ndef answer(request): return helper.say()\n",
        "helper.py": "from deep import nested\ndef say(): return 'x'\n",
        "deep/nested.py": "VALUE = 1\n",
        "deep/__init__.py": "",
        "unrelated.py": "X = 1\n",
        "bot/__init__.py": "",
        "bot/core.py": "from . import tools\ndef answer(request): return 'x'\n",
        "bot/tools.py": "",
        "bot/plugins/late.py": "",
        "run.sh": "#!/bin/sh\necho x\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def digest(folder: Path, adapter: str, target: str) -> str:
    identity = code_identity(AgentSpec(adapter, target), folder)
    return identity.agent_sha256 if identity is not None else ""


@pytest.mark.parametrize(
    ("adapter", "target", "changes", "other"),
    [
        ("python", "agent:answer", ["agent.py", "helper.py", "deep/nested.py"], "unrelated.py"),
        ("python", "agent.py:answer", ["agent.py", "helper.py"], "unrelated.py"),
        ("python", "bot.core:answer", ["bot/core.py", "bot/tools.py", "bot/plugins/late.py"], "agent.py"),
        ("command", "./run.sh --fast", ["run.sh"], "agent.py"),
        ("command", "python agent.py", ["agent.py", "helper.py"], "run.sh"),
    ],
)
def test_the_hash_is_of_the_agents_own_files(
    folder: Path, adapter: str, target: str, changes: list[str], other: str
) -> None:
    """A change of the agent's files changes the hash; a change of another file does not."""
    first = digest(folder, adapter, target)
    assert len(first) == 64
    (folder / other).write_text("changed = 1\n", encoding="utf-8")
    assert digest(folder, adapter, target) == first
    seen = {first}
    for name in changes:
        with (folder / name).open("a", encoding="utf-8") as file:
            file.write("# changed\n")
        seen.add(digest(folder, adapter, target))
    assert len(seen) == len(changes) + 1


@pytest.mark.parametrize(
    ("adapter", "target"),
    [("http", "http://localhost:1/"), ("python", "json:dumps"), ("python", "missing:answer"), ("command", "no-such")],
)
def test_code_that_is_not_the_users_has_no_hash(tmp_path: Path, adapter: str, target: str) -> None:
    """A service, a module of Python's or none at all, and a program on PATH have no hash; nothing fails."""
    assert code_identity(AgentSpec(adapter, target), tmp_path) is None


def test_a_function_is_its_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function of `assay.evaluate` is identified by its file, one of a notebook by its text."""
    monkeypatch.syspath_prepend(str(folder))
    for name in ("agent", "helper", "deep", "deep.nested"):
        monkeypatch.delitem(sys.modules, name, raising=False)  # what another test imported under the name
    import agent  # type: ignore[import-not-found]  # of the fixture

    try:
        identity = code_identity(AgentSpec("python", "caller:agent"), folder, agent.answer)
    finally:
        for name in ("agent", "helper", "deep", "deep.nested"):
            sys.modules.pop(name, None)
    assert identity is not None
    assert identity.agent_sha256 == digest(folder, "python", "agent:answer")


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def test_the_commit_and_what_differs_from_it(folder: Path) -> None:
    """From a folder below and from a worktree, too; files that git does not track are no difference."""
    assert git_state(folder) == GitState()
    git(folder, "init")
    assert git_state(folder) == GitState()  # without a commit
    git(folder, "add", ".")
    git(folder, "commit", "-m", "one")
    first = git_state(folder / "bot")
    assert (len(first.commit), first.dirty) == (40, False)
    (folder / "report.html").write_text("untracked", encoding="utf-8")
    assert git_state(folder) == first
    git(folder, "worktree", "add", "--detach", "tree")
    assert git_state(folder / "tree") == first
    (folder / "agent.py").write_text("changed = 1\n", encoding="utf-8")
    assert git_state(folder) == GitState(first.commit, dirty=True)


def test_git_that_hangs_or_is_missing_costs_no_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing or hanging git gives no commit; a hanging one is ended with its children."""
    git(folder, "init")
    git(folder, "add", ".")
    git(folder, "commit", "-m", "one")
    programs = folder / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    assert git_state(folder) == GitState()
    os.mkfifo(folder / "held")
    held = os.open(folder / "held", os.O_RDONLY | os.O_NONBLOCK)
    stuck = programs / "git"
    stuck.write_text(f"#!/bin/sh\nexec 3> {folder}/held\n/bin/sleep 600\n", encoding="utf-8")
    stuck.chmod(0o755)
    assert git_state(folder, timeout_s=0.2) == GitState()
    os.set_blocking(held, True)
    assert os.read(held, 1) == b""  # until the last process that holds it has ended
    os.close(held)


def test_a_broken_repository_is_none(folder: Path) -> None:
    """A broken `.git` gives no commit and fails no run."""
    (folder / ".git").write_text("gitdir: /nowhere\n", encoding="utf-8")
    assert git_state(folder) == GitState()
    (folder / ".git").unlink()
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("ref: ../../etc/passwd\n", encoding="utf-8")
    assert git_state(folder) == GitState()
    assert code_identity(AgentSpec("http", "x"), folder) is None
    assert CodeIdentity() == CodeIdentity("", None, "")
