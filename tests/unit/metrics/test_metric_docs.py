"""The guides say what the code does: every kind of metric, its parameters, statistics and examples; gates, formulas."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from assay.errors import Problem
from assay.gates.gates import parse_gate
from assay.metrics import METRICS, complete_parameters
from assay.metrics.checks.answer_checks import CHECKS
from assay.metrics.checks.judged_checks import JUDGED_CHECKS
from assay.metrics.checks.similar_checks import SIMILAR_CHECKS
from assay.metrics.core.call_matching import TRAJECTORIES
from assay.metrics.core.score import Row
from assay.metrics.expression.expressions import FUNCTIONS, WORDS
from assay.metrics.formula import FIELDS
from assay.model.answers.agent_response import AgentResponse, ToolCall
from assay.model.case import Case, Turn
from assay.parsing.yaml_nodes import parse_yaml
from assay.specs.loader import spec_from_mapping

DOCS = Path(__file__).parents[3] / "docs"
METRICS_GUIDE = (DOCS / "metrics.md").read_text("utf-8")
FAMILIES = [page.read_text("utf-8") for page in sorted((DOCS / "metrics").glob("*.md"))]
SPEC_GUIDE = (DOCS / "spec.md").read_text("utf-8")
SECTIONS = {
    part.partition("\n")[0]: part for page in FAMILIES for part in re.split(r"^## ", page, flags=re.MULTILINE)[1:]
}


def spec_with(metrics: list[Any], **more: Any) -> Any:
    """A spec of these metrics; refused with SpecError where one is wrong."""
    return spec_from_mapping({"dataset": "d.jsonl", "agent": {"adapter": "replay"}, "metrics": metrics, **more})


def yaml(text: str) -> Any:
    """What a piece of YAML says."""
    problems: list[Problem] = []
    data, _ = parse_yaml(text, file="guide", problems=problems)
    assert not problems
    return data


def test_every_kind_has_a_section() -> None:
    """No metric without a definition for people, and no definition without a metric."""
    assert set(SECTIONS) - {"When two texts are the same", "Folding"} == set(METRICS)


def test_every_kind_answers_a_question() -> None:
    """The table from questions to metrics names every metric."""
    table = METRICS_GUIDE.split("## Which metric answers which question\n")[1].split("\n## ")[0]
    assert sorted(re.findall(r"\[([a-z_]+)\]\(metrics/[a-z-]+\.md#\1\)", table)) == sorted(METRICS)


@pytest.mark.parametrize("kind", METRICS)
def test_a_section_is_complete(kind: str) -> None:
    """Formula, range, aggregate, every parameter and every statistic that a gate may name."""
    section, info = SECTIONS[kind], METRICS[kind].info
    for label in ("**Formula**", "**Range**", "**Aggregate**", "**Example**"):
        assert label in section
    assert info.values
    assert f"**Range**: {info.values.replace('-1', '−1')}" in section
    for parameter in info.parameters:
        assert f"`{parameter.name}`" in section, parameter.name
    for stat in info.stats:
        last = stat.rpartition(".")[2]
        assert f"`{last}`" in section or f"`{last}_s`" in section, stat
    plain = " ".join(section.split()).lower()
    assert any(words in plain for words in ("agent failed", "agent error", "failed rows"))


@pytest.mark.parametrize("kind", METRICS)
def test_the_example_of_a_section_works(kind: str) -> None:
    """The example is a valid entry of `metrics` for its own metric."""
    (example,) = re.findall(r"^\* \*\*Example\*\*: `(- .+)`$", SECTIONS[kind], flags=re.MULTILINE)
    entries = yaml(example)
    spec = spec_with([{"judge_score": None}, *entries] if kind == "combined_score" else entries)
    assert spec.settings.metrics[-1].kind == kind


def test_the_thresholds_in_the_table_are_the_defaults() -> None:
    """The table of thresholds names every metric once and has the numbers of the code."""
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| ([^|]+) \| [^|]+ \| the [^|]+ \|$", METRICS_GUIDE, flags=re.MULTILINE)
    told = {name: text for names, text in rows for name in re.findall(r"\w+", names)}
    assert set(told) == set(METRICS)
    for kind, text in told.items():
        info = METRICS[kind].info
        complete = complete_parameters(kind, info.example, where="m")
        numbers = [float(number) for number in re.findall(r"\d\.\d+", text)]
        assert numbers == [complete[name] for name in ("threshold", "goal") if complete.get(name) is not None]
        assert text.startswith("none") is (complete.get("threshold") is None)


def test_every_check_is_in_the_table() -> None:
    """The guide lists each type of check that is made, and none that is not."""
    table = re.findall(r"^\| ((?:`[a-z0-9:-]+`(?:, )?)+) \|", SECTIONS["assertions"], flags=re.MULTILINE)
    assert {name for names in table for name in re.findall(r"[a-z0-9:-]+", names)} == {
        *CHECKS,
        *SIMILAR_CHECKS,
        *JUDGED_CHECKS,
    }


def _tools(cell: str) -> list[str]:
    return [] if cell.startswith("none") else cell.split(", ")


def test_the_worked_examples_of_tool_calls() -> None:
    """Each row of the guide's table is what the metric makes of these calls, in every trajectory that it names."""
    header, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in re.findall(r"^\| (?:expected|search, book|none, by).*$", SECTIONS["tool_calls"], flags=re.MULTILINE)
    ]
    assert header == ["expected", "called", "`any_order`", "`in_order`", "`exact`", "recall", "precision"]
    assert len(rows) == 6
    for expected, called, *verdicts, recall, precision in rows:
        calls = AgentResponse(tool_calls=tuple(ToolCall(name) for name in _tools(called)))
        for name, verdict in zip(("any_order", "in_order", "exact"), verdicts, strict=True):
            given = {"required": _tools(expected), "trajectory": name}
            parameters = complete_parameters("tool_calls", given, where="m")
            score = METRICS["tool_calls"]("tool_calls", parameters).score(Row(Case("c", (Turn("q"),)), calls))
            assert verdict == ("passes" if score.passed else "fails"), (expected, called, name)
            for cell, figure in ((recall, "recall"), (precision, "precision")):
                anywhere, _, ordered = cell.partition(", in order ")
                due = float(ordered if ordered and name != "any_order" else anywhere)
                assert score.detail[figure] == pytest.approx(due, abs=5e-4), (expected, called, name)


