"""Reading a spec: every problem at once, with file, line and the nearest name."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import Problem, SpecError
from assay.parsing.fields import Fields
from assay.parsing.yaml_nodes import parse_yaml
from assay.specs.loader import load_spec, spec_from_mapping

GOOD: dict[str, Any] = {
    "name": "n",
    "dataset": "d.jsonl",
    "agent": {"adapter": "python", "target": "agent:answer"},
    "metrics": ["exact_match"],
}
BAD = """name: ok
datset: x.jsonl
agent:
  adapter: pyhton
  timeout: 99 parsecs
  concurrency: 0
  retrys: 3
metrics:
  - semantic_similarty
  - exact_match: {threshold: 2, foo: 1}
  - coverage
  - coverage
gates: ["pass_rat >= 0.5", "coverage ~ 3"]
reports: [json, htm]
judge: {provider: openai}
"""


def test_every_mistake_is_named_with_its_line(tmp_path: Path) -> None:
    """A file with many mistakes is refused once, with all of them."""
    file = tmp_path / "assay.yaml"
    file.write_text(BAD)
    with pytest.raises(SpecError) as caught:
        load_spec(file)
    places = {(problem.line, problem.field) for problem in caught.value.problems}
    for expected in (
        (2, "datset"),
        (4, "agent.adapter"),
        (5, "agent.timeout"),
        (6, "agent.concurrency"),
        (7, "agent.retrys"),
        (9, "metrics[0]"),
        (10, "metrics[1].exact_match.foo"),
        (10, "metrics[1].exact_match.threshold"),
        (12, "metrics[3]"),
        (13, "gates[0]"),
        (13, "gates[1]"),
        (14, "reports[1]"),
        (15, "judge.model"),
    ):
        assert expected in places
    text = str(caught.value)
    for name in ("'dataset'", "'python'", "'retries'", "'semantic_similarity'", "'pass_rate'"):
        assert f"did you mean {name}" in text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"preset": "sql-agnt"}, "did you mean .sql-agent"),
        ({"agent": {"adapter": "a2a"}}, "agent.target: .*http or https URL"),
        (
            {"agent": {"adapter": "a2a", "target": "https://a.example/x?key=sekrit"}},
            r"agent.target: must end before its query or fragment, as paths follow it(?!.*sekrit)",
        ),
        ({"agent": {"adapter": "adk", "target": "https://a.example/#f"}}, "agent.target: must end before its query"),
        ({"agent": {"adapter": "http", "target": "ftp://x"}}, "http or https"),
        ({"agent": {"adapter": "http", "target": "http://x", "response": {"text": "a ||"}}}, "JMESPath"),
        ({"agent": {"adapter": "http", "target": "http://x", "body": "{{inptu}}"}}, "did you mean 'input'"),
        ({"agent": {"adapter": "replay", "target": "x"}}, "leave the target out"),
        ({"metrics": [{"my_score": {"formula": "1"}}]}, "formula"),
        ({"metrics": [{"exact_match": {"threshold": True}}]}, "must be a number"),
        ({"repeats": 0}, "from 1 to 100"),
        ({"team": "x" * 65}, "at most 64 characters"),
        ({"weight": 0}, "from 0.01 to 100"),
        ({"weight": True}, "from 0.01 to 100"),
        ({"map": 3}, "mapping"),
    ],
)
def test_what_this_version_cannot_do_is_refused(changes: dict[str, Any], message: str) -> None:
    """Unsupported features and wrong values are refused, never ignored."""
    with pytest.raises(SpecError, match=message):
        spec_from_mapping({**GOOD, **changes})


def test_the_dataset_may_be_a_mapping() -> None:
    """Its keys mean the same as the short form's; --map and --set take precedence over both."""
    read_as = {"map": {"input": "frage"}, "encoding": "cp1252", "format": "plain", "on_bad_case": "skip"}
    spec = spec_from_mapping({**GOOD, "dataset": {"path": "d.csv", **read_as}}, overrides=["map.id=nr"])
    assert spec.dataset is not None
    assert (spec.dataset.name, spec.dataset_map) == ("d.csv", {"input": "frage", "id": "nr"})
    assert (spec.dataset_encoding, spec.dataset_format, spec.on_bad_case) == ("cp1252", "plain", "skip")
    assert spec_from_mapping({**GOOD, "dataset": {"file": "e.csv"}}).dataset == Path("e.csv").absolute()


