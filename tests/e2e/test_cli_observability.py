"""Logs, metrics and traces of real processes, as an operator of a laptop's stack reads them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tests.support.services.collector import collecting
from tests.support.services.scraped_metrics import read_families

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli


AGENT = """\
def answer(request):
    with open("parents.txt", "a") as file:
        file.write(request.traceparent + "\\n")
    return "A"
"""


def test_a_command_and_its_stack_are_one_trace_and_are_counted(project: Cli) -> None:
    """ASSAY_TRACES reaches the processes that the command starts; a hosted agent gets the span of its question."""
    project.write("agent.py", AGENT)
    with collecting() as collector:
        project.env |= {
            "ASSAY_TRACES": "1",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "ASSAY_ORCHESTRATOR_METRICS_LISTEN": "127.0.0.1:0",
        }
        project.run("up", "--no-embedder")
        try:
            project.run("run", "assay.yaml", status=1)
            log = (project.home / "logs" / "orchestrator.log").read_text(encoding="utf-8")
            (address,) = re.findall(r"serving metrics: address=(\S+)", log)
            families = read_families(address)
        finally:
            project.run("down")
    (root,) = (one for one in collector.spans if one.name == "assay run")
    found = [one for one in collector.spans if one.trace_id == root.trace_id]
    known = {one.span_id for one in found}
    assert [one.name for one in found if one.parent_id not in known] == ["assay run"]
    calls = [one for one in found if one.name == "agent call"]
    parents = (project.folder / "parents.txt").read_text(encoding="utf-8").split()
    assert sorted(parents) == sorted(f"00-{root.trace_id}-{one.span_id}-01" for one in calls)
    assert len(calls) == 20
    (rows,) = (one for one in families["assay_rows_total"].samples)
    assert (rows.labels["outcome"], rows.value) == ("failed", 20)


def test_a_missing_package_is_a_sentence(project: Cli) -> None:
    """With what to install."""
    project.write("sitecustomize.py", "import sys\nsys.modules['opentelemetry.sdk'] = None\n")
    project.env |= {"ASSAY_TRACES": "1", "PYTHONPATH": str(project.folder)}
    done = project.run("run", "assay.yaml", status=3)
    assert "ASSAY_TRACES needs opentelemetry.sdk, which is not installed" in done.stderr
    assert "[otel]" in done.stderr


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
        "accepted run", "started run", "client hosts the agent", "run completed", "client no longer hosts the agent",
        "deleted run",
    ]  # fmt: skip
    ended = course["run completed"]
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
