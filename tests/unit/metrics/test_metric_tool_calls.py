"""Tool calls: trajectories, arguments, forbidden calls, unknown calls, and the rules of other tools."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from assay.errors import SpecError
from assay.metrics import build_metric, complete_parameters
from assay.metrics.assertions import assertion_problem
from assay.metrics.core.call_matching import TRAJECTORIES
from assay.metrics.core.row_verdict import row_message, row_verdict
from assay.metrics.core.score import Metric, Row
from assay.metrics.rows.row_scores import score_row
from assay.model.answers.agent_response import AgentError, AgentErrorKind, AgentResponse, AgentStatus, ToolCall
from assay.model.case import Assertion, Case, ExpectedTool, Turn
from assay.model.run import MetricSpec, ScoreStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.model.run import Score

SEARCH = ExpectedTool("search", {"q": "x"}, "subset")
READ = ExpectedTool("read")
FAILED = {"status": AgentStatus.ERROR, "error": AgentError(AgentErrorKind.RAISED, "no")}


def called(*calls: str | tuple[str, str]) -> tuple[ToolCall, ...]:
    """Return calls of tools; a pair has arguments as JSON text."""
    pairs = [(call, "") if isinstance(call, str) else call for call in calls]
    return tuple(ToolCall(name, arguments_json=arguments) for name, arguments in pairs)


def row(expected: Sequence[ExpectedTool], calls: Sequence[ToolCall] | None, **answer: Any) -> Row:
    """A row of one question."""
    response = AgentResponse(tool_calls=None if calls is None else tuple(calls), **answer)
    return Row(Case("case", (Turn("question", expected_tools=tuple(expected)),)), response)


def talk(*turns: tuple[Sequence[ExpectedTool], Sequence[ToolCall] | None], how: str = "mean") -> Row:
    """A row of a conversation; the last of its turns is that of the row."""
    case = Case("case", tuple(Turn("question", expected_tools=tuple(expected)) for expected, _ in turns))
    answers = [AgentResponse(tool_calls=None if calls is None else tuple(calls)) for _, calls in turns]
    rows = tuple(Row(case.up_to(index), answer) for index, answer in enumerate(answers))
    return Row(case, answers[-1], turns=rows, turn_score=how)


def scored(row: Row, **parameters: Any) -> Score:
    """Return the score of a row as a run computes it."""
    complete = complete_parameters("tool_calls", parameters, where="metrics[0]")
    (score,) = score_row([build_metric(MetricSpec("tool_calls", complete))], row)
    return score


def said(row: Row, **parameters: Any) -> str:
    """Return why a row fails."""
    return row_message(row.response, [scored(row, **parameters)])


@pytest.mark.parametrize(
    ("expected", "calls", "trajectory", "value", "passed"),
    [
        ([SEARCH, READ], [("search", '{"q": "x", "n": 3}'), ("read", "{}")], "any_order", 1.0, True),
        ([SEARCH, READ], ["read", ("search", '{"q": "x"}')], "any_order", 1.0, True),
        ([SEARCH, READ], ["read", ("search", '{"q": "x"}')], "in_order", 0.5, False),
        ([SEARCH, READ], [("search", '{"q": "x"}'), "log", "read"], "in_order", 1.0, True),
        ([SEARCH, READ], [("search", '{"q": "x"}'), "log", "read"], "exact", 1.0, False),
        ([SEARCH, READ], ["read", ("search", '{"q": "x"}')], "unordered", 1.0, True),
        ([SEARCH, READ], ["read", "log", ("search", '{"q": "x"}')], "unordered", 1.0, False),
        ([SEARCH, READ], ["read"], "subset", 0.5, True),
        ([SEARCH, READ], ["read", "log"], "subset", 0.5, False),
        ([SEARCH, READ], [], "subset", 0.0, True),
        ([SEARCH], [("search", '{"q": "y"}')], "any_order", 0.0, False),
        ([SEARCH], [("search", "not json")], "any_order", 0.0, False),
        ([READ, READ], ["read"], "any_order", 0.5, False),
        ([ExpectedTool("f", {"a": 1}, "exact")], [("f", '{"a": 1, "b": 2}')], "any_order", 0.0, False),
        ([ExpectedTool("f", {"a": 1}, "exact")], [("f", '{"a": true}')], "any_order", 0.0, False),
        ([ExpectedTool("f", {"a": [1, 2]}, "exact")], [("f", '{"a": [2, 1]}')], "any_order", 0.0, False),
        ([ExpectedTool("f", {"a": [1, {"b": 2}]}, "unordered")], [("f", '{"a": [{"b": 2.0}, 1]}')], "exact", 1.0, True),
        ([ExpectedTool("f", {"a": [1, 1]}, "unordered")], [("f", '{"a": [1]}')], "any_order", 0.0, False),
        ([ExpectedTool("f", {"a": [1]}, "unordered")], [("f", '{"a": [true]}')], "any_order", 0.0, False),
        ([ExpectedTool("f"), ExpectedTool("f", {"a": 1}, "exact")], [("f", '{"a": 1}'), "f"], "any_order", 1.0, True),
        ([READ], [], "any_order", 0.0, False),
    ],
)
def test_calls_match_the_expected_ones(
    expected: list[ExpectedTool], calls: list[Any], trajectory: str, value: float, passed: bool
) -> None:
    """Calls are matched by name and arguments, each once, in the trajectory asked for; the value is the recall."""
    score = scored(row(expected, called(*calls)), trajectory=trajectory)
    assert (score.value, score.passed) == (value, passed)


@pytest.mark.parametrize(("score", "value"), [("recall", 0.5), ("precision", 1 / 3), ("f1", 0.4), ("match", 0.0)])
def test_the_value_is_the_figure_asked_for(score: str, value: float) -> None:
    """One of two expected calls in three calls: the detail has recall, precision and F1 whatever the value is."""
    scored_row = scored(row([READ, ExpectedTool("book")], called("read", "a", "b")), score=score)
    assert scored_row.value == pytest.approx(value)
    assert scored_row.detail["recall"] == 0.5
    assert scored_row.detail["precision"] == pytest.approx(1 / 3)
    assert scored_row.detail["f1"] == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("calls", "trajectory", "message"),
    [
        (["search", "search"], "exact", "called search twice, expected once; missing tool book"),
        (["book", "search"], "in_order", "called search out of order"),
        (["search"], "any_order", "missing tool book"),
        (["search", "book", "drop"], "unordered", "called drop, which is not expected"),
        (["drop"] * 3, "subset", "called drop, which is not expected"),
    ],
)
def test_a_row_says_why_it_fails(calls: list[str], trajectory: str, message: str) -> None:
    """The reason of a row names the tools, and how often each was called and expected."""
    expected = [ExpectedTool("search"), ExpectedTool("book")]
    assert (
        said(row(expected, called(*calls)), trajectory=trajectory)
        == f"tool_calls: {message} (expected search, book; called {', '.join(calls)})"
    )


def test_wrong_arguments_are_said_to_be_wrong() -> None:
    """A call with other arguments is neither missing nor superfluous."""
    wrong = 'called search with other arguments (expected search({"q": "x"}); called search({"q": "y"}))'
    assert said(row([SEARCH], called(("search", '{"q": "y"}')))) == f"tool_calls: {wrong}"
    twice = [ExpectedTool("f"), ExpectedTool("f")]
    assert said(row(twice, called("f"))) == "tool_calls: called f once, expected twice (expected f, f; called f)"


def test_arguments_that_are_no_object_are_said_to_be_none() -> None:
    """Other arguments would be looked for in vain."""
    message = "called search with arguments that are no JSON object"
    for trajectory in ("any_order", "exact"):
        assert message in said(row([SEARCH], called(("search", '"q: x"'))), trajectory=trajectory)


def test_many_faults_and_long_names_are_cut() -> None:
    """A hostile answer cannot make the reason long."""
    message = said(row([], called(*[f"{number}{'x' * 5000}" for number in range(40)])), required=[], trajectory="exact")
    assert "; and 35 more" in message
    assert len(message) < 700


def test_no_expected_tools() -> None:
    """A case without expected tools is skipped, unless the spec says that no call is due."""
    score = scored(row([], called("a")))
    assert (score.status, score.reason) == (ScoreStatus.SKIPPED, "no_expected_tools")
    none = {"without_expected": "no_calls", "trajectory": "exact", "score": "match"}
    assert scored(row([], called("a")), **none).value == 0.0
    assert scored(row([], called()), **none).value == 1.0
    assert scored(row([], called("a")), **{**none, "trajectory": "any_order"}).value == 1.0


def test_required_calls_are_those_of_every_case() -> None:
    """Required calls replace the case's own, by name or with arguments; an empty list expects no call."""
    required = ["read", {"name": "search", "arguments": {"q": "x"}}]
    assert scored(row([], called("read", ("search", '{"q": "x"}'))), required=required).passed
    assert scored(row([ExpectedTool("other")], called("read")), required=["read"]).passed
    missing = 'missing tool search (expected read, search({"q": "x"}); called read({}))'
    assert said(row([], called("read")), required=required) == f"tool_calls: {missing}"
    assert not scored(row([READ], called("read")), required=[], trajectory="subset").passed


