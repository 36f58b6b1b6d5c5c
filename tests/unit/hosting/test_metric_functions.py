"""Metrics that are functions on the user's side: found, called, and whatever they do, an outcome."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import math
import os
import re
import sys
import threading
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.docs.guides import blocks

import assay
from assay.agent_host.loader import AgentImportError
from assay.agent_host.metric_arguments import MalformedResultError, bind, read_result
from assay.agent_host.metric_functions import load_metric_functions
from assay.errors import InvalidInputError
from assay.metrics import complete_parameters
from assay.model.answers.agent_request import AgentRequest, Message
from assay.model.answers.agent_response import AgentResponse, Source
from assay.model.case import Case, Turn
from assay.model.metric_call import MetricOutcome, MetricRequest
from assay.model.run import MetricSpec
from assay.wire.case import case_to_wire
from assay.wire.metric_call import (
    metric_request_from_wire,
    metric_request_to_wire,
    outcomes_from_wire,
    outcomes_to_wire,
)

if TYPE_CHECKING:
    from collections.abc import Callable

QUESTION = AgentRequest("run/0/0#0", "run", "c", "q", parameters={"k": 1}, history=(Message("user", "before"),))
CASE = Case("c", (Turn("q", references=("ref", "other")),), parameters={"k": 1}, tags=("t",), metadata={"m": [1]})
ANSWER = AgentResponse(text="said", sources=(Source(title="S"),))


def settings(name: str = "m", function: str = "metrics:m", **parameters: Any) -> MetricSpec:
    """Return the settings of a metric in Python code."""
    return MetricSpec(name, complete_parameters("python", {"function": function, **parameters}, where="m"), "python")


async def outcome(function: Callable[..., Any], **parameters: Any) -> MetricOutcome:
    """Return what one call of a function comes to, as it does for a request of an orchestrator."""
    functions = load_metric_functions([settings(**parameters)], Path(), {"m": function})
    assert functions is not None
    request = MetricRequest("id", ("m",), CASE, QUESTION, ANSWER)
    try:
        return (await functions.compute(metric_request_to_wire(request)))["m"]
    finally:
        await functions.aclose()


@pytest.mark.parametrize(
    ("function", "received"),
    [
        (lambda answer: answer, "said"),
        (lambda text: text, "said"),
        (lambda reference: reference, "ref"),
        (lambda references: list(references), ["ref", "other"]),
        (lambda question: question, "q"),
        (lambda response: response.sources[0].title, "S"),
        (lambda case: (case.references, case.tags, case.metadata), (("ref", "other"), ("t",), {"m": [1]})),
        (lambda request: (request.input, request.parameters, request.history[0].content), ("q", {"k": 1}, "before")),
        (lambda answer, *, reference, weight=2: (answer, reference, weight), ("said", "ref", 2)),
        (lambda answer, /, case, *args, **more: (answer, case.case_id, args, more), ("said", "c", (), {})),
    ],
)
async def test_a_parameter_receives_what_its_name_says(function: Callable[..., Any], received: Any) -> None:
    """Each documented name is passed by position and by name; other parameters keep their defaults."""
    seen = []

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> float:
        seen.append(function(*args, **kwargs))
        return 1.0

    assert await outcome(call) == MetricOutcome(1.0)
    assert seen == [received]


async def test_a_type_does_for_a_name() -> None:
    """A parameter of another name is recognised by its type, even if the type is written as text."""

    def by_type(said: str, whole: AgentResponse, row: Case, asked: AgentRequest) -> bool:
        return (said, whole.text, row.case_id, asked.input) == ("said", "said", "c", "q")

    assert await outcome(by_type) == MetricOutcome(1.0, is_boolean=True)


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (0.5, MetricOutcome(0.5)),
        (3, MetricOutcome(3.0)),
        (Fraction(1, 4), MetricOutcome(0.25)),
        (np.float32(0.5), MetricOutcome(0.5)),
        (np.int64(2), MetricOutcome(2.0)),
        (np.bool_(True), MetricOutcome(1.0, is_boolean=True)),
        (True, MetricOutcome(1.0, is_boolean=True)),
        (False, MetricOutcome(0.0, is_boolean=True)),
        (None, MetricOutcome()),
        (assay.MetricResult(0.5, "why"), MetricOutcome(0.5, reasoning="why")),
        (assay.MetricResult(True, "why"), MetricOutcome(1.0, is_boolean=True, reasoning="why")),
        (assay.MetricResult(None, "none due"), MetricOutcome(reasoning="none due")),
        ({"value": 2, "reasoning": "why"}, MetricOutcome(2.0, reasoning="why")),
        ({"value": 2, "reasoning": None}, MetricOutcome(2.0)),
        ({"value": 2}, MetricOutcome(2.0)),
        (assay.MetricResult(1, "x" * 20_000), MetricOutcome(1.0, reasoning="x" * 10_000)),
    ],
)
def test_what_a_function_may_return(returned: Any, expected: MetricOutcome) -> None:
    """Numbers, of numpy too, truth values, none, and a value with its reason."""
    assert read_result(returned) == expected


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (math.nan, "nan, which is not finite"),
        (-math.inf, "-inf, which is not finite"),
        (10**400, "inf, which is not finite"),
        ("0.5", "it returned a string"),
        ([1.0], "it returned a list"),
        ((0.5, "why"), "it returned"),
        (np.ones(2), "it returned"),
        ({"score": 1}, "a mapping with score, where `value` and `reasoning` are due"),
        ({}, "a mapping with nothing"),
        ({"value": "high"}, "it returned a string"),
        ({"value": 1, "reasoning": 5}, "the reasoning must be a text"),
    ],
)
async def test_anything_else_is_an_error_that_says_so(returned: Any, message: str) -> None:
    """A text is not read as a number, and a value that is not finite enters no mean."""
    with pytest.raises(MalformedResultError, match=message):
        read_result(returned)
    failed = await outcome(lambda answer: returned)
    assert (failed.error, failed.value) == ("function_malformed", None)
    assert message in failed.message


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(), st.lists))
def test_a_result_is_finite_or_refused(returned: object) -> None:
    """Whatever a function returns, what is read has a finite value, or none."""
    try:
        result = read_result(returned)
    except MalformedResultError:
        return
    assert result.value is None or math.isfinite(result.value)


def raising(problem: BaseException) -> Callable[..., Any]:
    """Return a function that raises."""

    def function(answer: str) -> float:
        raise problem

    return function


async def cancels_itself(answer: str) -> float:
    """Raise what asyncio cancels with."""
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (raising(KeyError("boom")), "KeyError: 'boom'"),
        (raising(SystemExit(3)), "SystemExit: 3"),
        (raising(StopIteration()), "StopIteration"),
        (raising(TimeoutError("theirs")), "TimeoutError: theirs"),
        (cancels_itself, "the function cancelled itself"),
    ],
)
async def test_whatever_a_function_raises_is_an_error_of_its_row(function: Callable[..., Any], message: str) -> None:
    """Any exception, even one that ends a thread, task or process, is an error of its row."""
    failed = await outcome(function)
    assert (failed.error, failed.message) == ("function_raised", message)


async def test_the_traceback_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """The traceback has the user's frames alone, and no key of the environment."""
    monkeypatch.setenv("MY_API_KEY", "sk-very-secret-key-1234")

    def function(answer: str) -> float:
        raise ValueError(f"bad key {os.environ['MY_API_KEY']}")

    failed = await outcome(function)
    assert 'raise ValueError(f"bad key' in failed.traceback
    assert "metric_functions.py" not in failed.traceback.replace("test_metric_functions.py", "")
    assert "sk-very-secret" not in failed.message + failed.traceback


