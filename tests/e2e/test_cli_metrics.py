"""`assay metrics`, as a subprocess."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml

from assay.metrics import METRICS
from assay.specs.loader import spec_from_mapping
from assay_cli.commands.metrics import definition, metrics

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli


def test_every_metric_is_listed(cli: Cli) -> None:
    """The table and the document name every metric, with what it reads and its default threshold."""
    lines = cli.run("metrics", "list").stdout.splitlines()
    assert [line.split()[0] for line in lines[1 : 1 + len(METRICS)]] == list(METRICS)
    listed = json.loads(cli.run("metrics", "list", "--json").stdout)
    assert [metric["name"] for metric in listed] == list(METRICS)
    assert listed[0]["threshold"] == 0.75
    assert "references" in listed[0]["reads"]


def test_a_metric_is_shown_whole(cli: Cli) -> None:
    """Formula, parameters with type, range and default, and an example."""
    shown = cli.run("metrics", "show", "hit-rate").stdout
    for text in ("hit = 1 when", "k  (integer, at least 1, default none)", "threshold  (number, 0 to 1, default 0.8)"):
        assert text in shown


@pytest.mark.parametrize("name", METRICS)
def test_every_example_is_a_spec(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is shown as an example can be put into a spec as it is."""
    metrics.main(["show", name, "--json"], standalone_mode=False)
    document = json.loads(capsys.readouterr().out)
    example = yaml.safe_load(document["example"])
    spec = spec_from_mapping(example, needs_dataset=False, needs_agent=False)
    assert [metric.kind for metric in spec.settings.metrics] == [name]
    assert document["definition"]
    assert document["range"]


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_tells_its_range_and_what_a_gate_may_compare(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """For people: what it reads, its range, its definition, its parameters, the names that gates know, an example."""
    metrics.main(["show", name], standalone_mode=False)
    shown = capsys.readouterr().out
    info = METRICS[name].info
    for heading in ("Reads      ", "Range      ", "Threshold  ", "Parameters\n", "Gates\n", "Example\n"):
        assert heading in shown
    assert all(f"{name}.{stat}" in shown for stat in ("pass_rate", *info.stats))
    assert all(f"    {parameter.name}  (" in shown for parameter in info.parameters)
    # A formula or a rule that decides stands by itself, indented.
    assert "\n    " in definition(name) or "1. " in definition(name) or "(a) " in definition(name)


def test_an_unknown_metric_is_answered_with_the_nearest(cli: Cli) -> None:
    """Exit status 2 and what was probably meant."""
    assert "did you mean 'coverage'" in cli.run("metrics", "show", "covrage", status=2).stderr