def test_one_rule_for_all_arguments() -> None:
    """`arguments` replaces what each expected call says; a call expected by its name alone stays so."""
    calls = called(("search", '{"q": "x", "n": 1}'))
    assert scored(row([SEARCH], calls)).passed
    assert not scored(row([SEARCH], calls), arguments="exact").passed
    assert scored(row([ExpectedTool("search", {"q": "z"}, "exact")], calls), arguments="name").passed
    assert scored(row([ExpectedTool("search")], calls), arguments="exact").passed


def test_a_forbidden_call_fails_the_row() -> None:
    """A forbidden call, by name or with arguments, scores 0; a row without expectations counts too."""
    bad = row([READ], called("read", "drop"))
    assert (scored(bad, forbidden=["drop"]).value, scored(bad, forbidden=["drop"]).passed) == (0.0, False)
    assert (
        said(bad, forbidden=["drop"])
        == "tool_calls: called drop, which is forbidden (expected read; called read, drop)"
    )
    free = row([], called("a", "b"))
    for score in ("recall", "precision", "f1", "match"):
        assert (scored(free, forbidden=["drop"], score=score).value, scored(free, forbidden=["drop"]).passed) == (
            1,
            True,
        )
    only = {"forbidden": [{"name": "write", "arguments": {"to": "/"}}]}
    assert scored(row([], called(("write", '{"to": "/tmp"}'))), **only).passed
    assert not scored(row([], called(("write", '{"to": "/", "n": 1}'))), **only).passed
    assert not scored(row([], called(*["a"] * 9_000, "drop")), forbidden=["drop"]).passed