async def test_a_function_that_hangs_is_left_behind() -> None:
    """The time limit ends the wait for a thread and for a coroutine, even one that swallows its cancellation."""
    go = threading.Event()

    async def waits(answer: str) -> float:
        await asyncio.Event().wait()
        return 1.0

    async def swallows(answer: str) -> float:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return 1.0
        return 1.0

    functions: list[Callable[..., Any]] = [lambda answer: go.wait(), waits, swallows]
    try:
        for function in functions:
            failed = await outcome(function, timeout_s=0.05)
            assert (failed.error, failed.message) == (
                "function_timeout",
                "the function returned nothing within 0.05 s",
            )
    finally:
        go.set()


async def test_what_one_function_changes_no_other_sees() -> None:
    """Each call gets copies of its own."""

    def spoil(case: Case) -> int:
        case.metadata["m"].append(2)
        return len(case.metadata["m"])

    functions = load_metric_functions([settings("a"), settings("b")], Path(), {"a": spoil, "b": spoil})
    assert functions is not None
    recorded = dataclasses.replace(CASE, recordings=((ANSWER,), (ANSWER,)))
    message = metric_request_to_wire(MetricRequest("id", ("a", "b", "c"), recorded, QUESTION, ANSWER))
    assert message.case == case_to_wire(CASE), "recorded answers stay where they are"
    answer = await functions.compute(message)
    await functions.aclose()
    assert [answer[name].value for name in "ab"] == [2.0, 2.0]
    assert (answer["c"].error, answer["c"].message) == ("function_malformed", "the client has no function of this name")


def generates(answer: str) -> Any:
    """Yield in place of returning."""
    yield 1.0


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (int, "is a class: name a function"),
        (5, "is a value of type int, which cannot be called"),
        (generates, "yields values, and a metric returns one"),
        (lambda: 1, "receives nothing of a row: give it a parameter of answer, text"),
        (lambda answr: 1, "has the parameter 'answr', .*; did you mean 'answer'?"),
        (lambda answer, zzz: 1, "has the parameter 'zzz', and a metric receives answer, text, response, case"),
        (lambda *args, **kwargs: 1, "receives nothing of a row"),
        (print, "receives nothing of a row"),
        (max, "has no readable signature"),
    ],
)
def test_what_cannot_be_called_as_a_metric_is_refused(function: object, message: str) -> None:
    """An invalid function is refused before the run, with the reason and the valid names."""
    problem = bind(function)
    assert isinstance(problem, str)
    assert re.search(message, problem), problem


