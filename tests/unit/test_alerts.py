"""Alert rules and dashboard: every rule has its cases and its section in the runbook, over metrics that exist.

`make test-alerts` runs the cases with promtool.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.test_guide_tables import SECTIONS, instruments

from assay_embedder.settings import Settings as Embedder
from assay_judge.settings import Settings as Judge
from assay_orchestrator.settings import Settings as Orchestrator

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/components/monitoring"
RUNBOOK = (ROOT / "docs/runbook.md").read_text(encoding="utf-8")
FILE = yaml.safe_load((FOLDER / "alerts.yaml").read_text(encoding="utf-8"))
RULES: dict[str, dict[str, Any]] = {rule["alert"]: rule for group in FILE["groups"] for rule in group["rules"]}
FIXTURES = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text(encoding="utf-8"))
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
LABELS = {one.name: set(one.labels) for section in SECTIONS for one in instruments(section)}
KINDS = {one.name: one.kind for section in SECTIONS for one in instruments(section)}
OF_PROMETHEUS = {"instance", "le"}
_SELECTOR = re.compile(r"(?:\b(?P<function>rate|increase)\()?\b(?P<name>assay_\w+)(?:\{(?P<matchers>[^}]*)\})?")
_MATCHED_LABEL = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"[^"]*"')
_GROUPING = re.compile(r"\bby \(([^)]*)\)")


def grouped_by(query: str) -> set[str]:
    """Return the labels that aggregations keep."""
    return {label.strip() for labels in _GROUPING.findall(query) for label in labels.split(",")}


def problems(query: str) -> list[str]:
    """Return the metrics and labels that no service exports, and rates of metrics that may fall."""
    result: list[str] = []
    known = set(OF_PROMETHEUS)
    for selector in _SELECTOR.finditer(query):
        name = re.sub(r"_(bucket|count|sum)$", "", selector["name"])
        if name not in LABELS:
            result.append(f"there is no {selector['name']}")
            continue
        is_counter = KINDS[name] == "counter" or name != selector["name"]
        if is_counter != bool(selector["function"]):
            result.append(f"{selector['name']} is a {KINDS[name]}")
        known |= LABELS[name]
        labels = set(_MATCHED_LABEL.findall(selector["matchers"] or ""))
        result += [f"{selector['name']} has no {label}" for label in sorted(labels - LABELS[name] - OF_PROMETHEUS)]
    return result + [f"no metric has {label}" for label in sorted(grouped_by(query) - known)]


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("max by (state) (assay_queue_shards)", ""),
        ('sum(increase(assay_rpc_calls_total{code=~"a=b|c"}[5m]))', ""),
        ("max by (team) (assay_queue_shards)", "no metric has team"),
        ('assay_queue_shards{state="waiting", shard!="1"} > 0', "assay_queue_shards has no shard"),
        ("assay_queue_shard", "there is no assay_queue_shard"),
        ("rate(assay_queue_shards[5m])", "assay_queue_shards is a gauge"),
        ("sum(assay_rpc_calls_total)", "assay_rpc_calls_total is a counter"),
        ("sum by (le) (assay_rpc_duration_seconds_bucket)", "assay_rpc_duration_seconds_bucket is a histogram"),
    ],
)
def test_queries_are_compared_with_the_exported_metrics(query: str, problem: str) -> None:
    """Whether a query is valid at all is promtool's to say: `make test-alerts`."""
    assert problems(query) == ([problem] if problem else [])


def test_every_rule_has_a_fixture_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    """A rule that can never fire, or always does, is found here."""
    tried = [one for fixture in FIXTURES["tests"] for one in fixture["alert_rule_test"]]
    for name in RULES:
        outcomes = {bool(one["exp_alerts"]) for one in tried if one["alertname"] == name}
        assert outcomes == {True, False}, name
    assert {one["alertname"] for one in tried} == set(RULES)


@pytest.mark.parametrize("name", RULES)
def test_rules_are_of_metrics_that_services_export_and_have_a_section_in_the_runbook(name: str) -> None:
    """Its annotation points to the section, which says what it means, how to confirm it and what to do."""
    rule = RULES[name]
    assert problems(rule["expr"]) == []
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{name.lower()}"
    section = RUNBOOK.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    for part in ("**Means.**", "**Confirm.**", "**Do.**"):
        assert part in section, f"{name}: {part}"


def test_the_runbook_has_no_section_without_an_alert() -> None:
    """An alert that was removed takes its section with it."""
    assert re.findall(r"^## (Assay\w+)$", RUNBOOK, re.MULTILINE) == list(RULES)


def test_the_operator_of_prometheus_gets_the_same_rules() -> None:
    """`prometheus-rule.yaml` is a copy: change both."""
    copy = yaml.safe_load((FOLDER / "prometheus-rule.yaml").read_text(encoding="utf-8"))
    assert copy["spec"] == FILE


def test_the_dashboard_shows_metrics_that_services_export() -> None:
    """Every panel has queries, each of them over metrics and labels that there are; panels do not overlap."""
    places: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        grid = panel["gridPos"]
        cells = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & places, panel["title"]
        assert max(x for x, _ in cells) < 24
        places |= cells
        if panel["type"] == "row":
            continue
        assert panel["targets"], panel["title"]
        for target in panel["targets"]:
            query = target["expr"].replace("$__rate_interval", "5m")
            assert problems(query) == [], panel["title"]
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert named <= (grouped_by(query) or {"instance"})
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_the_component_opens_the_port_of_metrics_to_prometheus_alone() -> None:
    """What is added to the pods is a flag that every service takes, a port of that number, and a policy for it."""
    kustomization = yaml.safe_load((FOLDER / "kustomization.yaml").read_text(encoding="utf-8"))
    (patch,) = kustomization["patches"]
    flag, port = (one["value"] for one in yaml.safe_load(patch["patch"]))
    for settings in (Embedder, Judge, Orchestrator):
        assert settings.read([flag], {}).metrics_listen == f"0.0.0.0:{port['containerPort']}"
    policy = yaml.safe_load((FOLDER / "network-policy.yaml").read_text(encoding="utf-8"))["spec"]
    (rule,) = policy["ingress"]
    assert [one["port"] for one in rule["ports"]] == [port["containerPort"]]
    assert [set(one) for one in rule["from"]] == [{"namespaceSelector"}]
    (values,) = (one["values"] for one in policy["podSelector"]["matchExpressions"])
    assert f"({','.join(values)})" in patch["target"]["labelSelector"]
    monitor = yaml.safe_load((FOLDER / "pod-monitor.yaml").read_text(encoding="utf-8"))["spec"]
    assert [one["port"] for one in monitor["podMetricsEndpoints"]] == [port["name"]]
    others = {"kustomization.yaml", "alerts.yaml", "alerts_test.yaml", "dashboard.json"}
    assert {path.name for path in FOLDER.iterdir()} == {*kustomization["resources"]} | others