@pytest.mark.parametrize("parameters", [{}, {"forbidden": ["drop"]}, {"required": ["read"]}])
def test_unknown_calls_are_not_no_calls(parameters: dict[str, Any]) -> None:
    """Unreported calls leave the row undecided without a value; an empty list is a report."""
    unknown = row([READ], None)
    score = scored(unknown, **parameters)
    assert (score.status, score.value, score.reason) == (ScoreStatus.SKIPPED, None, "calls_not_reported")
    assert row_verdict(AgentStatus.SUCCESS, [score]) is None
    assert said(unknown, **parameters) == "tool_calls is undecided: the answer does not report its tool calls"
    none = scored(row([READ], ()), **parameters)
    assert (none.value, none.passed) == (0.0, False)


def test_an_unknown_turn_leaves_a_conversation_undecided() -> None:
    """Calls of other turns do not decide the unknown turn; a wrong turn fails the conversation."""
    score = scored(talk(([READ], called("read")), ([READ], None)))
    assert (score.value, score.passed, score.detail["undecided"]) == (1.0, None, True)
    assert row_verdict(AgentStatus.SUCCESS, [score]) is None
    assert scored(talk(([READ], ()), ([READ], None))).passed is False
    assert scored(talk(([], called("read")), ([READ], None), ([], ()))).detail["undecided"] is True


def test_a_conversation_says_which_turn_is_wrong() -> None:
    """The reason has the first wrong turn's fault."""
    wrong = talk(([READ], called("read")), ([READ, ExpectedTool("book")], called("read")))
    assert said(wrong) == "tool_calls: missing tool book (expected read, book; called read) (turn 2)"


def test_required_calls_may_be_in_any_turn() -> None:
    """Required calls count once in any turn of a conversation; forbidden calls count in every turn."""
    conversation = talk(([], called("search")), ([], called("book")))
    assert scored(conversation, required=["search", "book"], trajectory="exact", score="match").value == 1.0
    assert scored(conversation, required=["book", "search"], trajectory="in_order").passed is False
    assert scored(conversation, forbidden=["search"]).passed is False
    assert scored(talk(([], called("search")), ([], None)), required=["search"]).passed is None


