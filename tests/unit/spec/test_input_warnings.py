"""Warnings before a run: metrics that nothing feeds, gates and thresholds that decide nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from assay.agent_host.caller import AgentCaller
from assay.client.input_checks import check_inputs, check_questions
from assay.datasets import open_dataset, records_dataset
from assay.errors import DatasetError
from assay.specs.loader import load_spec, spec_from_mapping
from assay.specs.presets import PRESETS

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.model.answers.agent_request import AgentRequest

FULL = {
    "question": "q", "reference": "r", "expected_sources": ["s"], "expected_tools": ["t"],
    "assertions": [{"type": "contains", "value": "a"}], "category": "easy", "tags": ["t1"],
}  # fmt: skip
JUDGE = {"provider": "replay"}


def warned(record: dict[str, Any], metrics: list[Any], **spec: Any) -> list[str]:
    """Return the parts of a spec that are warned about, over a dataset of one case."""
    data = {"name": "n", "metrics": metrics, **spec}
    loaded = spec_from_mapping(data, needs_dataset=False, needs_agent=False)
    info = check_inputs(loaded, records_dataset([record]))
    return [f"{warning.field}: {warning.message}" for warning in info.warnings]


@pytest.mark.parametrize(
    ("lacking", "metrics", "unfed"),
    [
        ("", ["exact_match", "rouge", "hit_rate", "mrr", "tool_calls", "assertions", "consistency"], []),
        ("reference", ["exact_match", "rouge", "semantic_similarity", "satisfaction", "latency"],
         ["exact_match", "rouge", "semantic_similarity", "satisfaction"]),
        ("expected_sources", ["hit_rate", "mrr", "combined_score", "sources"], ["hit_rate", "mrr", "combined_score"]),
        ("expected_tools", ["tool_calls", {"mine": {"kind": "tool_calls", "forbidden": ["x"]}}], ["tool_calls"]),
        ("assertions", ["assertions", "latency"], ["assertions"]),
        ("expected_sources",
         ["hit_rate", {"a": {"formula": "hit_rate * 2"}}, {"b": {"formula": "coalesce(hit_rate, 0)"}}],
         ["hit_rate", "a"]),
    ],
)  # fmt: skip
def test_a_metric_that_the_dataset_cannot_feed_is_named(lacking: str, metrics: list[Any], unfed: list[str]) -> None:
    """Metrics without input are named, with the formulas that read them; a sufficient dataset has no warning."""
    record = {name: value for name, value in FULL.items() if name != lacking}
    warnings = [each for each in warned(record, [*metrics, "judge_score"], judge=JUDGE) if "cannot be computed" in each]
    assert [each.partition(":")[0].removeprefix("metrics.") for each in warnings] == unfed


def test_a_judged_metric_without_a_judge_is_named() -> None:
    """With what reads its score; a metric that is optional is named with what becomes of it."""
    judged, quality = judge_warnings({"judge_score": {"optional": True}}, "quality", "latency")
    assert judged.startswith("metrics.judge_score: cannot be computed: no judge configured; it is optional")
    assert quality.endswith("or leave it out")
    assert "it reads judge_score" in judge_warnings("hit_rate", "judge_score", "combined_score")[1]


def judge_warnings(*metrics: Any) -> list[str]:
    """Return the warnings about metrics of a spec without a judge."""
    return [each for each in warned(FULL, list(metrics)) if each.startswith("metrics.")]


@pytest.mark.parametrize(
    ("gate", "message"),
    [
        ("pass_rate >= 0", "cannot fail"), ("pass_rate > 1", "cannot hold"), ("pass_rate <= 0.5", "higher is better"),
        ("agent_errors <= 100%", "cannot fail"), ("agent_errors > 0.1", "lower is better"),
        ("exact_match <= 0.5", "higher is better"), ("exact_match > 1", "cannot hold"),
        ("quality >= 1", "cannot fail"), ("quality > 5", "cannot hold"), ("quality == 7", "cannot hold"),
        ("semantic_similarity >= -1", "cannot fail"), ("latency >= 0", "cannot fail"), ("latency < 0", "cannot hold"),
        ("latency.p95 > 4", "lower is better"), ("category.easy.pass_rate >= 0", "cannot fail"),
        ("category.none.pass_rate >= 0.5", "no case has the category"), ("tag.no.rouge >= 0.5", "no case has the tag"),
        ("rouge.rougeL <= 1", "cannot fail"), ("rouge.precision.rouge1 > 1", "cannot hold"),
        ("rouge.recall.rouge2 < 0.5", "higher is better"), ("quality.average_quality >= 1", "cannot fail"),
        ("quality.normalised <= 0.5", "higher is better"), ("latency.mean_score <= 0.8", "higher is better"),
        ("assertions.group.tone >= 0", "cannot fail"), ("assertions.group.tone <= 0.5", "higher is better"),
        ("off >= 0.5", "lower is better"), ("exact_match.pass_rate <= 0.1", "higher is better"),
        ("pass_rate >= 0.5", ""), ("quality >= 4", ""), ("latency.p95 < 4", ""), ("pass_rate == 1", ""),
        ("agent_errors <= 0", ""), ("own <= 3", ""), ("category.easy.pass_rate >= 0.5", ""),
        ("tag.t1.rouge >= 0.5", ""), ("consistency >= 0.8", ""), ("exact_match.correct >= 3", ""),
        ("latency.mean_score >= 0.8", ""), ("rouge.rougeL >= 0.4", ""), ("quality.average_quality >= 4", ""),
    ],
)  # fmt: skip
def test_a_gate_that_decides_nothing_is_a_warning(gate: str, message: str) -> None:
    """A gate that cannot fail, cannot hold or asks for worse is a warning."""
    metrics = [
        "exact_match", "rouge", "quality", "semantic_similarity", "consistency", "latency", "assertions",
        {"own": {"formula": "answer_words"}}, {"off": {"function": "m:f", "higher_is_better": False}},
    ]  # fmt: skip
    warnings = [each for each in warned(FULL, metrics, gates=[gate], judge=JUDGE) if each.startswith("gates[0]")]
    assert len(warnings) == bool(message)
    assert all(message in each for each in warnings)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ({"semantic_similarity": {"threshold": -1}}, "cannot fail"), ({"rouge": {"threshold": 0}}, "cannot fail"),
        ({"quality": {"threshold": 1}}, "cannot fail"), ({"hit_rate": {"threshold": 1}}, "cannot hold"),
        ({"judge_score": {"threshold": 1.0}}, "cannot hold"), ("rouge", ""), ({"latency": {"threshold": 4}}, ""),
    ],
)  # fmt: skip
def test_a_threshold_that_decides_nothing_is_a_warning(metric: Any, message: str) -> None:
    """A threshold that cannot fail or cannot hold is a warning."""
    warnings = [each for each in warned(FULL, [metric, "exact_match"], judge=JUDGE) if ".threshold" in each]
    assert len(warnings) == bool(message)
    assert all(message in each for each in warnings)


def test_warnings_name_the_lines_of_the_spec(tmp_path: Path) -> None:
    """Also where --metrics leaves some out, and where a metric is a plain name."""
    (tmp_path / "cases.jsonl").write_text('{"question": "q"}\n')
    (tmp_path / "assay.yaml").write_text(
        "dataset: cases.jsonl\nagent: {adapter: python, target: 'a:b'}\nmetrics:\n  - latency\n  - exact_match\n"
        "  - rouge:\n      threshold: 0\ngates:\n  - pass_rate >= 0\n"
    )
    for metrics, lines in ((None, [5, 6, 9, 7]), (["rouge"], [6, 9, 7])):
        spec = load_spec(tmp_path, metrics=metrics)
        assert spec.dataset is not None
        assert [warning.line for warning in check_inputs(spec, open_dataset(spec.dataset)).warnings] == lines


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_alone_warns_of_a_missing_judge_only(preset: str) -> None:
    """Its gates and thresholds decide something, and its judged metrics are optional."""
    data = {"name": "n", "preset": preset}
    spec = spec_from_mapping(data, needs_dataset=False, needs_agent=False)
    warnings = check_inputs(spec, records_dataset([FULL])).warnings
    assert all(
        "it is optional" in warning.message for warning in warnings if warning.field.startswith(("metrics", "gates"))
    )
    judged = {metric.name for metric in spec.settings.metrics if metric.is_optional}
    assert judged == {
        warning.field.removeprefix("metrics.") for warning in warnings if warning.field.startswith("metrics")
    }


def test_a_named_judge_that_no_metric_uses_is_a_warning() -> None:
    """The default judge is none: a preset's metrics may need none, and `--metrics` may leave them out."""
    other = {"provider": "openai", "model": "n"}
    metrics = ["latency", {"quality": {"judge": "strict"}}]
    warnings = warned(FULL, metrics, judge=JUDGE, judges={"strict": other, "idle": other})
    assert [each for each in warnings if "used by no metric" in each] == [
        "judges.idle: is used by no metric: name it in a metric with `judge: idle`, or remove it"
    ]


class Remembers:
    """An agent that is a class."""

    def answer(self, question: str) -> str:
        return question


def by_request(request: AgentRequest) -> str:
    return str(request.variables)


@pytest.mark.parametrize(
    ("agent", "refused"),
    [(lambda question: question, True), (Remembers, True), (Remembers().answer, True), (by_request, False)],
)
def test_cases_without_a_question_for_an_agent_that_takes_nothing_else(
    agent: Callable[..., Any], refused: bool
) -> None:
    """They are refused before the first call; an agent that takes the request gets the variables."""
    info = records_dataset([{"variables": {"topic": "lamps"}}, {"question": "q"}]).check()
    caller = AgentCaller(agent)
    if refused:
        with pytest.raises(DatasetError, match="1 of 2 cases have variables and no question"):
            check_questions(caller, info)
    else:
        check_questions(caller, info)
    check_questions(caller, records_dataset([{"question": "q", "variables": {"a": 1}}]).check())
