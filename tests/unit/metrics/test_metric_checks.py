"""Checks of the answer: contains, regex, JSON schema, tool calls, assertions; tokens and cost."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import SpecError
from assay.metrics import complete_parameters
from assay.metrics.assertions import assertion_problem
from assay.metrics.core.score import Metric, Row
from assay.metrics.cost import cost_usd
from assay.model.answers.agent_response import (
    AgentError,
    AgentErrorKind,
    AgentResponse,
    AgentStatus,
    Usage,
    response_from_json,
)
from assay.model.case import Assertion, Case, Turn
from assay.model.run import ScoreStatus
from assay.reports.words.metric_text import reason_text
from assay.text.edit_distance import edit_distance

if TYPE_CHECKING:
    from collections.abc import Callable

ERROR = AgentError(AgentErrorKind.RAISED, "no")


def answered(text: str = "", *, failed: bool = False, case: Case | None = None, **answer: Any) -> Row:
    """A row with an answer."""
    status = AgentStatus.ERROR if failed else AgentStatus.SUCCESS
    response = AgentResponse(status=status, text=text, error=ERROR if failed else None, **answer)
    return Row(case or Case("case", (Turn("question"),)), response)


@pytest.mark.parametrize(
    ("parameters", "text", "holds"),
    [
        ({"values": ["Paris"]}, "It is PARIS.", True),
        ({"values": ["Paris"], "case_sensitive": True}, "It is PARIS.", False),
        ({"values": ["Paris", "Rome"]}, "Paris", False),
        ({"values": ["Paris", "Rome"], "mode": "any"}, "Rome", True),
        ({"values": ["art"]}, "A party", True),
        ({"values": ["art"], "as_words": True}, "A party", False),
        ({"values": ["عذرا"], "fold": True}, "عذرًا، لا", True),
        ({"values": ["عذرا"], "as_words": True}, "وعذراً على ذلك", True),
        ({"values": ["عذرا"], "as_words": True}, "عذراء", False),
    ],
)
def test_contains(metric: Callable[..., Metric], parameters: dict[str, Any], text: str, holds: bool) -> None:
    """A text is matched exactly, without case, folded, or as words."""
    score = metric("contains", **parameters).score(answered(text))
    assert (score.value, score.passed) == (float(holds), holds)


@pytest.mark.parametrize(
    ("parameters", "text", "holds"),
    [
        ({"pattern": r"\d+ tenders"}, "there are 42 tenders", True),
        ({"pattern": r"\d+ tenders"}, "there are no tenders", False),
        ({"pattern": r"\d+", "mode": "fullmatch"}, "42", True),
        ({"pattern": r"\d+", "mode": "fullmatch"}, "42 ", False),
        ({"pattern": "paris"}, "Paris", False),
        ({"pattern": "paris", "case_sensitive": False}, "Paris", True),
        ({"pattern": "a.b"}, "a\nb", False),
        ({"pattern": "(?s)a.b"}, "a\nb", True),
        ({"pattern": "^b$"}, "a\nb", False),
        ({"pattern": "(?m)^b$"}, "a\nb", True),
        ({"pattern": r"\pN"}, "٤٢", True),
        ({"pattern": "(a+)+$"}, "a" * 50_000 + "b", False),
    ],
)
def test_regex(metric: Callable[..., Metric], parameters: dict[str, Any], text: str, holds: bool) -> None:
    """Patterns are RE2's: any text takes linear time."""
    assert metric("regex", **parameters).score(answered(text)).value == float(holds)


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1", "a{2000}", "x" * 20_000])
def test_patterns_that_are_refused(pattern: str) -> None:
    """A pattern that RE2 does not take is a problem of the spec, with the field's name."""
    with pytest.raises(SpecError, match=r"metrics\[0\]\.pattern"):
        complete_parameters("regex", {"pattern": pattern}, where="metrics[0]")


SCHEMA = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer", "minimum": 1}}}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"n": 3}', ""),
        ('```json\n{"n": 3}\n```', ""),
        ('{"n": 0}', "schema"),
        ('{"n": true}', "schema"),
        ("[1]", "schema"),
        ('{"n": NaN}', "not_json"),
        ('{"n": 3} and more', "not_json"),
        ("[" * 100_000, "not_json"),
        ("", "not_json"),
    ],
)
def test_json_schema(metric: Callable[..., Metric], text: str, reason: str) -> None:
    """The answer is JSON of that shape, or the row says where it is not."""
    score = metric("json_schema", schema=SCHEMA).score(answered(text))
    assert (score.passed, score.reason) == (not reason, reason)
    assert bool(score.detail.get("complaints")) is bool(reason)