@pytest.mark.parametrize("score", ["recall", "precision", "f1", "match"])
def test_a_failed_call_never_passes(score: str) -> None:
    """An agent error is neither unknown nor right: it fails, and with nothing expected its value is 0."""
    some: list[dict[str, Any]] = [{}, {"required": []}, {"forbidden": ["drop"]}, {"trajectory": "subset"}]
    for calls in (None, (), called("read")):
        for parameters in some:
            scored_row = scored(row([READ] if not parameters else [], calls, **FAILED), score=score, **parameters)
            if scored_row.status is not ScoreStatus.SKIPPED:
                assert (scored_row.passed, scored_row.reason) == (False, "agent_error")
                assert scored_row.value == (1.0 if calls and not parameters and score != "match" else 0.0)


def test_wrong_parameters_are_refused_together() -> None:
    """Each problem has its place; a tool cannot be required and forbidden."""
    with pytest.raises(SpecError) as refused:
        complete_parameters(
            "tool_calls",
            {
                "required": [3, {"name": "a", "matching": 1}, {"arguments": {}}],
                "forbidden": "drop",
                "trajectory": "any",
            },
            where="metrics[0]",
        )
    assert "metrics[0].trajectory" in str(refused.value)
    with pytest.raises(SpecError) as refused:
        complete_parameters(
            "tool_calls",
            {"required": [3, {"name": "a", "matching": 1}, {"name": "b", "match": "like"}], "forbidden": "drop"},
            where="m",
        )
    for place in ("m.required[0]", "m.required[1].matching", "m.required[2].match", "m.forbidden"):
        assert place in str(refused.value)
    with pytest.raises(SpecError, match="is required too"):
        complete_parameters("tool_calls", {"required": ["a"], "forbidden": ["a"]}, where="m")


def test_the_summary_has_all_figures(metric: Callable[..., Metric], fold: Callable[..., Any]) -> None:
    """Means of recall, precision and F1 over the scored rows; answers without calls are counted."""
    rows = [row([READ], called("read")), row([READ], called("a")), row([READ], None), row([], called("a"))]
    summary = fold(metric("tool_calls", score="match"), rows)
    assert (summary.value, summary.scored_count, summary.skipped_count) == (0.5, 2, 2)
    assert summary.detail == {"recall": 0.5, "precision": 0.5, "f1": 0.5, "unreported": 1}


# Invariants.

_NAMES = st.sampled_from("abc")
_CALLS = st.lists(
    st.builds(ToolCall, name=_NAMES, arguments_json=st.sampled_from(["", "{}", '{"x": 1}', '{"x": 1, "y": [2, 1]}'])),
    max_size=6,
)
_EXPECTED = st.lists(
    st.builds(
        ExpectedTool,
        name=_NAMES,
        arguments=st.sampled_from([None, {}, {"x": 1}, {"x": 1, "y": [1, 2]}]),
        match=st.sampled_from(["name", "subset", "exact", "unordered"]),
    ),
    min_size=1,
    max_size=5,
)


def _matches(expected: list[ExpectedTool], calls: list[ToolCall], trajectory: str) -> bool:
    return scored(row(expected, calls), trajectory=trajectory).passed is True


@given(expected=_EXPECTED, calls=_CALLS)
def test_stricter_trajectories_imply_looser_ones(expected: list[ExpectedTool], calls: list[ToolCall]) -> None:
    """exact implies in_order and unordered; each of these any_order; unordered is any_order and subset together."""
    passes = {name: _matches(expected, calls, name) for name in TRAJECTORIES}
    assert not passes["exact"] or (passes["in_order"] and passes["unordered"])
    assert not passes["in_order"] or passes["any_order"]
    assert not passes["unordered"] or (passes["any_order"] and passes["subset"])


@given(calls=_CALLS.filter(bool), trajectory=st.sampled_from(TRAJECTORIES))
def test_identical_calls_match(calls: list[ToolCall], trajectory: str) -> None:
    """Calls that are the expected ones have recall, precision and F1 of 1, and pass in every trajectory."""
    expected = [ExpectedTool(call.name, json.loads(call.arguments_json or "{}"), "exact") for call in calls]
    score = scored(row(expected, calls), trajectory=trajectory)
    assert (score.passed, score.detail["recall"], score.detail["precision"], score.detail["f1"]) == (True, 1, 1, 1)


@given(expected=_EXPECTED, calls=_CALLS, seed=st.randoms(use_true_random=False))
def test_the_order_matters_only_where_it_should(expected: list[ExpectedTool], calls: list[ToolCall], seed: Any) -> None:
    """Shuffling the calls, or the expected ones, changes no figure in any_order, unordered and subset."""
    shuffled, others = calls.copy(), expected.copy()
    seed.shuffle(shuffled)
    seed.shuffle(others)
    for trajectory in ("any_order", "unordered", "subset"):
        score = scored(row(expected, calls), trajectory=trajectory)
        two = scored(row(others, shuffled), trajectory=trajectory)
        figures = ("recall", "precision", "f1")
        assert [score.passed, *map(score.detail.get, figures)] == [two.passed, *map(two.detail.get, figures)]


