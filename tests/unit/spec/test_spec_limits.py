"""What a spec, a case and an answer may hold: the same limits where a spec is read and where a run is accepted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.datasets.cases.case_rules import case_problems
from assay.errors import InvalidInputError, SpecError
from assay.model.answers.agent_request import AgentRequest
from assay.model.answers.agent_response import MalformedAnswerError, response_from_json
from assay.model.answers.response_expressions import expression_problem, growth_of
from assay.model.case import Assertion, Case, ExpectedTool, Turn
from assay.model.run import AgentSpec, DatasetReading, MetricSpec, RunSpec
from assay.specs.http_options import render
from assay.specs.loader import spec_from_mapping
from assay.specs.prompt_template import FilledTooLargeError, fill, template_problem
from assay_orchestrator.runs.admission import check_settings
from assay_orchestrator.settings import Settings

LIMITS = Settings(listen="unix:/nowhere", database=Path("nowhere.db"), http_hosts=("*",))


def levels(count: int) -> dict[str, Any]:
    """Return a schema that refers to each of its definitions twice."""
    definitions: dict[str, Any] = {
        f"l{index}": {"allOf": [{"$ref": f"#/$defs/l{index + 1}"}] * 2} for index in range(count)
    }
    return {"$ref": "#/$defs/l0", "$defs": {**definitions, f"l{count}": {"type": "object"}}}


def nested(count: int) -> dict[str, Any]:
    """Return a schema nested some levels deep."""
    schema: dict[str, Any] = {}
    for _ in range(count):
        schema = {"not": schema}
    return schema


METRICS: list[tuple[str, dict[str, Any], str]] = [
    ("json_schema", {"schema": {"description": "x" * 65_536}}, "characters as JSON, more than 65,536"),
    ("json_schema", {"schema": {"enum": list(range(1001))}}, "has a list of 1,001 entries, more than 1,000"),
    ("json_schema", {"schema": nested(50)}, "is nested more than 50 levels deep"),
    ("json_schema", {"schema": nested(5000)}, "is nested "),
    ("json_schema", {"schema": levels(18)}, "stands for 6,291,331 parts once its references are written out"),
    ("json_schema", {"schema": levels(40)}, "parts once its references are written out, more than 10,000"),
    ("json_schema", {"schema": {"$id": "http://[", "$ref": "x"}}, "has an $id or $ref that cannot be read"),
    ("json_schema", {"schema": {"$ref": "#/allOf/x", "allOf": [{}]}}, "has an $id or $ref that cannot be read"),
    ("regex", {"pattern": "a" * 10_001}, "has 10,001 characters, more than 10,000"),
    ("regex", {"pattern": r"(\pL{1,300}){1,3}" * 20}, "needs more than 1 MiB once compiled"),
    ("contains", {"values": ["x"] * 1001}, "has 1,001 texts, more than 1,000"),
    ("contains", {"values": ["x" * 60_000] * 2}, "has 120,000 characters, more than 100,000"),
    ("formula", {"formula": "latency_ms", "parameters": {f"n{i}": 1 for i in range(201)}}, "has 201 numbers"),
]


@pytest.mark.parametrize(("kind", "parameters", "sentence"), METRICS, ids=range(len(METRICS)))
def test_a_metric_over_a_limit_is_refused_by_both(kind: str, parameters: dict[str, Any], sentence: str) -> None:
    """The sentence of each limit names it, in the reader of specs and in the service."""
    given = {"name": "r", "dataset": "d.jsonl", "agent": {"adapter": "replay"}, "metrics": [{kind: parameters}]}
    with pytest.raises(InvalidInputError) as read:
        spec_from_mapping(given)
    with pytest.raises(InvalidInputError) as asked:
        check_settings(RunSpec("r", AgentSpec("replay"), (MetricSpec(kind, parameters),)), LIMITS)
    for refused in (read, asked):
        assert [sentence in problem.message for problem in refused.value.problems] == [True], refused.value


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("(" * 5000 + "a" + ")" * 5000, "has 10,001 characters, more than 1,000"),
        ("!" * 900 + "a", "is nested more than 50 levels deep"),
        ("a" + "[?b" * 200 + "]" * 200, "is nested more than 50 levels deep"),
        ("a[", "is not valid JMESPath"),
        ("|".join(["@", *["[@,@]", "[]"] * 100]), "is nested more than 50 levels deep"),
    ],
)
def test_expressions_are_refused_by_both(expression: str, sentence: str) -> None:
    """An expression of agent.response has at most 1,000 characters and 50 levels, and never overflows the stack."""
    response = {"text": expression}
    given = {"name": "r", "dataset": "d.jsonl", "metrics": ["latency"],
             "agent": {"adapter": "http", "target": "http://a/", "response": response}}  # fmt: skip
    settings = RunSpec("r", AgentSpec("http", "http://a/", options={"response": response}), (MetricSpec("latency"),))
    with pytest.raises(InvalidInputError) as read:
        spec_from_mapping(given)
    with pytest.raises(InvalidInputError) as asked:
        check_settings(settings, LIMITS)
    for refused in (read, asked):
        assert [problem.field for problem in refused.value.problems] == ["agent.response.text"]
        assert sentence in refused.value.problems[0].message


def test_metrics_and_gates_are_counted_before_they_are_read() -> None:
    """A run has at most 200 metrics and 200 gates; ten thousand are one problem."""
    names = [f"m{index}" for index in range(10_000)]
    given = {"name": "r", "dataset": "d.jsonl", "agent": {"adapter": "replay"},
             "metrics": [{name: {"kind": "nonsense"}} for name in names], "gates": ["nonsense"] * 10_000}  # fmt: skip
    settings = RunSpec(
        "r",
        AgentSpec("replay"),
        tuple(MetricSpec(name, {}, "nonsense") for name in names),
        gates=("nonsense",) * 10_000,
    )
    for read in (lambda: spec_from_mapping(given), lambda: check_settings(settings, LIMITS)):
        with pytest.raises(InvalidInputError) as refused:
            read()
        assert [problem.message for problem in refused.value.problems] == [
            "has 10,000 metrics, more than 200: split the run",
            "has 10,000 gates, more than 200: split the run",
        ]


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"turns": (Turn("q", expected_sources=("s",) * 1001),)}, "turns[0].expected_sources"),
        ({"turns": (Turn("q", expected_tools=(ExpectedTool("t"),) * 1001),)}, "turns[0].expected_tools"),
        ({"turns": (Turn("q"), Turn("q", references=("r",) * 1001))}, "turns[1].references"),
        ({"turns": (Turn("q"),), "assertions": (Assertion("contains", "x"),) * 1001}, "assertions"),
    ],
)
def test_lists_of_a_case_that_metrics_go_through_are_bounded(fields: dict[str, Any], where: str) -> None:
    """A case has at most a thousand references, expected sources, expected tools and checks; they are not read then."""
    (problem,) = case_problems(Case("c", **fields))
    assert (problem.field, problem.message) == (where, "has 1,001 entries, more than 1,000")


@pytest.mark.parametrize("name", ["sources", "retrieved", "tool_calls"])
def test_lists_of_an_answer_are_bounded(name: str) -> None:
    """An answer has at most ten thousand sources, retrieved items and tool calls."""
    entry = {"name": "f", "title": "t"}
    assert len(getattr(response_from_json({name: [entry] * 10_000}), name)) == 10_000
    with pytest.raises(MalformedAnswerError, match=f"{name} has 10,001 entries, more than 10,000"):
        response_from_json({name: [entry] * 10_001})


def _request(text: str) -> AgentRequest:
    return AgentRequest(request_id="r", run_id="r", case_id="c", input=text, variables={"v": {"deep": [text]}})


@pytest.mark.parametrize(
    ("template", "fits"),
    [
        ("{{input}}" * 4, True),
        ("{{input}}" * 5, False),
        ({"a": ["{{input}}"] * 5}, False),
        ({"a": ["{{variables}}"] * 5}, False),
        ({"a": "{{ variables.v }} " * 5}, False),
        ({"a": "{{messages}}" * 3, "b": ["{{messages}}"] * 2}, False),
        ("{{input}}" * 1_000_000, False),
    ],
)
def test_a_request_is_counted_before_it_is_filled(template: object, fits: bool) -> None:
    """A body that repeats a large input is refused without being built: 3,000 of 0.9 MB were 3 GB."""
    request = _request("x" * 1_000_000)
    if fits:
        assert len(render(template, request)) == 4_000_000
        return
    with pytest.raises(FilledTooLargeError, match="larger than 4 MiB"):
        render(template, request)


def test_a_prompt_is_counted_before_it_is_filled() -> None:
    """A prompt that repeats a large variable is refused without being built."""
    values = {"v": ["x" * 1_000_000], "w": "y"}
    assert len(fill("{{v}}{{w}}" * 4, values)) == 4_000_020
    with pytest.raises(FilledTooLargeError, match="larger than 4 MiB"):
        fill("{{v}}" * 5, values)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("spaces", [" ", "\n", "\u2003", " a"])
def test_placeholders_without_an_end_are_found_at_once(spaces: str) -> None:
    """A template of 100,000 spaces behind {{ took hours: the time grew with the third power of their number."""
    template = "{{" + spaces * 100_000
    assert "without }}" in template_problem(template)
    assert render(template, _request("x")) == template


@pytest.mark.parametrize(
    ("expression", "growth"),
    [
        ("text || answer.message[0]", (1, 0)),
        ("items[*].name", (1, 1)),
        ("@|[@,@]|[]", (3, 6)),
        ("{a: b, c: d}", (3, 0)),
    ],
)
def test_the_growth_of_an_expression(expression: str, growth: tuple[int, int]) -> None:
    """Fields cost nothing, projections visit each value, lists of one value twice make two of it."""
    assert expression_problem(expression) == ""
    assert growth_of(expression) == growth


def test_doubling_grows_with_the_power_of_two() -> None:
    """Twenty doublings are more than a million times the reply."""
    assert growth_of("|".join(["@", *["[@,@][]"] * 20]))[0] > 2**20


@pytest.mark.parametrize(("count", "accepted"), [(100, True), (1000, False)])
def test_what_a_client_says_about_its_file_is_kept_within_bounds(count: int, accepted: bool) -> None:
    """It is stored with the run and sent with every look at it, so that it may not be large."""
    reading = DatasetReading("qa.jsonl", "plain/jsonl", "0" * 64, {"input": "q"}, warnings=("w" * 1000,) * count)
    settings = RunSpec("r", AgentSpec("replay"), (MetricSpec("latency"),), dataset=reading)
    limits = Settings(listen="unix:/nowhere", database=Path("nowhere.db"))
    if accepted:
        assert check_settings(settings, limits).dataset == reading
        return
    with pytest.raises(SpecError, match="leave warnings out") as caught:
        check_settings(settings, limits)
    assert [problem.field for problem in caught.value.problems] == ["dataset"]


@pytest.mark.parametrize("name", ["\x1b]52;c;x\x07", "a b", "a\nb", "1a", "", "x" * 65, "é", "a\u2069"])
def test_the_name_of_a_metric_is_checked_for_every_client(name: str) -> None:
    """It is printed on other people's terminals; the rule is that of the spec."""
    limits = Settings(listen="unix:/nowhere", database=Path("nowhere.db"))
    settings = RunSpec("r", AgentSpec("replay"), (MetricSpec(name, {}, "latency"),))
    with pytest.raises(SpecError, match="a metric's name has letters, digits and _") as refused:
        check_settings(settings, limits)
    assert [problem.field for problem in refused.value.problems] == ["metrics[0].name"]
    assert "\x1b" not in refused.value.message


@pytest.mark.parametrize("text", ["a\x1b[2Jb", "a\nb", "a\u2028b", "a\x9bb"])
def test_names_of_runs_and_teams_hold_no_controls(text: str) -> None:
    """They are printed and logged."""
    limits = Settings(listen="unix:/nowhere", database=Path("nowhere.db"))
    settings = RunSpec(text, AgentSpec("replay"), (MetricSpec("latency"),), team=text)
    with pytest.raises(SpecError, match="control characters") as refused:
        check_settings(settings, limits)
    assert [problem.field for problem in refused.value.problems] == ["name", "team"]