def test_every_problem_is_named_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missing modules, missing functions, wrong parameters and a module that raises, each with its metric."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "good_metrics.py").write_text("def fine(answer): return 1\ndef wrong(zzz): return 1\n")
    (tmp_path / "bad_metrics.py").write_text("raise RuntimeError('at import')\n")
    metrics = [
        MetricSpec("latency"),
        settings("fine", "good_metrics:fine"),
        settings("wrong", "good_metrics:wrong"),
        settings("gone", "good_metrics.py:fin"),
        settings("nowhere", "no_such_module_here:f"),
        settings("raises", "bad_metrics.py:f"),
    ]
    with pytest.raises(AgentImportError) as refused:
        load_metric_functions(metrics, tmp_path)
    assert sorted(problem.field for problem in refused.value.problems) == [
        "metrics[2].wrong", "metrics[3].gone", "metrics[4].nowhere", "metrics[5].raises"
    ]  # fmt: skip
    assert "at import" in refused.value.user_traceback
    with pytest.raises(InvalidInputError) as refused_more:
        load_metric_functions(metrics[:5], tmp_path)
    assert len(refused_more.value.problems) == 3
    assert load_metric_functions(metrics[:1], tmp_path) is None
    assert load_metric_functions(metrics[:2], tmp_path) is not None


def test_a_request_comes_through_the_wire_whole() -> None:
    """Parts that question and case share travel once and are restored in both."""
    talk = Case("talk", (Turn("one"), Turn("two", references=("r",))), variables={"v": 1}, recordings=((ANSWER,),))
    question = AgentRequest(
        "k", "run", "talk", "two", turn_index=1, history=(Message("user", "one"),), variables={"v": 1}, timeout_s=5.0
    )
    message = metric_request_to_wire(MetricRequest("id", ("m",), talk, question, ANSWER))
    assert (message.question.input, message.question.variables_json, len(message.case.recordings)) == ("", "", 0)
    received = metric_request_from_wire(message)
    assert (received.question, received.response, received.metrics) == (question, ANSWER, ("m",))
    assert received.case.turns == talk.turns
    own = Case("own", (Turn("q", history=QUESTION.history),))
    sent = metric_request_to_wire(MetricRequest("id", ("m",), own, QUESTION, ANSWER))
    assert len(sent.question.history) == 0
    assert metric_request_from_wire(sent).question.history == QUESTION.history


def test_a_client_is_not_trusted() -> None:
    """An invalid outcome from a client is an error, and its texts are bounded."""
    message = outcomes_to_wire("id", {"a": MetricOutcome(1.0, reasoning="r"), "b": MetricOutcome(error="odd\n" * 9)})
    message.outcomes.add(metric="nan", value=math.nan)
    message.outcomes.add(metric="half", value=0.5, is_boolean=True)
    message.outcomes.add(metric="long", value=1, reasoning="x" * 30_000)
    message.outcomes.add(metric="loud", error="function_raised", message="m" * 9_000, traceback="t" * 20_000)
    result = outcomes_from_wire(message)
    assert result["a"] == MetricOutcome(1.0, reasoning="r")
    assert (result["b"].error, result["nan"].error) == ("function_malformed", "function_malformed")
    assert (result["half"].is_boolean, len(result["long"].reasoning)) == (False, 10_000)
    assert (len(result["loud"].message), len(result["loud"].traceback)) == (4_000, 8_000)


async def test_the_functions_of_the_guide_are_metrics() -> None:
    """The example of docs/metrics/composites.md runs as it is."""
    (block,) = blocks("docs/metrics/composites.md", "python")
    found: dict[str, Any] = {}
    exec(block.text, found)
    helpful, polite = await outcome(found["helpfulness"]), await outcome(found["is_polite"])
    assert (helpful.value, helpful.reasoning, polite.value, polite.is_boolean) == (0.0, "says []", 0.0, True)


async def test_an_exit_in_a_task_is_the_error_of_its_row() -> None:
    """An exit in a task is an error of its row: asyncio would end the process with status 0."""

    async def leave() -> None:
        sys.exit(0)

    async def gathers(answer: str) -> None:
        await asyncio.gather(leave())

    result = await outcome(gathers)
    assert (result.error, result.message) == ("function_raised", "SystemExit: 0")


async def test_a_message_that_is_no_unicode_reaches_the_orchestrator() -> None:
    """A result with a lone surrogate is refused with a message that the wire can carry."""
    result = await outcome(lambda answer: {"\ud800": 1})
    assert result.error == "function_malformed"
    assert outcomes_to_wire("id", {"m": result}).SerializeToString()