@given(expected=_EXPECTED, calls=_CALLS, more=_CALLS, trajectory=st.sampled_from(TRAJECTORIES))
def test_further_calls_never_lower_the_recall(
    expected: list[ExpectedTool], calls: list[ToolCall], more: list[ToolCall], trajectory: str
) -> None:
    """Calling more makes no expected call missing; a call of no expected tool lowers the precision."""
    before = scored(row(expected, calls), trajectory=trajectory).detail
    after = scored(row(expected, [*calls, *more]), trajectory=trajectory).detail
    assert after["recall"] >= before["recall"]
    other = scored(row(expected, [*calls, ToolCall("unknown")]), trajectory=trajectory).detail
    assert other["precision"] < before["precision"] or before["precision"] == 0
    assert other["recall"] == before["recall"]


@given(expected=_EXPECTED, calls=_CALLS, trajectory=st.sampled_from(TRAJECTORIES))
def test_looser_arguments_never_lower_the_recall(
    expected: list[ExpectedTool], calls: list[ToolCall], trajectory: str
) -> None:
    """exact implies subset and unordered; each of these the name."""
    recall = {
        rule: scored(row(expected, calls), trajectory=trajectory, arguments=rule).detail["recall"]
        for rule in ("name", "subset", "exact", "unordered")
    }
    assert recall["exact"] <= recall["subset"] <= recall["name"]
    assert recall["exact"] <= recall["unordered"] <= recall["name"]


@given(calls=_CALLS, forbidden=st.lists(_NAMES, unique=True, min_size=1), expected=_EXPECTED)
def test_forbidding_only_ever_fails_rows(
    calls: list[ToolCall], forbidden: list[str], expected: list[ExpectedTool]
) -> None:
    """A row passes exactly if it passes without the rule and makes no forbidden call."""
    free = scored(row(expected, calls))
    score = scored(row(expected, calls), forbidden=forbidden)
    assert score.passed is (free.passed and not any(call.name in forbidden for call in calls))
    assert (score.value or 0.0) <= (free.value or 0.0)


@given(expected=_EXPECTED, calls=_CALLS, trajectory=st.sampled_from(TRAJECTORIES))
def test_a_failed_row_says_what_is_wrong(expected: list[ExpectedTool], calls: list[ToolCall], trajectory: str) -> None:
    """There is a message exactly where the row fails, and it names some tool."""
    score = scored(row(expected, calls), trajectory=trajectory)
    assert score.passed is (not score.message)
    assert score.passed or any(word in "abc" for word in score.message.replace(",", "").split())


# The rules of other tools, written out from their documentation.


def _equal(call: ToolCall, tool: ExpectedTool) -> bool:
    return call.name == tool.name and json.loads(call.arguments_json or "{}") == (tool.arguments or {})


def _adk(expected: list[ExpectedTool], calls: list[ToolCall], match: str) -> float:
    """ADK's tool_trajectory_avg_score of one invocation: 1 where the calls match by name and arguments, else 0."""
    if match == "exact":
        return float(len(expected) == len(calls) and all(map(_equal, calls, expected)))
    if match == "in_order":
        due = iter(expected)
        wanted = next(due, None)
        for call in calls:
            if wanted is not None and _equal(call, wanted):
                wanted = next(due, None)
        return float(wanted is None)
    left = list(calls)
    for tool in expected:
        found = next((call for call in left if _equal(call, tool)), None)
        if found is None:
            return 0.0
        left.remove(found)
    return 1.0


_ADK_EXPECTED = st.lists(
    st.builds(ExpectedTool, name=_NAMES, arguments=st.sampled_from([{}, {"x": 1}]), match=st.just("exact")), max_size=4
)
_ADK_TURNS = st.lists(st.tuples(_ADK_EXPECTED, _CALLS | _ADK_EXPECTED), min_size=1, max_size=4)


