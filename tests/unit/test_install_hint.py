"""What to type to install an extra: a command that works where the reader is, worded in one place."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from assay.local_stack import install_hint as module
from assay.local_stack.install_hint import checkout, install_hint

ROOT = Path(__file__).resolve().parents[2]
PLACE = Path(module.__file__).resolve()
LITERAL = re.compile(r"""pip install\s+(-e\s+)?['"]?(assay|\.)\[""")


@pytest.fixture
def venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout with an environment of its own, in which this process seems to run."""
    root = tmp_path / "my checkout"
    (root / "library" / "assay").mkdir(parents=True)
    (root / "tools").mkdir()
    (root / "tools" / "install").touch()
    (root / "pyproject.toml").touch()
    monkeypatch.setattr(sys, "prefix", str(root / ".venv"))
    return root


def test_in_a_checkout_the_hint_installs_the_checkout(venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the environment's own pip, and short where the user stands in the checkout."""
    monkeypatch.chdir(venv)
    package = venv / "library" / "assay"
    assert checkout(package) == venv
    assert install_hint("judge", package=package) == ".venv/bin/pip install -e '.[judge]'"
    assert install_hint("judge", "postgres", package=package) == ".venv/bin/pip install -e '.[judge,postgres]'"


def test_elsewhere_the_hint_holds_full_paths(venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From another folder, too, a shell runs it as it is, with spaces in its paths."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    words = shlex.split(install_hint("judge", package=venv / "library" / "assay"))
    assert words == [str(venv / ".venv" / "bin" / "pip"), "install", "-e", f"{venv}[judge]"]


def test_outside_a_virtual_environment_pip_is_that_on_the_path(venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout that is installed into Python itself."""
    monkeypatch.chdir(venv)
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    assert install_hint("judge", package=venv / "library" / "assay") == "pip install -e '.[judge]'"


def test_an_installed_package_is_installed_by_its_name(tmp_path: Path) -> None:
    """An installed package is installed by its name, as from an index."""
    package = tmp_path / "lib" / "site-packages" / "assay"
    assert checkout(package) is None
    assert install_hint("judge", "postgres", package=package) == "pip install 'assay-scoring[judge,postgres]'"


@pytest.mark.parametrize("folder", ["library", "cli", "services"])
def test_no_other_place_words_the_hint(folder: str) -> None:
    """All hints come from one function, because a hint that names the index does not work in a checkout."""
    places = []
    for path in (ROOT / folder).rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if path.resolve() == PLACE or "pip install" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            text = ast.unparse(node) if isinstance(node, ast.JoinedStr) else getattr(node, "value", None)
            if isinstance(text, str) and LITERAL.search(text):
                places.append(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: {text}")
    assert places == []


def test_the_command_without_its_extra_names_what_to_install() -> None:
    """`assay` is on PATH after every installation, click only with the extra cli."""
    program = "import sys; sys.modules['click'] = None; from assay_cli.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", program, "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"error: the command needs the extra cli: {install_hint('cli')}\n"
