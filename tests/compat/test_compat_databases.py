"""Runs that the base stored, in either database, shown, reported and continued by this version."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest
from tests.compat.conftest import serving

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from tests.compat.conftest import Server
    from tests.e2e.conftest import Cli

pytestmark = pytest.mark.compat

CASES = 20
STORED = 8
"""Cases whose answers do not wait."""
IN_FLIGHT = 4
WRONG, RAISING = "c3", "c5"

AGENT = """
import pathlib, time

def answer(request):
    with open(f"asked-{__name__}", "a") as asked:
        asked.write(request.case_id + "\\n")
    while int(request.case_id[1:]) >= 8 and not pathlib.Path(f"go-{__name__}").exists():
        time.sleep(0.01)
    if request.case_id == "c5":
        raise ValueError("no answer to this")
    return "wrong" if request.case_id == "c3" else request.input.upper()
"""


def write_project(cli: Cli, name: str) -> Path:
    """Write a spec with an agent of its own, which waits for the file `go-NAME` before its later answers."""
    cli.write(f"{name}.py", AGENT)
    cases = [{"id": f"c{i}", "question": f"q{i}", "answer": f"Q{i}", "category": f"k{i % 2}"} for i in range(CASES)]
    cli.write("qa.jsonl", "\n".join(map(json.dumps, cases)))
    return cli.write(f"{name}.yaml", {
        "name": name, "dataset": "qa.jsonl", "metrics": ["exact_match", "rouge", "latency"],
        "agent": {
            "adapter": "python", "target": f"{name}:answer", "concurrency": IN_FLIGHT, "retries": 0, "timeout": "10m",
        },
        "gates": ["pass_rate >= 0.5", "category.k0.exact_match >= 0.5"],
    })  # fmt: skip


def asked(cli: Cli, name: str) -> list[str]:
    """Return the cases that a spec's agent was asked, in order."""
    path = cli.folder / f"asked-{name}"
    return path.read_text().split() if path.exists() else []


def listed(server: Server) -> dict[str, dict[str, Any]]:
    """Return the runs by their names."""
    return {run["name"]: run for run in json.loads(server.run("runs", "list", "--json"))["runs"]}


def shown(server: Server, run_id: str) -> dict[str, Any]:
    """Return a run with its summary."""
    found: dict[str, Any] = json.loads(server.run("runs", "show", run_id, "--json"))
    return found


def common(old: object, new: object, path: str = "run") -> list[str]:
    """Return where a document of this version differs from one of the base, in what both have."""
    if isinstance(old, dict) and isinstance(new, dict):
        return [line for key in old.keys() & new.keys() for line in common(old[key], new[key], f"{path}.{key}")]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        if old and isinstance(old[0], dict) and "metric" in old[0]:
            return common({each["metric"]: each for each in old}, {each["metric"]: each for each in new}, path)
        pairs = zip(old, new, strict=True)
        return [line for index, pair in enumerate(pairs) for line in common(*pair, f"{path}[{index}]")]
    return [] if old == new else [f"{path}: {old!r} became {new!r}"]


def unexpected(changes: list[str], *, is_partial: bool = False) -> list[str]:
    """Return the changes but for those that the changelog announces.

    A summary of a version without a bound on agent errors gets the verdict of this version. That of an unfinished run
    is made anew from its rows: older versions counted the latency of agent errors.
    """
    announced = ("verdict", "latency") if is_partial else ("verdict",)
    return [line for line in changes if not any(name in line for name in announced)]


def start_and_wait(server: Server, name: str) -> subprocess.Popen[str]:
    """Start a run and wait until its early answers are stored and its next questions are in flight."""
    process = server.start("run", write_project(server.cli, name), "--output-dir", f"reports-{name}")

    def is_held() -> bool:
        run = listed(server).get(name)
        return (
            run is not None and run["finished_count"] == STORED and len(asked(server.cli, name)) == STORED + IN_FLIGHT
        )

    server.cli.wait_until(is_held, process)
    return process


def finish(server: Server) -> None:
    """Make a run that ends."""
    (server.cli.folder / "go-done").touch()
    server.run("run", write_project(server.cli, "done"), "--output-dir", "reports-done", status=None)


def pause(server: Server) -> None:
    """Make a run that its owner pauses half-way."""
    process = start_and_wait(server, "paused")
    pausing = server.start("runs", "pause", listed(server)["paused"]["run_id"])
    assert pausing.stderr is not None
    pausing.stderr.readline()  # the pause was accepted, and waits for the questions in flight
    (server.cli.folder / "go-paused").touch()
    out, err = pausing.communicate(timeout=110)
    assert pausing.returncode == 0, f"{out}\n{err}"
    process.communicate(timeout=110)


def report_rows(cli: Cli, folder: str) -> list[dict[str, Any]]:
    """Return the rows of a report."""
    found: list[dict[str, Any]] = json.loads((cli.folder / folder / "results.json").read_text())["rows"]
    return found


def test_stored_runs_are_shown_and_continued(versions: tuple[Cli, Cli], database: list[str]) -> None:
    """Runs that ended, were paused, or were killed with their orchestrator have the same figures in this version.

    They are continued to their end, without a question whose answer was stored.
    """
    base, own = versions
    with serving(base, database, signal.SIGKILL) as server:
        finish(server)
        pause(server)
        start_and_wait(server, "killed")
        before = {name: shown(server, run["run_id"]) for name, run in listed(server).items()}
    asked_before = {name: asked(base, name) for name in before}
    assert {name: run["finished_count"] for name, run in before.items()} == {
        "done": CASES, "paused": STORED + IN_FLIGHT, "killed": STORED,
    }  # fmt: skip

    with serving(own, database) as server:
        for name, run in listed(server).items():
            assert common({key: before[name][key] for key in run.keys() & before[name].keys()}, run, name) == [], name
        run_id = before["done"]["run_id"]
        assert unexpected(common(before["done"], shown(server, run_id))) == []
        assert unexpected(common(before["paused"], shown(server, before["paused"]["run_id"])), is_partial=True) == []
        server.run("runs", "watch", run_id, "--output-dir", "again", status=None)
        assert common(report_rows(own, "reports-done"), report_rows(own, "again")) == []
        for name in ("paused", "killed"):
            (own.folder / f"go-{name}").touch()
            run_id = before[name]["run_id"]
            server.run("runs", "resume", run_id, "--spec", f"{name}.yaml", "--output-dir", f"end-{name}", status=None)
            ended = shown(server, run_id)
            figures = (ended["state"], ended["finished_count"], ended["passed_count"])
            assert figures == ("completed", CASES, before["done"]["passed"])
            stored = {f"c{index}" for index in range(before[name]["finished_count"])}
            assert not stored & set(asked(own, name)[len(asked_before[name]) :])
            rows = report_rows(own, f"end-{name}")
            assert [row["answer"] for row in rows] == [row["answer"] for row in report_rows(own, "reports-done")]
