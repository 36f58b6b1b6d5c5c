"""Formula: the grammar, what it may read, and what is missing or broken."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.errors import SpecError
from assay.metrics import build_metric, complete_parameters
from assay.metrics.core.score import Metric, Row
from assay.metrics.expression.expression_nodes import EvaluationError
from assay.metrics.expression.expressions import FUNCTIONS, parse_expression
from assay.metrics.formula import FIELDS, with_own_numbers
from assay.metrics.rows.order import check_metrics
from assay.metrics.rows.row_scores import score_row
from assay.model.answers.agent_response import (
    AgentError,
    AgentErrorKind,
    AgentResponse,
    AgentStatus,
    Attempt,
    Source,
    ToolCall,
    Usage,
)
from assay.model.case import Case, Turn
from assay.model.run import Score, ScoreStatus
from assay.specs.loader import spec_from_mapping

CASE = Case("case", (Turn("question", references=("right",), expected_sources=("S",)),))
FAILED = AgentResponse(
    status=AgentStatus.ERROR, error=AgentError(AgentErrorKind.TIMEOUT, "no answer within 30 s"), latency_ms=1.0
)
VALUES = {"a": 5.0, "b": 2.0, "c": -1.0, "zero": 0.0, "gone": None, "flag": 1.0, "off": 0.0}


def evaluated(text: str, values: Mapping[str, float | None] = VALUES) -> float | None:
    """The value of an expression whose names stand for some numbers."""
    return parse_expression(text, flags={"flag", "off"}).evaluate(values.__getitem__)


def scored(name: str, value: float | None, reason: str = "") -> Score:
    """The score of a metric: with a value, skipped without one, in error with a reason."""
    if value is not None:
        return Score(name, ScoreStatus.SCORED, value=value)
    return Score(name, ScoreStatus.ERROR if reason else ScoreStatus.SKIPPED, reason=reason or "no_reference")


def row_of(response: AgentResponse | None = None, *scores: Score) -> Row:
    """A row with an answer and with scores computed before."""
    return Row(CASE, response or AgentResponse(text="an answer"), scores={score.metric: score for score in scores})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 + 2 * 3", 7.0),
        ("(1 + 2) * 3", 9.0),
        ("a - b - c", 4.0),
        ("8 / 4 / 2", 1.0),
        ("-2 ** 2", -4.0),
        ("(-2) ** 2", 4.0),
        ("2 ** 3 ** 2", 512.0),
        ("2 ** -1 * 3", 1.5),
        ("--a", 5.0),
        ("+a", 5.0),
        (".5e1 + 1.", 6.0),
        ("min(a, b, c)", -1.0),
        ("max(a, b, c)", 5.0),
        ("abs(c)", 1.0),
        ("sqrt(a - 1)", 2.0),
        ("exp(0)", 1.0),
        ("log(exp(2))", 2.0),
        ("mean(a, b, c)", 2.0),
        ("clamp(a, 0, 1)", 1.0),
        ("clamp(c, 0, 1)", 0.0),
        ("clamp(a, 1, 1)", 1.0),
        ("a if b > 1 else c", 5.0),
        ("a if b > 2 else c if c > 0 else 7", 7.0),
        ("a + 1 if b > 2 else c + 1", 0.0),
        ("if_else(b >= 2 and not c > 0, 1, 0)", 1.0),
        ("if_else(b != 2 or c == -1, 1, 0)", 1.0),
        ("if_else(a < 1 or b < 1 and c < 1, 1, 0)", 0.0),
        ("if_else(a <= 5, 1, 0)", 1.0),
        ("if_else(flag, a, b) + if_else(off, a, b) + flag", 8.0),
        ("coalesce(gone, gone, a)", 5.0),
        ("coalesce(b, gone)", 2.0),
        ("coalesce(gone, gone)", None),
        ("coalesce(gone * 2, 3)", 3.0),
        ("a + gone", None),
        ("min(a, gone)", None),
        ("a if gone > 1 else b", None),
        ("a if b > 1 else gone", 5.0),
        ("if_else(gone > 1 and b > 1, 1, 0)", None),
        ("if_else(b > 9 and gone > 1, 1, 0)", 0.0),
        ("if_else(b > 1 or gone > 1, 1, 0)", 1.0),
        ("a / b if b != 0 else 0", 2.5),
        ("a / zero if zero > 0 else 9", 9.0),
        (" a\n  +\tb ", 7.0),
    ],
)
def test_values(text: str, expected: float | None) -> None:
    """Precedence and functions are those of Python; what is missing stays missing unless `coalesce` says otherwise."""
    assert evaluated(text) == (None if expected is None else pytest.approx(expected, abs=1e-12))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a / zero", "division_by_zero"),
        ("zero ** -1", "division_by_zero"),
        ("c ** 0.5", "domain_error"),
        ("sqrt(c)", "domain_error"),
        ("log(zero)", "domain_error"),
        ("clamp(a, b, c)", "domain_error"),
        ("a ** 1e3", "overflow"),
        ("exp(a * 1e3)", "overflow"),
        ("a * 1e308", "overflow"),
        ("a * 1e308 * zero", "overflow"),
        ("a * 1e308 - a * 1e308", "overflow"),
        ("mean(1e308 * b / 2, 1e308)", "overflow"),
        ("coalesce(a / zero, 1)", "division_by_zero"),
    ],
)
def test_what_has_no_value_is_an_error(text: str, reason: str) -> None:
    """Infinity, NaN and complex numbers are errors that nothing hides."""
    with pytest.raises(EvaluationError) as caught:
        evaluated(text)
    assert caught.value.reason == reason


@pytest.mark.parametrize(("parts", "accepted"), [(200, True), (201, False)])
def test_two_hundred_parts_are_the_most(parts: int, accepted: bool) -> None:
    """A sum of a hundred numbers is a hundred numbers and ninety-nine signs; one abs or two make it 200 or 201."""
    text = f"{'abs(' * (parts - 199)}a{')' * (parts - 199)}{' + a' * 99}"
    if accepted:
        assert evaluated(text) == 500.0
        return
    with pytest.raises(SpecError, match="more than 200 parts"):
        parse_expression(text)


HOSTILE = [
    ("", "a number, a name or"),
    ("a +", "instead of the end"),
    ("a b", "an operator instead of 'b' at character 3"),
    ("2a", "an operator"),
    ("(a", "'\\)' instead of the end"),
    ("a)", "an operator instead of '\\)'"),
    ("a if b > 1", "'else'"),
    ("a ? b", "'\\?' at character 3"),
    ("__import__('os').system('id')", "no part of a formula"),
    ("__import__(a)", "unknown function '__import__'"),
    ("().__class__", "no part of a formula"),
    ("a.real", "no part of a formula"),
    ("a[0]", "no part of a formula"),
    ("[a for a in b]", "no part of a formula"),
    ("lambda: a", "no part of a formula"),
    ("(x := a)", "no part of a formula"),
    ("f'{a}'", "no part of a formula"),
    ("'text'", "no part of a formula"),
    ("a @ b", "no part of a formula"),
    ("a ^ b", "no part of a formula"),
    ("a // b", "a number, a name or"),
    ("a = b", "no part of a formula"),
    ("a; b", "no part of a formula"),
    ("mim(a, b)", "did you mean 'min'"),
    ("min", "min is a function"),
    ("min(*a)", "a number, a name or"),
    ("min(a, key)(b)", "an operator"),
    ("clamp(a, 0)", "takes 3 values, not 2"),
    ("abs()", "takes 1 value, not 0"),
    ("min(a)", "at least 2 values"),
    ("a < b < c", "two numbers at a time"),
    ("a > b", "condition where a number is due"),
    ("(a > b) * 2", "condition where a number is due"),
    ("abs(a > b)", "condition where a number is due"),
    ("not a > b", "condition where a number is due"),
    ("coalesce(a > b, 1)", "condition where a number is due"),
    ("if_else(a, 1, 0)", "number where a condition is due"),
    ("1 if a and b else 0", "number where a condition is due"),
    ("10 ** 10 ** 10", "never be computed: overflow"),
    ("9 ** 9 ** 9 ** 9", "never be computed: overflow"),
    ("1 / (1 - 1)", "never be computed: division by zero"),
    ("a + 1e999", "too large"),
    ("(" * 60 + "a" + ")" * 60, "50 levels"),
    ("-" * 100 + "a", "50 levels"),
    ("not " * 100 + "a > 1", "50 levels"),
    ("a ** " * 60 + "a", "50 levels"),
    ("abs(" * 60 + "a" + ")" * 60, "50 levels"),
    ("a + " * 150 + "a", "200 parts"),
    ("a" * 1001, "more than 1000"),
    ("(" * 10_000_000, "10000000 characters"),
    ("a\x00", "'\\\\x00' at character 2"),
    ("ｍin(a, b)", "at character 1"),
    ("а + b", "'а' at character 1"),
    ("a\u00a0+ b", "'\\\\xa0' at character 2"),
    ("٣ + a", "at character 1"),
    ("a + \ud800", "at character 5"),
]


@pytest.mark.parametrize(("text", "message"), HOSTILE)
def test_what_is_no_formula_is_refused(text: str, message: str) -> None:
    """Anything outside the grammar is refused with a sentence, and none of it is run."""
    with pytest.raises(SpecError, match=message):
        parse_expression(text)


PIECES = st.sampled_from(
    ["a", "b", "1", "2.5", "1e9", "+", "-", "*", "/", "**", "(", ")", ",", "<", ">=", "==", " ", "if", "else", "and",
     "or", "not", "min(", "clamp(", "coalesce(", "exp(", ".", "__class__", "[", "'", "\\", "\x00", "é", ":="]
)  # fmt: skip


@given(st.one_of(st.text(max_size=1100), st.lists(PIECES, max_size=60).map(" ".join)))
def test_no_text_breaks_the_parser(text: str) -> None:
    """Every text is refused with SpecError, or has a value, none, or EvaluationError: nothing else comes out."""
    try:
        expression = parse_expression(text)
        value = expression.evaluate(lambda name: 3.0)
    except (SpecError, EvaluationError):
        return
    assert value is None or math.isfinite(value)


NUMBERS = st.one_of(st.integers(0, 100).map(str), st.floats(0, 1e6).map(repr))
LEAVES = st.one_of(NUMBERS, st.sampled_from(["a", "b", "c", "zero"]))


def _larger(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    conditions = st.tuples(parts, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), parts).map(" ".join)
    joined = st.one_of(
        conditions,
        st.tuples(conditions, st.sampled_from(["and", "or"]), conditions).map(" ".join),
        conditions.map(lambda inner: f"not {inner}"),
    )
    return st.one_of(
        st.tuples(parts, st.sampled_from(["+", "-", "*", "/", "**"]), parts).map(" ".join),
        parts.map(lambda inner: f"({inner})"),
        parts.map(lambda inner: f"-{inner}"),
        parts.map(lambda inner: f"abs({inner})"),
        st.tuples(parts, parts).map(lambda pair: f"min({pair[0]}, {pair[1]})"),
        st.tuples(parts, parts).map(lambda pair: f"max({pair[0]}, {pair[1]})"),
        st.tuples(parts, joined, parts).map(lambda three: f"({three[0]} if {three[1]} else {three[2]})"),
    )


_WHOLE = re.compile(r"(?<![\w.])\d[\d.]*(?:e[-+]?\d+)?")
EXPRESSIONS = st.recursive(LEAVES, _larger, max_leaves=12)


@given(EXPRESSIONS)
def test_values_are_those_of_python(text: str) -> None:
    """Where an expression has a value, Python computes the same number from the same text."""
    values = {name: VALUES[name] for name in ("a", "b", "c", "zero")}
    # Numbers are written as floats, since Python's whole numbers have no bounds.
    as_floats = parse_expression(text) if _is_formula(text) else None
    if as_floats is None:
        return
    try:
        value = as_floats.evaluate(values.__getitem__)
    except EvaluationError:
        return
    code = _WHOLE.sub(lambda match: f"float({match[0]})", text)
    expected = eval(code, {"__builtins__": {}}, {**values, "min": min, "max": max, "abs": abs, "float": float})
    assert value == expected


@given(EXPRESSIONS, st.sets(st.sampled_from(["a", "b", "c", "zero"]), min_size=1))
def test_a_missing_operand_makes_the_value_missing(text: str, missing: set[str]) -> None:
    """An expression that reads a missing value is missing or fails, and never has a value."""
    if not _is_formula(text) or " if " in text:
        return
    expression = parse_expression(text)
    try:
        value = expression.evaluate(lambda name: None if name in missing else VALUES[name])
    except EvaluationError:
        return
    assert (value is None) is bool(missing & set(expression.names))


def _is_formula(text: str) -> bool:
    try:
        parse_expression(text)
    except SpecError:
        return False
    return True


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_is_in_the_definition(name: str) -> None:
    """The printed definition names every function and every field."""
    import assay.metrics.formula as module

    assert module.__doc__ is not None
    assert all(word in module.__doc__ for word in (name, *FIELDS))


ANSWER = AgentResponse(
    status=AgentStatus.OUT_OF_SCOPE,
    text="three little words",
    data_rows=4,
    tool_calls=(ToolCall("search"), ToolCall("search")),
    sources=(Source(title="X"), Source(title="Y"), Source(title="Z")),
    retrieved=(Source(title="E"),),
    usage=Usage(input_tokens=300, output_tokens=50, cost_usd=0.002),
    latency_ms=1500.0,
    attempts=(Attempt(9.0, AgentError(AgentErrorKind.TIMEOUT, "slow")),),
)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("latency_ms", 1500.0),
        ("latency_s", 1.5),
        ("input_tokens", 300.0),
        ("output_tokens", 50.0),
        ("total_tokens", 350.0),
        ("cost_usd", 0.002),
        ("data_rows", 4.0),
        ("source_count", 3.0),
        ("tool_call_count", 2.0),
        ("answer_chars", 18.0),
        ("answer_words", 3.0),
        ("attempts", 2.0),
        ("has_events", 1.0),
        ("status_success", 0.0),
        ("status_out_of_scope", 1.0),
        ("status_error", 0.0),
    ],
)
def test_fields_of_the_answer(metric: Callable[..., Metric], name: str, value: float) -> None:
    """Every documented field has the answer's number; the test's table is complete."""
    score = metric("formula", formula=name).score(row_of(ANSWER))
    assert (score.value, score.detail["inputs"]) == (value, {name: value})
    empty = metric("formula", formula=name).score(row_of(AgentResponse()))
    absent = name in {"latency_ms", "latency_s", "cost_usd", "data_rows", "tool_call_count"} or name.endswith("_tokens")
    assert (empty.status is ScoreStatus.SKIPPED) is absent


@pytest.mark.parametrize(
    ("response", "formula", "status", "reason"),
    [
        (AgentResponse(), "latency_ms", ScoreStatus.SKIPPED, "missing_input"),
        (AgentResponse(usage=Usage(total_tokens=0)), "1 / total_tokens", ScoreStatus.SKIPPED, "missing_input"),
        (AgentResponse(latency_ms=-1.0), "latency_ms", ScoreStatus.ERROR, "invalid_latency_ms"),
        (AgentResponse(latency_ms=math.nan), "latency_s", ScoreStatus.ERROR, "invalid_latency_s"),
        (AgentResponse(latency_ms=math.inf), "coalesce(latency_ms, 1)", ScoreStatus.ERROR, "invalid_latency_ms"),
        (AgentResponse(usage=Usage(cost_usd=-1.0)), "coalesce(cost_usd, 1)", ScoreStatus.ERROR, "invalid_cost_usd"),
        (AgentResponse(usage=Usage(cost_usd=1e300)), "cost_usd", ScoreStatus.ERROR, "invalid_cost_usd"),
        (AgentResponse(usage=Usage(total_tokens=2**62)), "total_tokens", ScoreStatus.ERROR, "invalid_total_tokens"),
        (AgentResponse(data_rows=10**400), "data_rows", ScoreStatus.ERROR, "invalid_data_rows"),
        (AgentResponse(data_rows=0), "1 / data_rows", ScoreStatus.ERROR, "division_by_zero"),
        (AgentResponse(data_rows=9), "10 ** data_rows ** data_rows", ScoreStatus.ERROR, "overflow"),
    ],
)
def test_what_is_missing_or_broken_is_never_a_number(
    metric: Callable[..., Metric], response: AgentResponse, formula: str, status: ScoreStatus, reason: str
) -> None:
    """Missing skips the row, broken is an error; only with a threshold does that leave the row undecided."""
    score = metric("formula", formula=formula).score(row_of(response))
    assert (score.status, score.value, score.passed, score.reason) == (status, None, None, reason)
    assert score.detail.get("advisory", False) is (status is ScoreStatus.ERROR)
    assert "advisory" not in metric("formula", formula=formula, threshold=1).score(row_of(response)).detail


def test_other_metrics_are_read_by_their_names(metric: Callable[..., Metric]) -> None:
    """The value of another metric counts; skipped it is missing, failed on our side it is our error too."""
    built = metric("formula", formula="0.5 * mine + coalesce(other, 1)", threshold=1)
    assert getattr(built, "inputs", ()) == ("mine", "other")
    assert built.score(row_of(None, scored("mine", 0.5), scored("other", 0.25))).value == 0.5
    assert built.score(row_of(None, scored("mine", 0.5), scored("other", None))).value == 1.25
    assert built.score(row_of(None, scored("mine", None), scored("other", 1.0))).reason == "missing_input"
    assert built.score(row_of(None, scored("other", 1.0))).reason == "missing_input"
    for scores in (
        (scored("mine", None, "judge_unavailable"), scored("other", None)),
        (scored("mine", 1.0), scored("other", None, "judge_unavailable")),
    ):
        failed = built.score(row_of(None, *scores))
        assert (failed.status, failed.reason, failed.passed) == (ScoreStatus.ERROR, "judge_unavailable", None)


def test_a_threshold_decides_rows_and_the_mean(metric: Callable[..., Metric], fold: Callable[..., Any]) -> None:
    """Inclusive for each row and for the mean; a goal is beyond that."""
    built = metric("formula", formula="data_rows", threshold=2, goal=4)
    rows = [row_of(AgentResponse(data_rows=count)) for count in (1, 2, 3)]
    assert [built.score(row).passed for row in rows] == [False, True, True]
    summary = fold(built, rows)
    assert (summary.value, summary.meets_threshold, summary.meets_goal) == (2.0, True, False)
    assert metric("formula", formula="data_rows").score(rows[0]).passed is None


def test_an_agent_error_is_scored_only_by_a_formula_that_reads_it(metric: Callable[..., Metric]) -> None:
    """Not scored and failed where there is a threshold; `status_error` makes it a value; missing parts do not."""
    failed = row_of(FAILED, scored("sim", None, "agent_error"))
    plain = metric("formula", formula="max(0, 1 - latency_s)", threshold=0.5).score(failed)
    assert (plain.status, plain.value, plain.passed, plain.reason) == (ScoreStatus.ERROR, None, False, "agent_error")
    assert metric("formula", formula="latency_s").score(failed).passed is None
    aware = metric("formula", formula="0 if status_error else sim", threshold=0.5).score(failed)
    assert (aware.status, aware.value, aware.passed, aware.reason) == (ScoreStatus.SCORED, 0.0, False, "agent_error")
    missing = metric("formula", formula="sim - status_error", threshold=0.5).score(failed)
    assert (missing.status, missing.passed, missing.reason) == (ScoreStatus.ERROR, False, "agent_error")


def test_numbers_of_ones_own(metric: Callable[..., Metric]) -> None:
    """The user's numbers are read by name, beside the formula or under `parameters`."""
    given = {"formula": "base ** alpha + data_rows * 0", "alpha": 2, "base": 3.0, "threshold": 1}
    gathered = with_own_numbers(given)
    assert gathered == {"formula": given["formula"], "threshold": 1, "parameters": {"alpha": 2, "base": 3.0}}
    assert with_own_numbers(gathered) == gathered
    score = metric("formula", **gathered).score(row_of(AgentResponse(data_rows=1)))
    assert (score.value, score.detail["inputs"]) == (9.0, {"data_rows": 1.0})


