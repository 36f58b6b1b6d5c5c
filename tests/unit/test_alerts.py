"""Alert rules and dashboard: each rule fires when it should and not otherwise, over metrics that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.promql.alerts import firing, fixture_series
from tests.promql.series import seconds
from tests.promql.syntax import Aggregation, Binary, Call, Expression, Selector, parse
from tests.unit.test_observability_tables import SECTIONS, instruments

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


def selectors(expression: Expression) -> list[tuple[Selector, str]]:
    """Return the selectors of an expression, each with the function that it is in."""
    match expression:
        case Selector():
            return [(expression, "")]
        case Call(function, arguments):
            return [(found, inner or function) for argument in arguments for found, inner in selectors(argument)]
        case Aggregation():
            return selectors(expression.of)
        case Binary():
            return selectors(expression.left) + selectors(expression.right)
    return []


def grouped_by(expression: Expression) -> set[str]:
    """Return the labels that aggregations keep."""
    match expression:
        case Aggregation():
            return {*expression.by} | grouped_by(expression.of)
        case Call():
            return {label for argument in expression.arguments for label in grouped_by(argument)}
        case Binary():
            return grouped_by(expression.left) | grouped_by(expression.right)
    return set()


def problems(query: str) -> list[str]:
    """Return what is wrong with a query: metrics and labels that there are not, a rate of what does not rise."""
    expression, found = parse(query), []
    known: set[str] = set(OF_PROMETHEUS)
    for selector, function in selectors(expression):
        name = re.sub(r"_(bucket|count|sum)$", "", selector.name)
        if name not in LABELS:
            found.append(f"there is no {selector.name}")
            continue
        is_counter = KINDS[name] == "counter" or name != selector.name
        if is_counter != (function in ("rate", "increase")):
            found.append(f"{selector.name} is a {KINDS[name]}")
        known |= LABELS[name]
        found += [f"{selector.name} has no {label}" for label, _, _ in selector.matchers
                  if label not in LABELS[name] | OF_PROMETHEUS]  # fmt: skip
    return found + [f"no metric has {label}" for label in grouped_by(expression) - known]


@pytest.mark.parametrize("fixture", FIXTURES["tests"], ids=lambda fixture: str(fixture["name"]))
def test_a_rule_fires_as_its_fixture_says(fixture: dict[str, Any]) -> None:
    """With these labels and annotations, and no others."""
    (wanted,) = fixture["alert_rule_test"]
    rule, interval_s = RULES[wanted["alertname"]], seconds(FIXTURES["evaluation_interval"])
    found = firing(rule, fixture_series(fixture), seconds(wanted["eval_time"]), interval_s)
    expected = [{"alertname": rule["alert"], **one["exp_labels"]} for one in wanted["exp_alerts"]]
    assert found == {tuple(sorted(labels.items())) for labels in expected}
    assert all(one["exp_annotations"] == rule["annotations"] for one in wanted["exp_alerts"])


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
            assert named <= grouped_by(parse(query)) | ({"instance"} if not grouped_by(parse(query)) else set())
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