def test_structured_output_is_checked_before_the_text(metric: Callable[..., Metric]) -> None:
    """An answer with structured output needs no JSON in its text."""
    assert metric("json_schema", schema=SCHEMA).score(answered("prose", output={"n": 1})).passed is True


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "objekt"}, "no JSON schema at type"),
        ({"$ref": "https://example.org/x.json"}, "nothing is fetched"),
        ({"items": {"$ref": "other.json#/a"}}, "nothing is fetched"),
        ({"items": [{"type": "integer"}]}, "no JSON schema at items"),
    ],
)
def test_schemas_that_are_refused(schema: dict[str, Any], message: str) -> None:
    """A schema that is none, or lies elsewhere, is a problem of the spec."""
    with pytest.raises(SpecError, match=message):
        complete_parameters("json_schema", {"schema": schema}, where="metrics[0]")


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [("contains", {}), ("regex", {}), ("json_schema", {}), ("contains", {"values": ["a"], "mode": None})],
)
def test_what_is_required_is_missed(kind: str, parameters: dict[str, Any]) -> None:
    """A check without its required value is refused with the field's name."""
    with pytest.raises(SpecError, match="is missing"):
        complete_parameters(kind, parameters, where="metrics[0]")


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [("contains", {"values": [""[:0] + "a"]}), ("regex", {"pattern": "a"}), ("json_schema", {"schema": {}})],
)
def test_an_agent_error_fails_a_check(metric: Callable[..., Metric], kind: str, parameters: dict[str, Any]) -> None:
    """The text beside an agent error is not checked."""
    score = metric(kind, **parameters).score(answered("a", failed=True, output={}))
    assert (score.value, score.passed, score.reason) == (0.0, False, "agent_error")


@pytest.mark.parametrize(
    ("check", "text", "holds"),
    [
        (Assertion("equals", "Paris"), " Paris\n", True),
        (Assertion("equals", {"a": 1}), '{"a": 1}', True),
        (Assertion("equals", "Paris", negate=True), "Paris", False),
        (Assertion("contains", "ar"), "Paris", True),
        (Assertion("icontains", "PAR"), "Paris", True),
        (Assertion("contains-all", ["P", "z"]), "Paris", False),
        (Assertion("contains-any", ["P", "z"]), "Paris", True),
        (Assertion("icontains-all", ["p", "S"]), "Paris", True),
        (Assertion("icontains-any", ["Z", "S"]), "Paris", True),
        (Assertion("starts-with", "Pa"), "Paris", True),
        (Assertion("regex", "^P.*s$"), "Paris", True),
        (Assertion("is-json"), "{}", True),
        (Assertion("is-json", SCHEMA), '{"n": 0}', False),
        (Assertion("contains-json", SCHEMA), 'It is {"n": 0} or {"n": 1}.', True),
        (Assertion("contains-json"), "none {here", False),
        (Assertion("levenshtein", "Pariss", 1.0), "Paris", True),
        (Assertion("levenshtein", "London"), "Paris", False),
        (Assertion("rouge-n", "the cat was on the mat"), "the cat sat on the mat", True),
        (Assertion("rouge-n", "the cat was on the mat", 0.9), "the cat sat on the mat", False),
        (Assertion("latency", threshold=500.0), "Paris", True),
        (Assertion("latency", threshold=50.0), "Paris", False),
        (Assertion("cost", threshold=0.01), "Paris", True),
        (Assertion("word-count", 1), "Paris", True),
        (Assertion("word-count", {"min": 2, "max": 3}), "Paris", False),
        (Assertion("finish-reason", "stop"), "Paris", True),
    ],
)
def test_each_check(metric: Callable[..., Metric], check: Assertion, text: str, holds: bool) -> None:
    """Every type of check holds for its own answers only."""
    case = Case("case", (Turn("q"),), assertions=(check,))
    row = answered(text, case=case, latency_ms=100.0, usage=Usage(cost_usd=0.001), finish_reason="stop")
    assert assertion_problem(check) == ""
    score = metric("assertions").score(row)
    assert score.passed is holds
    if check.type != "rouge-n":
        assert score.value == float(holds)