@pytest.mark.parametrize(
    ("parameters", "field", "message"),
    [
        ({}, "m.formula", "is missing"),
        ({"formula": 3}, "m.formula", "must be a string"),
        ({"formula": "a +"}, "m.formula", "instead of the end"),
        ({"formula": "1 + 2"}, "m.formula", "always the same"),
        ({"formula": "x", "parameters": {"x": 1}}, "m.formula", "always the same"),
        ({"formula": "a", "parameters": {"treshold": 0.8}}, "m.parameters.treshold", "did you mean 'threshold'"),
        ({"formula": "a", "parameters": {"b": True}}, "m.parameters.b", "must be a number"),
        ({"formula": "a * b", "parameters": {"b": "1"}}, "m.parameters.b", "must be a number"),
        ({"formula": "a * b", "parameters": {"b": 10**400}}, "m.parameters.b", "must be a number"),
        ({"formula": "a * b", "parameters": {"b": math.nan}}, "m.parameters.b", "must be a number"),
        ({"formula": "min(a, 1)", "parameters": {"min": 1}}, "m.parameters.min", "something else"),
        ({"formula": "latency_ms", "parameters": {"latency_ms": 1}}, "m.parameters.latency_ms", "something else"),
        ({"formula": "a", "parameters": {"x y": 1}}, "m.parameters.x y", "letters, digits"),
        ({"formula": "a", "parameters": [1]}, "m.parameters", "must be a mapping"),
        ({"formula": "a", "alpha": "x"}, "m.alpha", "unknown parameter"),
        ({"formula": "a", "threshold": True}, "m.threshold", "must be a number"),
    ],
)
def test_wrong_parameters_are_named(parameters: dict[str, Any], field: str, message: str) -> None:
    """Each mistake is a sentence at its own field."""
    with pytest.raises(SpecError, match=message) as caught:
        complete_parameters("formula", with_own_numbers(parameters), where="m")
    assert field in {problem.field for problem in caught.value.problems}


