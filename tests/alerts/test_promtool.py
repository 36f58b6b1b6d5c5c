"""Prometheus' own tool reads the alert rules, runs their cases and parses the dashboard's queries."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.alerts
FOLDER = Path(__file__).resolve().parents[2] / "deploy/components/monitoring"


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run promtool in the folder of the rules."""
    program = shutil.which("promtool")
    assert program is not None, "promtool is not on PATH: install Debian's package prometheus"
    return subprocess.run([program, *arguments], cwd=FOLDER, capture_output=True, text=True)


def test_the_rules_are_valid() -> None:
    """Expressions, durations, labels and the templates of annotations."""
    done = promtool("check", "rules", "alerts.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_fire_as_their_cases_say() -> None:
    """Each case of `alerts_test.yaml` names the alerts that fire at a moment, with all labels and annotations."""
    done = promtool("test", "rules", "alerts_test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_queries_of_the_dashboard_are_valid(tmp_path: Path) -> None:
    """Each becomes a recording rule, because promtool parses queries in rule files only."""
    panels = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    queries = [
        target["expr"].replace("$__rate_interval", "5m") for panel in panels for target in panel.get("targets", [])
    ]
    rules = [{"record": f"dashboard:query{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "dashboard.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = promtool("check", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(queries)} rules found" in done.stdout