@given(turns=_ADK_TURNS, match=st.sampled_from(["exact", "in_order", "any_order"]))
def test_as_adk_scores_a_conversation(turns: list[tuple[list[ExpectedTool], list[Any]]], match: str) -> None:
    """The value is the mean of ADK's 1 or 0 over all turns, those that expect no call among them."""
    read = [
        (expected, [ToolCall(call.name, arguments_json=json.dumps(call.arguments))
                    if isinstance(call, ExpectedTool) else call for call in calls])
        for expected, calls in turns
    ]  # fmt: skip
    due = sum(_adk(expected, calls, match) for expected, calls in read) / len(read)
    how = {"trajectory": match, "score": "match", "without_expected": "no_calls"}
    score = scored(talk(*read) if len(read) > 1 else row(*read[0]), **how)
    assert score.value == pytest.approx(due)


@given(expected=_ADK_EXPECTED.filter(bool), calls=_CALLS)
def test_as_vertex_and_agentevals_match(expected: list[ExpectedTool], calls: list[ToolCall]) -> None:
    """Calls equal by name and arguments, as multisets: superset is any_order, subset subset, unordered unordered."""
    assume(all(call.arguments_json != '{"x": 1, "y": [2, 1]}' for call in calls))
    counted = Counter((call.name, call.arguments_json if call.arguments_json != "" else "{}") for call in calls)
    due = Counter((tool.name, json.dumps(tool.arguments)) for tool in expected)
    assert _matches(expected, calls, "any_order") is (due <= counted)
    assert _matches(expected, calls, "subset") is (counted <= due)
    assert _matches(expected, calls, "unordered") is (counted == due)
    common = (counted & due).total()
    detail = scored(row(expected, calls)).detail
    assert detail["recall"] == common / due.total()
    assert detail["precision"] == (common / counted.total() if counted else 0.0)


def test_single_tool_use() -> None:
    """Vertex AI's trajectory_single_tool_use: 1 where the tool was called at all."""
    assert scored(row([], called("a", "read", "b")), required=["read"], score="match").value == 1.0
    assert scored(row([], called("a")), required=["read"], score="match").value == 0.0


USED, SEQUENCE, F1 = "trajectory:tool-used", "trajectory:tool-sequence", "tool-call-f1"


@pytest.mark.parametrize(
    ("check", "calls", "holds"),
    [
        (Assertion(USED, "a"), ["b", "a"], True),
        (Assertion(USED, ["a", "b"]), ["a"], False),
        (Assertion(USED, {"name": "a", "max": 1}), ["a", "a"], False),
        (Assertion(USED, {"name": "a", "min": 0, "max": 1}), [], True),
        (Assertion(USED, "a", negate=True), ["a"], False),
        (Assertion(USED, ["a", "b"], negate=True), ["a"], False),
        (Assertion(USED, ["a", "b"], negate=True), ["c"], True),
        (Assertion(SEQUENCE, ["a", "b"]), ["a", "x", "b"], True),
        (Assertion(SEQUENCE, ["a", "b"]), ["b", "a"], False),
        (Assertion(SEQUENCE, {"mode": "exact", "steps": ["a", "b"]}), ["a", "x", "b"], False),
        (Assertion(SEQUENCE, {"steps": ["a", "a"]}), ["a"], False),
        (Assertion(F1, "a, b"), ["a", "a", "b"], True),
        (Assertion(F1, ["a", "b"]), ["a"], False),
        (Assertion(F1, ["a", "b"], threshold=0.6), ["a"], True),
        (Assertion(F1, ["a"]), [], False),
    ],
)
def test_checks_of_a_case(check: Assertion, calls: list[str], holds: bool) -> None:
    """A case has its own rules; without known calls no check is made, forbidding ones included."""
    metric = build_metric(MetricSpec("assertions", complete_parameters("assertions", {}, where="m")))
    case = Case("c", (Turn("q"),), assertions=(check,))
    assert metric.score(Row(case, AgentResponse(tool_calls=called(*calls)))).passed is holds
    unknown = metric.score(Row(case, AgentResponse(text="a")))
    assert (unknown.passed, unknown.detail["checks"][0]["passed"]) == (None, None)
    assert not assertion_problem(check)


@pytest.mark.parametrize(
    "check",
    [
        Assertion(USED),
        Assertion(USED, []),
        Assertion(USED, {"pattern": "a*"}),
        Assertion(USED, {"name": "a", "min": "1"}),
        Assertion(SEQUENCE, "a"),
        Assertion(SEQUENCE, {"mode": "any", "steps": ["a"]}),
        Assertion(SEQUENCE, [{"name": "a"}]),
        Assertion(F1, []),
    ],
)
def test_checks_without_a_rule_are_refused(check: Assertion) -> None:
    """The message tells the case's author which values are valid."""
    assert " needs " in assertion_problem(check)