def problems_of(*metrics: str | dict[str, Any]) -> dict[str, str]:
    """What a spec with these metrics is refused for, by field."""
    spec = {"dataset": "d.jsonl", "agent": {"adapter": "replay"}, "metrics": list(metrics)}
    try:
        spec_from_mapping(spec)
    except SpecError as error:
        return {problem.field: problem.message for problem in error.problems}
    return {}


@pytest.mark.parametrize(
    ("metrics", "field", "message"),
    [
        (["coverage", {"m": {"formula": "covrage"}}], "metrics[1].m.formula", "did you mean 'coverage'"),
        ([{"m": {"formula": "latncy_ms"}}], "metrics[0].m.formula", "did you mean 'latency_ms'"),
        ([{"m": {"formula": "alpa * has_events * alpha", "alpha": 2}}], "metrics[0].m.formula", "mean 'alpha'"),
        ([{"m": {"formula": "coverage"}}], "metrics[0].m.formula", "coverage is not among the metrics of the run"),
        ([{"m": {"formula": "m + 1"}}], "metrics[0].m.formula", "reads itself: m reads m"),
        ([{"m": {"formula": "n"}}, {"n": {"formula": "m"}}], "metrics[0].m.formula", "m reads n reads m"),
        ([{"m": {"formula": "n"}}, {"n": {"formula": "m"}}], "metrics[1].n.formula", "n reads m reads n"),
        (["consistency", {"m": {"formula": "consistency"}}], "metrics[1].m.formula", "one value for the whole run"),
        ([{"m": {"formula": "cost_usd"}}, {"cost_usd": {"kind": "cost"}}], "metrics[0].m.formula", "another name"),
        ([{"m": {"formula": "combined_score"}}, {"combined_score": {"judge": "m"}}], "metrics[1].combined_score",
         "combined_score reads m reads combined_score"),
    ],
)  # fmt: skip
def test_what_a_formula_cannot_read_is_refused(metrics: list[Any], field: str, message: str) -> None:
    """Unknown names, cycles, ambiguous names and metrics without a value for a row are found before anything runs."""
    assert message in problems_of(*metrics).get(field, "")


