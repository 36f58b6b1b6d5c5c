"""What an operator reads in the logs: the course of each run, in the format and from the level that was asked for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli


def test_the_course_of_a_run_is_logged(project: Cli) -> None:
    """As JSON, with the run as a field, and without the lines of the packages that the service uses."""
    project.env["ASSAY_ORCHESTRATOR_LOG_FORMAT"] = "json"
    project.write("agent.py", "def answer(request):\n    return str(1 / (request.case_id != 'c3'))\n")
    project.run("up", "--no-embedder")
    try:
        done = project.run("run", "assay.yaml", "--json", status=1)
        run_id = json.loads(done.stdout)["run"]["run_id"]
        project.run("runs", "delete", run_id, "--yes")
    finally:
        project.run("down")
    records: list[dict[str, Any]] = [json.loads(line) for line in log_of(project).splitlines()]
    assert all(record["logger"].startswith("assay") for record in records)
    course = {record["message"].partition(":")[0]: record for record in records if record.get("run") == run_id}
    assert list(course) == [
        "accepted run", "started run", "client hosts the agent", "run succeeded", "client no longer hosts the agent",
        "deleted run",
    ]  # fmt: skip
    ended = course["run succeeded"]
    assert (ended["rows"], ended["agent_errors"], ended["verdict"], ended["level"]) == (20, 1, "FAIL", "info")
    assert (course["accepted run"]["name"], course["accepted run"]["agent"]) == ("small", "python")


def test_the_level_is_a_setting(project: Cli) -> None:
    """From warning on, a run that nothing happens to leaves no line."""
    project.env["ASSAY_ORCHESTRATOR_LOG_LEVEL"] = "WARNING"
    project.run("run", "assay.yaml")
    assert log_of(project) == ""


def test_wrong_settings_are_told_together(project: Cli) -> None:
    """Each with its flag and what it takes."""
    done = project.run("serve", "orchestrator", "--log-level", "loud", "--log-format", "xml", status=2)
    assert "--log-level: must be debug, info, warning or error, not 'loud'" in done.stderr
    assert "--log-format: must be text or json, not 'xml'" in done.stderr


def log_of(project: Cli) -> str:
    """Return what the orchestrator of a state directory has logged."""
    return (project.home / "logs" / "orchestrator.log").read_text(encoding="utf-8")