@pytest.mark.parametrize(("negate", "value", "passed"), [(False, 5 / 6, True), (True, 1 / 6, False)])
def test_a_graded_check(metric: Callable[..., Metric], negate: bool, value: float, passed: bool) -> None:
    """rouge-n gives its F1, and what is left of it where it should not hold."""
    check = Assertion("rouge-n", "the cat was on the mat", negate=negate)
    case = Case("case", (Turn("q"),), assertions=(check,))
    score = metric("assertions").score(answered("the cat sat on the mat", case=case))
    assert score.value == pytest.approx(value)
    assert score.passed is passed


def test_weights_and_thresholds_of_assertions(metric: Callable[..., Metric]) -> None:
    """The value is the weighted mean; a weight of 0 decides nothing; a threshold of the case decides instead."""
    checks = (
        Assertion("contains", "a", weight=3.0),
        Assertion("contains", "b"),
        Assertion("contains", "z", weight=0.0, group="shown"),
    )
    case = Case("case", (Turn("q"),), assertions=checks)
    score = metric("assertions").score(answered("a", case=case))
    assert (score.value, score.passed, score.reason) == (0.75, False, "contains, shown")
    assert [check["passed"] for check in score.detail["checks"]] == [True, False, False]
    lenient = dataclasses.replace(case, thresholds={"assertions": 0.75})
    assert metric("assertions").score(answered("a", case=lenient)).passed is True


def test_groups_are_averaged(metric: Callable[..., Metric], fold: Callable[..., Any]) -> None:
    """The mean is over rows with checks; of an agent error no check holds."""
    labelled = Case("case", (Turn("q"),), assertions=(Assertion("contains", "a", group="facts"),))
    summary = fold(metric("assertions"), [answered("a"), answered("a", case=labelled), answered("b", case=labelled)])
    assert (summary.value, summary.scored_count, summary.skipped_count) == (0.5, 2, 1)
    assert summary.detail == {"checks": 2, "held": 1, "not_made": 0, "groups": {"facts": 0.5}}
    assert metric("assertions").score(answered("a", failed=True, case=labelled)).value == 0.0


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (Assertion("contians", "a"), "did you mean 'contains'"),
        (Assertion("contains"), "needs a text"),
        (Assertion("contains-all", {"a": 1}), "needs a list"),
        (Assertion("contains-all", " , "), "needs a list"),
        (Assertion("regex", "("), "RE2"),
        (Assertion("is-json", {"type": "objekt"}), "JSON schema"),
        (Assertion("latency"), "needs a threshold"),
        (Assertion("word-count", "many"), "number of words"),
        (Assertion("word-count", {"min": 1, "most": 3}), "number of words"),
        (Assertion("word-count", {}), "number of words"),
        (Assertion("contains", "a", weight=-1.0), "weight"),
    ],
)
def test_checks_that_are_refused(check: Assertion, message: str) -> None:
    """A check that cannot be made is a sentence when the dataset is read."""
    assert message in assertion_problem(check)


@pytest.mark.parametrize("kind", ["contains", "icontains", "starts-with", "levenshtein", "rouge-n", "finish-reason"])
@pytest.mark.parametrize("value", [None, "", ["a"]])
def test_a_check_against_a_text_needs_one(kind: str, value: object) -> None:
    """Compared with no text, or with several, an answer would fail in every row."""
    assert assertion_problem(Assertion(kind, value)) == f"{kind} needs a text as its value"


def edits(first: str, second: str) -> int:
    """Return the Levenshtein distance by its definition."""
    row = list(range(len(second) + 1))
    for i, char in enumerate(first, start=1):
        before, row[0] = row[0], i
        for j, other in enumerate(second, start=1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (char != other))
    return row[-1]


@given(st.text("abcé", max_size=80), st.text("abcé", max_size=80))
def test_edits_are_those_of_the_whole_table(first: str, second: str) -> None:
    """The bit-parallel distance equals the table's, in both directions."""
    assert edit_distance(first, second) == edit_distance(second, first) == edits(first, second)


def test_texts_too_long_to_compare_decide_nothing(metric: Callable[..., Metric]) -> None:
    """Texts of book length are not compared: the check stays open and the row undecided."""
    check = Assertion("levenshtein", "a" * 20_000, 30_000.0)
    case = Case("case", (Turn("q"),), assertions=(check,))
    score = metric("assertions").score(answered("b" * 20_000, case=case))
    assert (score.value, score.passed, score.reason) == (None, None, "not made: levenshtein (texts too long)")
    assert score.detail["checks"][0]["reason"] == "texts too long"