def test_what_a_combined_score_cannot_read_is_refused() -> None:
    """So is the judge's metric, where its name is none or has no value for a row; a missing one skips the rows."""
    misspelt = problems_of("exact_match", {"combined_score": {"judge": "exact_mach"}})
    assert misspelt == {"metrics[1].combined_score": "unknown metric 'exact_mach'; did you mean 'exact_match'?"}
    problems = problems_of("consistency", {"combined_score": {"judge": "consistency"}})
    assert "one value for the whole run" in problems["metrics[1].combined_score"]
    assert problems_of("combined_score") == problems_of("exact_match", {"combined_score": {"judge": "exact_match"}})
    assert set(problems_of({"exact_match": {"x": 1}}, {"combined_score": {"judge": "exact_match"}})) == {
        "metrics[0].exact_match.x"
    }


def test_one_mistake_is_reported_once() -> None:
    """A formula that reads a wrong metric is no second problem."""
    problems = problems_of({"coverage": {"nope": 1}}, {"m": {"formula": "coverage"}}, {"n": {"formula": "exact_mach"}})
    assert set(problems) == {"metrics[0].coverage.nope", "metrics[2].n.formula"}


def test_formulas_may_read_formulas() -> None:
    """Formulas are computed in the order of their dependencies, whatever the order in the spec."""
    spec = spec_from_mapping(
        {
            "dataset": "d.jsonl",
            "agent": {"adapter": "replay"},
            "metrics": [{"twice": {"formula": "2 * once"}}, {"once": {"formula": "data_rows + plus", "plus": 1}}],
        }
    )
    metrics = [build_metric(settings) for settings in spec.settings.metrics]
    assert not check_metrics({settings.name: settings for settings in spec.settings.metrics})
    scores = score_row(metrics, row_of(AgentResponse(data_rows=2)))
    assert [(score.metric, score.value) for score in scores] == [("twice", 6.0), ("once", 3.0)]