@pytest.mark.parametrize(
    ("dataset", "sentence"),
    [
        ({"map": {"input": "frage"}}, "dataset: must be a file name, or a mapping with the file as `path`"),
        ({"path": "d.csv", "mapp": {}}, "dataset.mapp: unknown field of a dataset 'mapp'; did you mean 'map'?"),
        ({"path": "d.csv", "encoding": "x"}, "dataset.encoding: is also set beside `dataset`, as `encoding`"),
        ([{"question": "it's"}], "dataset: must be a file name, not a list of 1: write the cases to a file such as"),
        ({"path": 5}, "dataset: must be a file name, not 5"),
    ],
)
def test_what_is_no_dataset_of_a_spec(dataset: object, sentence: str) -> None:
    """The message says what to write, in place of the value."""
    with pytest.raises(SpecError) as caught:
        spec_from_mapping({**GOOD, "encoding": "utf-8", "dataset": dataset})
    assert str(caught.value.problems[0]).startswith(sentence)


@pytest.mark.parametrize(
    ("written", "name", "kind"),
    [
        ("exact-match", "exact_match", "exact_match"),
        ("similarity", "similarity", "semantic_similarity"),
        ({"retrieval": {"threshold": 0.5}}, "retrieval", "retrieval_accuracy"),
        ({"own": {"kind": "hit-rate"}}, "own", "hit_rate"),
        ({"fidelity": {"kind": "exact_match"}}, "fidelity", "exact_match"),
    ],
)
def test_metrics_have_the_names_that_scoring_without_a_run_takes(written: Any, name: str, kind: str) -> None:
    """Gates and reports name a metric as the spec does."""
    (metric,) = spec_from_mapping({**GOOD, "metrics": [written], "gates": [f"{name} >= 0.5"]}).settings.metrics
    assert (metric.name, metric.kind) == (name, kind)


def test_presets_overrides_and_defaults() -> None:
    """A preset fills in metrics, --set changes one by its name, defaults are those of the reference."""
    preset = {key: value for key, value in GOOD.items() if key != "metrics"} | {"preset": "rag"}
    spec = spec_from_mapping(preset, overrides=["metrics.semantic_similarity.threshold=0.8", "agent.timeout=500ms"])
    names = [metric.name for metric in spec.settings.metrics]
    assert names == ["semantic_similarity", "coverage", "satisfaction", "latency"]
    assert spec.settings.metrics[0].parameters["threshold"] == 0.8
    agent = spec.settings.agent
    assert (agent.timeout_s, agent.concurrency, agent.retries) == (0.5, 16, 2)
    assert [m.name for m in spec_from_mapping(preset, metrics=["coverage"]).settings.metrics] == ["coverage"]


@pytest.mark.parametrize(
    "gate", ["latency.p95 < 4", "category.easy.latency < 4", 'tag."a b".latency < 4', "latency.p96 < 4"]
)
def test_a_gate_on_a_metric_that_was_left_out_says_so(gate: str) -> None:
    """--metrics may leave out what a gate needs; the sentence names both ways out, and each of them works."""
    spec = {**GOOD, "metrics": ["exact_match", "latency", "tokens"], "gates": ["exact_match > 0.5", gate, "tokens < 9"]}
    with pytest.raises(SpecError) as caught:
        spec_from_mapping(spec, metrics=["exact_match"])
    assert [problem.message for problem in caught.value.problems] == [
        f"needs the metric {name}, which --metrics leaves out: add it (--metrics exact_match,{name}), or run without "
        "the spec's gates (--set 'gates=[]')"
        for name in ("latency", "tokens")
    ]
    assert spec_from_mapping(spec, metrics=["exact_match"], overrides=["gates=[]"]).settings.gates == ()


def test_a_category_may_be_called_like_a_metric_that_was_left_out() -> None:
    """What a gate names is looked at only where the gate is wrong, and names in quotes are nobody's metrics."""
    spec = {**GOOD, "metrics": ["exact_match", "latency"], "gates": ["category.latency.exact_match > 0.5"]}
    assert spec_from_mapping(spec, metrics=["exact_match"]).settings.gates == tuple(spec["gates"])
    with pytest.raises(SpecError, match="did you mean 'exact_match'"):
        spec_from_mapping({**spec, "gates": ['tag."latency".exact_mtch > 0.5']}, metrics=["exact_match"])