def test_the_trajectories_of_tool_calls_are_in_the_table() -> None:
    """The guide and the definition that `assay metrics show` prints say which tool has which name for a trajectory."""
    definition = sys.modules[METRICS["tool_calls"].__module__].__doc__ or ""
    for name in TRAJECTORIES:
        assert f"\n| `{name}` |" in SECTIONS["tool_calls"]
        assert f"\n    {name} " in definition


def _part(heading: str) -> str:
    return SPEC_GUIDE.split(f"## {heading}\n")[1].split("\n## ")[0]


def test_the_gates_in_the_guide_are_gates() -> None:
    """Every gate of the example parses for a run of all metrics with three runs of each case."""
    example = yaml(_part("Gates").split("```yaml\n")[1].split("```")[0])
    names = {kind: kind for kind in METRICS}
    gates = [parse_gate(text, metrics=names, repeats=3) for text in example["gates"]]
    assert {gate.group for gate in gates} == {"", "category", "tag"}
    assert [gate.goal for gate in gates if gate.goal is not None] == [0.9]
    inline = re.findall(r"`((?:[a-z_]+\.)+[a-z0-9_]+)`", _part("Gates"), flags=re.IGNORECASE)
    for subject in inline:
        if not re.search("METRIC|NAME", subject):
            parse_gate(f"{subject} >= 0.5", metrics=names, repeats=3)


def test_the_gates_of_the_metrics_guide_are_gates() -> None:
    """So does each that the definitions quote."""
    names = {kind: kind for kind in METRICS}
    matches = re.findall(r"`([a-z_.0-9]+ [<>=]+ [0-9.]+)`", METRICS_GUIDE.split("## Gates")[1].split("\n## ")[0])
    assert len(matches) >= 3
    for text in matches:
        parse_gate(text, metrics=names)


def test_the_formulas_in_the_guide_are_formulas() -> None:
    """The example's metrics make a spec; every field, function and word of the grammar is named."""
    part = _part("Formulas")
    spec = spec_with(yaml(part.split("```yaml\n")[1].split("```")[0])["metrics"])
    assert [metric.kind for metric in spec.settings.metrics].count("formula") == 3
    for name in (*FIELDS, *FUNCTIONS, *WORDS - {"if", "else"}):
        assert re.search(rf"`{name}\b|`[^`]*\b{name}\b[^`]*`", part), name