@pytest.mark.parametrize(
    ("usage", "value"),
    [
        (Usage(input_tokens=1200, output_tokens=150), 0.00195),
        (Usage(input_tokens=1200, output_tokens=150, cache_read_tokens=1000), 0.00105),
        (Usage(input_tokens=1200, output_tokens=150, cache_write_tokens=1000), 0.0022),
        (Usage(input_tokens=10, output_tokens=1, cache_read_tokens=11), None),
        (Usage(input_tokens=10), None),
    ],
)
def test_cost_by_prices(usage: Usage, value: float | None) -> None:
    """Cached tokens are part of the input and have prices of their own."""
    cost = cost_usd(usage, 1.0, 5.0)
    assert cost == (None if value is None else pytest.approx(value))


def test_cost_of_rows(metric: Callable[..., Metric], fold: Callable[..., Any]) -> None:
    """A reported cost comes before prices; without either the row is skipped, never 0."""
    priced = metric("cost", input_price=1.0, output_price=5.0, threshold=0.002)
    rows = [
        answered(usage=Usage(input_tokens=1200, output_tokens=150)),
        answered(usage=Usage(input_tokens=1200, output_tokens=150, cost_usd=0.004)),
        answered(usage=Usage(total_tokens=5)),
        answered(),
    ]
    summary = fold(priced, rows)
    assert (summary.scored_count, summary.skipped_count, summary.passed_count, summary.failed_count) == (2, 2, 1, 1)
    assert summary.detail["total_usd"] == pytest.approx(0.00595)
    assert metric("cost").score(rows[0]).reason == "no_price"


@pytest.mark.parametrize("cost_usd", [-100.0, -1e-9, 1_000_001.0, 1e300])
def test_a_cost_that_cannot_be_is_an_error_and_meets_no_check(metric: Callable[..., Metric], cost_usd: float) -> None:
    """No prices stand in for it, and a check against a limit is not made: a negative cost would meet each."""
    case = Case("case", (Turn("q"),), assertions=(Assertion("cost", threshold=0.01),))
    row = answered(case=case, usage=Usage(input_tokens=10, output_tokens=1, cost_usd=cost_usd))
    score = metric("cost", input_price=1.0, output_price=5.0).score(row)
    assert (score.status, score.reason) == (ScoreStatus.ERROR, "invalid_cost")
    assert metric("assertions").score(row).reason == f"not made: cost (a cost of {cost_usd:g} USD was reported)"


def test_a_negative_latency_meets_no_check(metric: Callable[..., Metric]) -> None:
    """A check against a limit is not made."""
    case = Case("case", (Turn("q"),), assertions=(Assertion("latency", threshold=500.0),))
    score = metric("assertions").score(answered(case=case, latency_ms=-1.0))
    assert score.reason == "not made: latency (a latency of -1 ms was reported)"


@pytest.mark.parametrize("usage", [Usage(total_tokens=2**62), Usage(input_tokens=10**12, output_tokens=1)])
def test_tokens_that_cannot_be_are_an_error(metric: Callable[..., Metric], usage: Usage) -> None:
    """The sums of a run hold what was measured alone."""
    score = metric("tokens").score(answered(usage=usage))
    assert (score.status, score.reason) == (ScoreStatus.ERROR, "invalid_tokens")


def test_an_invalid_cost_is_counted(metric: Callable[..., Metric], fold: Callable[..., Any]) -> None:
    """The summary knows which of the errors lie in what the agent reports."""
    summary = fold(metric("cost"), [answered(usage=Usage(cost_usd=cost)) for cost in (-1.0, 0.5)])
    assert (summary.own_error_count, summary.detail) == (1, {"total_usd": 0.5, "invalid_answers": 1})


def test_a_cost_that_is_not_read_is_named(metric: Callable[..., Metric]) -> None:
    """An agent that returns cost_usd beside its usage learns where it belongs."""
    tokens = Usage(input_tokens=1, output_tokens=1)
    for usage, reason in ((None, "no_tokens"), (tokens, "no_price")):
        score = metric("cost").score(answered(usage=usage, metadata={"cost_usd": 0.1}))
        assert (score.status, score.reason) == (ScoreStatus.SKIPPED, reason)
        assert reason_text(score).endswith("the answer has cost_usd beside usage, and it is read as usage.cost_usd")
        assert metric("cost").score(answered(usage=usage)).detail == {}


