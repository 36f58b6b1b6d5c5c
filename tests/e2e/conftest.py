"""The command as its users call it: a subprocess with a state directory of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from tests.waiting import wait_until

from assay.local.stack import SERVICES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]


class Cli:
    """Calls `assay` in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.env = {**os.environ, "ASSAY_HOME": str(self.home), "NO_COLOR": "1"}

    def command(self, *arguments: str | Path) -> list[str]:
        """Return the command line."""
        return [sys.executable, "-m", "assay_cli", *map(str, arguments)]

    def run(self, *arguments: str | Path, status: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Call and wait; the exit status must be `status`."""
        done = subprocess.run(
            self.command(*arguments), cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=110
        )
        assert status is None or done.returncode == status, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def start(self, *arguments: str | Path) -> subprocess.Popen[str]:
        """Call without waiting."""
        return subprocess.Popen(
            self.command(*arguments),
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def write(self, name: str, content: str | dict[str, Any]) -> Path:
        """Write a file of the folder; a mapping becomes YAML's subset JSON."""
        path = self.folder / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    def wait_until(self, condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
        """Wait for a condition that another process brings about, as long as that process lives."""

        def ended() -> str | None:
            if process.poll() is None:
                return None
            out, err = process.communicate()
            return f"the command ended with {process.returncode}\n{out}\n{err}"

        wait_until(condition, ended=ended)

    def services(self) -> list[psutil.Process]:
        """Return the services that run for this state directory."""
        found = []
        for process in psutil.process_iter(["cmdline"]):
            line = " ".join(process.info["cmdline"] or [])
            if str(self.home) in line and any(f"assay_{name}" in line for name in SERVICES):
                found.append(process)
        return found


@pytest.fixture
def cli(tmp_path: Path) -> Iterator[Cli]:
    """Return the command in a fresh folder; no service may be left behind."""
    caller = Cli(tmp_path)
    yield caller
    _check_nothing_left(caller)


@pytest.fixture(scope="module")
def warm_cli(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """Return the command with a local stack that the tests of a module share, so that the model is loaded once."""
    caller = Cli(tmp_path_factory.mktemp("warm"))
    caller.run("up")
    try:
        yield caller
    finally:
        caller.run("down")
        _check_nothing_left(caller)


def _check_nothing_left(caller: Cli) -> None:
    left = caller.services()
    psutil.wait_procs(left, timeout=60)
    leaked = [process for process in left if process.is_running()]
    for process in leaked:
        process.kill()
    assert not leaked, "services were left behind"


@pytest.fixture
def project(cli: Cli) -> Cli:
    """Return the command in a folder with a small spec, dataset and agent."""
    cli.write("agent.py", "def answer(request):\n    return request.input.upper()\n")
    lines = [json.dumps({"id": f"c{i}", "question": f"q{i}", "answer": f"Q{i}"}) for i in range(20)]
    cli.write("qa.jsonl", "\n".join(lines))
    cli.write(
        "assay.yaml",
        "name: small\ndataset: qa.jsonl\nagent: {adapter: python, target: 'agent:answer'}\n"
        "metrics: [exact_match, latency]\ngates: ['pass_rate >= 0.9']\n",
    )
    return cli
