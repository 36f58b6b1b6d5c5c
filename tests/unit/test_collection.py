"""Each target collects its own ring of the tests, and none is left without a target."""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.processes import temporary_files
from tests.support.processes.child_process import child_process
from tests.support.processes.temporary_files import NEEDED_BYTES, keep_in_memory
from tests.support.processes.waiting import until, wait_until
from tests.support.rings.collection import CORE, FOLDERS, Ring, check_folders
from tests.support.rings.left_out import RUN_BY

ROOT = Path(__file__).resolve().parents[2]


def ring(expression: str, *, names_files: bool = False) -> Ring:
    """Return the ring of a run that selects by markers."""
    source = pytest.Config.ArgsSource.ARGS if names_files else pytest.Config.ArgsSource.TESTPATHS
    config: Any = SimpleNamespace(option=SimpleNamespace(markexpr=expression), args_source=source)
    return Ring(config)


def test_each_file_is_in_one_ring() -> None:
    """What `make test` does not import, `make test-services` does; a run that names files imports what it names."""
    core, services = ring("not browser and not services"), ring("services")
    for path in (ROOT / "tests").rglob("test_*.py"):
        ignored = [bool(one.pytest_ignore_collect(path)) for one in (core, services)]
        assert sorted(ignored) == [False, True], path
        assert not ring("not services", names_files=True).pytest_ignore_collect(path)
        assert not ring("postgres").pytest_ignore_collect(path)
    for name in CORE:
        path = ROOT / "tests" / name
        assert path.exists(), name
        assert not any(core.pytest_ignore_collect(folder) for folder in (path, *path.parents))
    rings = {"alerts", "browser", "chaos", "clients", "compat", "frameworks", "services", "tools"}
    assert core.ignored_files().keys() == rings
    assert services.ignored_files().keys() == {"core"}


def test_a_test_that_no_target_runs_is_refused() -> None:
    """`make test` leaves it out by its marker, and the target of the marker looks for it in other folders."""

    def item(marker: str, folder: str) -> Any:
        marks = [pytest.mark.timeout(1).mark, getattr(pytest.mark, marker).mark]
        path = ROOT / "tests" / folder / "test_x.py"
        return SimpleNamespace(path=path, nodeid="test_x.py::test_y", iter_markers=lambda: marks)

    check_folders([item(marker, folder) for marker, folders in FOLDERS.items() for folder in folders])
    for marker in FOLDERS:
        with pytest.raises(pytest.UsageError, match=f"^test_x.py::test_y has the marker {marker}: .* outside tests/"):
            check_folders([item(marker, "elsewhere")])


@pytest.mark.parametrize("target", ["test-alerts", "test-nightly", "test-postgres", "test-tools"])
def test_the_target_of_a_marker_looks_into_its_folders(target: str) -> None:
    """Those of the Makefile; tests with two markers are run by the target of the other."""
    (line,) = re.findall(rf"^{target}:.*\n\t(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    marker = target.removeprefix("test-")
    assert {f"tests/{folder}" for folder in FOLDERS[marker]} - {"tests/browser", "tests/compat"} == {
        word for word in line.split() if word.startswith("tests/")
    }


def test_every_marker_has_a_target_that_the_gate_or_the_nightly_run_names() -> None:
    """What `make test` leaves out is run by `.ci/run` or by `make nightly`, and by one of them only."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    options = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]["ini_options"]
    gate = set(re.findall(r"^make (\S+)$", (ROOT / ".ci/run").read_text(encoding="utf-8"), re.MULTILINE))
    (line,) = re.findall(r"^NIGHTLY := (.*)$", makefile, re.MULTILINE)
    nightly = set(line.split())
    assert set(re.findall(r"not (\w+)", options["addopts"])) == set(RUN_BY) == set(FOLDERS)
    assert not gate & nightly
    for program in RUN_BY.values():
        (target,) = re.findall(r"`make ([a-z-]+)`", program)
        assert target in gate | nightly
    for target in gate | nightly:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


TESTS = Path(__file__).resolve().parents[1]


def is_idle(statement: ast.stmt) -> bool:
    """Return whether a statement does nothing but let time pass."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    call = call.value if isinstance(call, ast.Await) else call
    return isinstance(statement, ast.Pass) or (isinstance(call, ast.Call) and ast.unparse(call.func).endswith("sleep"))


def test_no_test_polls_without_an_end() -> None:
    """A loop that only sleeps until a condition holds hangs once the condition has passed: use `waiting`."""
    endless = []
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text if "while " in text else "")):
            # What is awaited in a condition, such as the next message, ends by itself.
            takes = isinstance(node, ast.While) and any(
                isinstance(each, ast.Call) and ast.unparse(each.func) in {"anext", "self._answer"}
                for each in ast.walk(node.test)
            )
            if isinstance(node, ast.While) and not takes and all(map(is_idle, node.body)):
                endless.append(f"{path.relative_to(TESTS)}:{node.lineno}")
    assert endless == []