@pytest.mark.parametrize("kind", ["cost", "tokens"])
@pytest.mark.parametrize(
    ("beside", "message"),
    [
        ({"usage": {"input_tokens": 0, "output_tokens": 0, "cost_usd": 0}}, "usage says 0"),
        ({"prompt_tokens": 4, "completion_tokens": 2}, "the counts are in 'prompt_tokens'"),
        (
            {"response_metadata": {"tokenUsage": {"promptTokens": 4, "completionTokens": 2}}},
            "the counts are in 'response_metadata",
        ),
        ({"prompt_eval_count": 4, "eval_count": 2}, "the counts are in 'prompt_eval_count'"),
    ],
)
def test_counts_that_are_not_read_are_named(
    metric: Callable[..., Metric], kind: str, beside: dict[str, Any], message: str
) -> None:
    """Neither a service that counts nothing nor counts beside the usage are free of charge."""
    parameters = {"input_price": 3.0, "output_price": 15.0} if kind == "cost" else {}
    score = metric(kind, **parameters).score(answered(text="t", **_parts(beside)))
    assert (score.status, score.reason) == (ScoreStatus.SKIPPED, "no_tokens")
    assert message in reason_text(score)


def _parts(beside: dict[str, Any]) -> dict[str, Any]:
    response = response_from_json({"text": "t", **beside})
    return {"usage": response.usage, "metadata": response.metadata}


def test_tokens_of_rows(metric: Callable[..., Metric], fold: Callable[..., Any]) -> None:
    """Tokens are the total, or input and output; 0 and absent mean not counted."""
    rows = [
        answered(usage=Usage(input_tokens=100, output_tokens=50, cache_read_tokens=80)),
        answered(usage=Usage(total_tokens=1000)),
        answered(usage=Usage(total_tokens=0)),
        answered(failed=True, usage=Usage(total_tokens=50)),
        answered(),
    ]
    summary = fold(metric("tokens", threshold=400), rows)
    assert (summary.value, summary.scored_count, summary.skipped_count, summary.meets_threshold) == (400.0, 3, 2, True)
    assert (summary.passed_count, summary.failed_count, summary.rule) == (2, 1, "at_most")
    assert (summary.detail["total_tokens"], summary.detail["cache_read_tokens"]) == (1200, 80)
    json.dumps(summary.detail, allow_nan=False)


@pytest.mark.parametrize(("wrong", "complaints"), [(9, 9), (10, 10), (11, 10)])
def test_ten_complaints_are_the_most(metric: Callable[..., Metric], wrong: int, complaints: int) -> None:
    """A row keeps at most ten departures from the schema."""
    checked = metric("json_schema", schema={"items": {"type": "string"}})
    score = checked.score(Row(Case("c", (Turn("q"),)), AgentResponse(output=[1] * wrong)))
    assert len(score.detail["complaints"]) == complaints


def test_a_part_that_names_its_draft_has_no_patterns_of_another_kind(metric: Callable[..., Metric]) -> None:
    """Patterns of a definition with a $schema of its own are RE2's too, whose digits are ASCII: Python's can hang."""
    draft = "https://json-schema.org/draft/2020-12/schema"
    schema = {"$defs": {"a": {"$schema": draft, "$id": "urn:a", "pattern": r"^\d+$"}}, "$ref": "urn:a"}
    checked = metric("json_schema", schema=schema)
    assert checked.score(Row(Case("c", (Turn("q"),)), AgentResponse(output="42"))).passed is True
    assert checked.score(Row(Case("c", (Turn("q"),)), AgentResponse(output="٤٢"))).passed is False


@pytest.mark.parametrize(("before", "hits"), [(999_999, True), (1_000_000, False)])
def test_texts_are_searched_up_to_a_million_characters(metric: Callable[..., Metric], before: int, hits: bool) -> None:
    """What stands behind the millionth character is not found, by the metric and by the check of a case."""
    response = AgentResponse(text="a" * before + "b")
    assert metric("regex", pattern="b").score(Row(Case("c", (Turn("q"),)), response)).passed is hits
    case = Case("c", (Turn("q"),), assertions=(Assertion("regex", "b"),))
    assert metric("assertions").score(Row(case, response)).passed is hits
