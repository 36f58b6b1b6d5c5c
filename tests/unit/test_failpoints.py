"""Failpoints: nothing unless the environment says so, and then exactly what it says."""

from __future__ import annotations

import ast
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from assay.errors import StorageError
from assay.process import failpoints
from assay.process.failpoints import ACTIONS, EXIT_STATUS, FAILPOINTS, Failpoints

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("library", "cli", "services")
NAME = "agent.before_call"


def _calls() -> list[str]:
    """Return the name of every failpoint that our code comes by."""
    names = []
    for folder in SOURCES:
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            if "failpoint(" not in text or path.name == "failpoints.py":
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "failpoint":
                    (argument,) = node.args
                    assert isinstance(argument, ast.Constant), f"{path}: a failpoint is named where it stands"
                    names.append(str(argument.value))
    return names


def test_every_failpoint_is_registered_and_used() -> None:
    """The list of failpoints is complete, and each is reached by some code."""
    assert set(_calls()) == set(FAILPOINTS)


def _run(environ: dict[str, str], code: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("ASSAY_FAILPOINTS")}
    return subprocess.run(
        [sys.executable, "-c", code], env={**inherited, **environ}, capture_output=True, text=True, timeout=60
    )


def test_without_the_variable_a_failpoint_is_a_function_that_does_nothing() -> None:
    """The environment is read on import; later changes have no effect."""
    code = (
        "import os\nfrom assay.process import failpoints\nfrom assay.process.failpoints import failpoint\n"
        f"os.environ['ASSAY_FAILPOINTS'] = '{NAME}=kill'\nfailpoint('{NAME}')\nfailpoint('whatever')\n"
        "print(failpoints.clock_offset_s(), failpoint.__name__)"
    )
    done = _run({}, code)
    assert done.stdout.split() == ["0.0", "_nothing"], done.stderr


@pytest.mark.parametrize(
    ("text", "status", "lines"),
    [
        (f"{NAME}=kill@3", -signal.SIGKILL, ["1 -", "2 -", "3 kill"]),
        (f"{NAME}=kill", -signal.SIGKILL, ["1 kill"]),
        (f"{NAME}=exit@2", EXIT_STATUS, ["1 -", "2 exit"]),
        (f" watch.page_read=kill ; {NAME}=exit@2+;", EXIT_STATUS, ["1 -", "2 exit"]),
        (f"{NAME}=delay:0.001@2", 0, ["1 -", "2 delay", "3 -", "4 -"]),
        (f"{NAME}=delay:0.001@3+", 0, ["1 -", "2 -", "3 delay", "4 delay"]),
        ("", 0, ["1 -", "2 -", "3 -", "4 -"]),
    ],
)
def test_the_action_happens_at_its_time(tmp_path: Path, text: str, status: int, lines: list[str]) -> None:
    """The action fires on the named pass, and the log has every pass."""
    log = tmp_path / "log"
    code = f"from assay.process.failpoints import failpoint\nfor _ in range(4): failpoint('{NAME}')"
    done = _run({"ASSAY_FAILPOINTS": text, "ASSAY_FAILPOINTS_LOG": str(log)}, code)
    assert done.returncode == status, done.stderr
    entries = [line.split(maxsplit=2) for line in log.read_text().splitlines()]
    assert [rest for _, name, rest in entries if name == NAME] == lines


def test_a_process_that_is_started_again_is_not_ended_again(tmp_path: Path) -> None:
    """A restarted service is not ended again."""
    environ = {"ASSAY_FAILPOINTS": f"{NAME}=exit@2", "ASSAY_FAILPOINTS_LOG": str(tmp_path / "log")}
    code = f"from assay.process.failpoints import failpoint\nfor _ in range(4): failpoint('{NAME}')"
    assert [_run(environ, code).returncode for _ in range(2)] == [EXIT_STATUS, 0]


def test_failures_are_those_of_a_store_and_of_a_disk() -> None:
    """`error` is what the store raises when it gives up, `nospace` what a full disk does."""
    points = Failpoints(f"{NAME}=error@1;{NAME}=nospace@2;watch.page_read=error", None)
    with pytest.raises(StorageError, match=NAME):
        points.pass_by(NAME)
    with pytest.raises(OSError, match="No space left") as caught:
        points.pass_by(NAME)
    assert caught.value.errno == errno.ENOSPC
    points.pass_by(NAME)


def test_the_clock_jumps_and_stays_there() -> None:
    """From the named time on, until another jump."""
    points = Failpoints("store.clock=jump:3600@2;store.clock=jump:-60@4", None)
    offsets = []
    for _ in range(5):
        points.pass_by("store.clock")
        offsets.append(points.clock_offset_s)
    assert offsets == [0.0, 3600.0, 3600.0, -60.0, -60.0]


@pytest.mark.parametrize(
    "text",
    ["nowhere=kill", NAME, f"{NAME}=", f"{NAME}=burn", f"{NAME}=delay", f"{NAME}=kill:3", f"{NAME}=kill@x", "=kill"],
)
def test_what_is_not_understood_is_refused(text: str) -> None:
    """A mistyped failpoint is refused."""
    with pytest.raises(ValueError, match="ASSAY_FAILPOINTS"):
        Failpoints(text, None)


def test_every_failpoint_and_action_is_explained() -> None:
    """Names say where and when; the module's text has every action."""
    assert all(len(meaning) > 10 for meaning in FAILPOINTS.values())
    assert all(f"    {action}" in (failpoints.__doc__ or "") for action in ACTIONS)