def test_no_block_waits_for_a_process_without_an_end() -> None:
    """`with subprocess.Popen(...)` waits for ever after a failed assertion: use `child_process`."""
    blocks = []
    for path in sorted(TESTS.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text if "Popen(" in text else "")):
            starts = isinstance(node, ast.withitem) and ast.unparse(node.context_expr).partition("(")[0]
            if starts and starts.endswith("Popen"):
                blocks.append(str(path.relative_to(TESTS)))
    assert blocks == ["support/processes/child_process.py"]


def test_a_child_process_ends_with_its_block() -> None:
    """It is killed whether the block ends or fails."""
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with pytest.raises(ZeroDivisionError), child_process(command) as process:
        raise ZeroDivisionError
    assert process.returncode == -signal.SIGKILL


async def test_waiting_ends_with_what_was_seen() -> None:
    """At once where it is enough, and where it is not, the failure shows it."""
    counts = iter(range(10))
    assert await until(lambda: next(counts), lambda count: count >= 3) == 3
    assert wait_until(lambda: next(counts), lambda count: count >= 5) == 5
    with pytest.raises(pytest.fail.Exception, match="seen last: 'paused'"):
        await until(lambda: "paused", lambda state: state == "completed", within_s=0.0)
    with pytest.raises(pytest.fail.Exception, match="seen last: 7"):
        wait_until(lambda: 7, lambda count: count > 7, within_s=0.0)
    with pytest.raises(pytest.fail.Exception, match="the process ended; seen last: 0"):
        wait_until(lambda: 0, ended=lambda: "the process ended")


VARIABLES = ("PYTEST_DEBUG_TEMPROOT", "TMPDIR")


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, "")  # set again in the end, and unset now
        monkeypatch.delenv(name)
    monkeypatch.setattr(tempfile, "tempdir", None)


def have(monkeypatch: pytest.MonkeyPatch, free: int = NEEDED_BYTES, flags: int = 0) -> None:
    """Let every file system have so much room, and be mounted so."""
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    monkeypatch.setattr(
        temporary_files, "os", SimpleNamespace(**vars(os) | {"statvfs": lambda path: SimpleNamespace(f_flag=flags)})
    )


def test_files_are_put_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of this process and of the ones that it starts."""
    have(monkeypatch)
    assert keep_in_memory(tmp_path)
    assert tempfile.gettempdir() == str(tmp_path)
    program = "import tempfile; print(tempfile.gettempdir())"
    assert subprocess.check_output([sys.executable, "-c", program], text=True).strip() == str(tmp_path)


@pytest.mark.parametrize(
    "given", [{"free": NEEDED_BYTES - 1}, {"flags": os.ST_NOEXEC}], ids=["small", "programs cannot be run in it"]
)
def test_a_folder_that_does_not_do_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, int]
) -> None:
    """It has too little room, as in a container, or the tests' programs cannot be run there."""
    have(monkeypatch, **given)
    assert not keep_in_memory(tmp_path)
    assert tempfile.gettempdir() != str(tmp_path)


def test_a_machine_without_such_a_folder(tmp_path: Path) -> None:
    """As other systems than Linux are."""
    assert not keep_in_memory(tmp_path / "none")


@pytest.mark.parametrize("name", VARIABLES)
def test_a_folder_that_is_given_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """By the variables of Python and of pytest."""
    have(monkeypatch)
    monkeypatch.setenv(name, "elsewhere")
    assert not keep_in_memory(tmp_path)