def test_a_threshold_belongs_to_its_model() -> None:
    """A model other than the default has no threshold unless the spec sets one."""
    spec = spec_from_mapping({**GOOD, "metrics": [{"semantic_similarity": {"model": "other"}}]})
    assert spec.settings.metrics[0].parameters["threshold"] is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("no", "no"), ("2026-01-01", "2026-01-01"), ("1e-3", 0.001), ("true", True), ("'1'", "1"), ("~", None), ("7", 7)],
)
def test_yaml_scalars_are_what_a_person_wrote(text: str, expected: object) -> None:
    """Only true and false are booleans; dates stay texts."""
    problems: list[Problem] = []
    data, lines = parse_yaml(f"a: {text}\n", file="f", problems=problems)
    assert not problems
    assert (data, lines["a"]) == ({"a": expected}, 1)


@pytest.mark.parametrize(
    "text", ["a: 1\na: 2", "a: &x 1\nb: *x", "a: !foo 1", "a: .nan", "a: [1", "{" * 200, "a: 1\n---\nb: 2"]
)
def test_yaml_that_means_something_else_is_refused(text: str) -> None:
    """Duplicate keys, aliases, tags, NaN, broken and deep documents are problems."""
    problems: list[Problem] = []
    parse_yaml(text, file="f", problems=problems)
    assert problems


@given(st.text(max_size=200))
def test_no_text_breaks_a_parser(text: str) -> None:
    """Any text in a spec is read or refused with SpecError."""
    with contextlib.suppress(SpecError):
        spec_from_mapping({**GOOD, "agent": text})
    parse_yaml(text, file="f", problems=[])


@pytest.mark.parametrize(
    ("value", "read", "expected", "sentence"),
    [
        (None, lambda fields: fields.whole("x", 3, 1, 9), 3, ""),
        (4.0, lambda fields: fields.whole("x", 3, 1, 9), 4, ""),
        (4.5, lambda fields: fields.whole("x", 3, 1, 9), 3, "must be a whole number from 1 to 9, not 4.5"),
        (True, lambda fields: fields.whole("x", 3), 3, "must be a whole number, not True"),
        (10, lambda fields: fields.whole("x", 3, 1, 9_000), 10, ""),
        ("10", lambda fields: fields.whole("x", 3, 1, 9_000), 3, "must be a whole number from 1 to 9,000, not '10'"),
        (None, lambda fields: fields.number("x"), None, ""),
        (2, lambda fields: fields.number("x"), 2.0, ""),
        (3, lambda fields: fields.number("x", 1.0, 0.5, 2), 1.0, "must be a number from 0.5 to 2, not 3"),
        (float("nan"), lambda fields: fields.number("x", 1.0, 0, 2), 1.0, "must be a number from 0 to 2, not nan"),
        (1, lambda fields: fields.text("x"), "", "must be a string, not 1"),
        ("yes", lambda fields: fields.flag("x"), False, "must be true or false, not 'yes'"),
        (None, lambda fields: fields.choice("x", ("a", "b")), "a", ""),
        ("c", lambda fields: fields.choice("x", ("a", "b")), "a", "must be a or b, not 'c'"),
        (["a"], lambda fields: fields.choice("x", ("a", "b", "c")), "a", "must be one of a, b, c, not ['a']"),
        ("2m", lambda fields: fields.duration_s("x", 30, 1, 3600, "a duration"), 120.0, ""),
        ("2h", lambda fields: fields.duration_s("x", 30, 1, 3600, "a time"), 30, "must be a time, not '2h'"),
        ("soon", lambda fields: fields.duration_s("x", 30, 1, 3600, "a time"), 30, "must be a time, not 'soon'"),
    ],
)
def test_a_field_is_read_by_its_kind(value: object, read: Any, expected: object, sentence: str) -> None:
    """A wrong value is reported once, and its default lets the others be checked."""
    reported: list[tuple[str, str]] = []
    assert read(Fields({"x": value}, lambda name, message: reported.append((name, message)))) == expected
    assert reported == ([("x", sentence)] if sentence else [])


def test_fields_that_there_are_not_are_reported() -> None:
    """Each unknown field is reported with its probable meaning."""
    reported: list[tuple[str, str]] = []
    Fields({"targt": 1, "target": 2}, lambda name, message: reported.append((name, message))).unknown(("target",))
    assert reported == [("targt", "unknown field 'targt'; did you mean 'target'?")]
