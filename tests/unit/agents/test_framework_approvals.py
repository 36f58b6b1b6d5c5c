"""An agent that stops for a person is resumed with the scripted decisions, to its end or to the first open question."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.docs.guides import blocks

from assay.agent_host.caller import AgentCaller
from assay.agent_host.failures import Failures, TooManyStopsError
from assay.agent_host.frameworks.approvals import MAX_STOPS, run_to_end
from assay.model.answers.agent_request import AgentRequest
from assay.model.answers.agent_response import AgentStatus
from assay.model.answers.approvals import (
    Approval,
    Decision,
    ScriptedApprovals,
    approvals_from_json,
    approvals_to_json,
    read_approvals,
    remaining_approvals,
    unstopped_tools,
)
from assay.model.answers.interrupts import DecisionKind, Interrupt, InterruptKind

if TYPE_CHECKING:
    from collections.abc import Sequence

REFUND = Interrupt("1", InterruptKind.APPROVAL, "refund", '{"amount": 5}')
MAIL = Interrupt("2", InterruptKind.APPROVAL, "send_mail")
PRINTER = Interrupt("3", InterruptKind.CALL, "print_label")
QUESTION = Interrupt("4", InterruptKind.INPUT, message="Which colour?")

ITEMS = st.builds(
    lambda tool, said, times: ({"tool": tool} if tool else {}) | said | ({"times": times} if times else {}),
    st.sampled_from(["", "refund", "send_mail", "print_label"]),
    st.sampled_from([{"approve": True}, {"deny": "no"}, {"edit": {"amount": 1}}, {"answer": "blue"}, {"answer": None}]),
    st.sampled_from([None, 1, 2, "unlimited"]),
)


class FakeAgent:
    """An agent that makes its stops one after the other, and keeps what it is resumed with."""

    def __init__(self, *stops: Sequence[Interrupt]) -> None:
        self.stops = stops
        self.resumed: list[Any] = []

    async def run(self) -> int:
        return 0

    async def resume(self, at: int, decisions: Sequence[tuple[Interrupt, Decision]]) -> int:
        self.resumed.append([(interrupt.id, decision.kind.value) for interrupt, decision in decisions])
        return at + 1

    def waiting(self, at: int) -> Sequence[Interrupt]:
        return self.stops[at] if at < len(self.stops) else ()

    def ask(self, approvals: ScriptedApprovals) -> int:
        return asyncio.run(run_to_end(self.run, self.resume, self.waiting, approvals))


def scripted(*items: dict[str, Any], times: int | None = 1) -> ScriptedApprovals:
    approvals, problems = read_approvals(list(items), times=times)
    assert problems == []
    return ScriptedApprovals(approvals)


def words(approvals: ScriptedApprovals) -> list[tuple[str, str]]:
    return [(interrupt.id, interrupt.decision) for interrupt in approvals.interrupts]


def test_an_agent_is_resumed_to_its_end_stop_by_stop() -> None:
    """Every decision goes to its interrupt, and the answer names all of them in order."""
    agent = FakeAgent([REFUND, MAIL], [PRINTER], [QUESTION])
    approvals = scripted({"tool": "send_mail", "deny": "no"}, {"approve": True}, {"answer": 7}, {"answer": "red"})
    assert agent.ask(approvals) == 3
    assert agent.resumed == [[("1", "approve"), ("2", "deny")], [("3", "answer")], [("4", "answer")]]
    assert words(approvals) == [("1", "approve"), ("2", "deny"), ("3", "answer"), ("4", "answer")]
    assert not approvals.is_waiting


def test_a_stop_with_an_open_interrupt_is_not_resumed() -> None:
    """An agent is not resumed with half of the decisions; what waits comes last."""
    agent = FakeAgent([REFUND], [MAIL, REFUND])
    approvals = scripted({"tool": "refund", "approve": True, "times": 2})
    assert agent.ask(approvals) == 1
    assert agent.resumed == [[("1", "approve")]]
    assert words(approvals) == [("1", "approve"), ("1", "approve"), ("2", "")]
    assert approvals.is_waiting


def test_an_agent_without_approvals_runs_once() -> None:
    """Without items the first stop is the end."""
    agent = FakeAgent([QUESTION])
    approvals = scripted()
    assert agent.ask(approvals) == 0
    assert approvals.interrupts == (QUESTION,)


def test_an_agent_that_always_stops_is_an_error() -> None:
    """An item that is used without limit does not resume for ever, and the error says which tool asks."""
    agent = FakeAgent(*[[REFUND]] * (MAX_STOPS + 1))
    approvals = scripted({"approve": True}, times=None)
    with pytest.raises(TooManyStopsError, match=r"resumed the agent 100 times .*\(refund\)") as raised:
        agent.ask(approvals)
    assert len(agent.resumed) == MAX_STOPS
    error = Failures().of(raised.value).error
    assert error is not None
    assert (error.type, error.retryable, error.traceback) == ("TooManyStops", False, "")


def test_an_agent_that_ends_after_the_last_resume_has_ended() -> None:
    """The bound counts stops that are resumed, not answers."""
    assert FakeAgent(*[[REFUND]] * MAX_STOPS).ask(scripted({"approve": True}, times=None)) == MAX_STOPS


@pytest.mark.parametrize(
    ("item", "fits"),
    [
        ({"approve": True}, {"refund", "question"}),
        ({"deny": "no"}, {"refund", "question"}),
        ({"edit": {}}, {"refund"}),
        ({"answer": 1}, {"print_label", "question"}),
        ({"tool": "refund", "approve": True}, {"refund"}),
        ({"tool": "print_label", "answer": 1}, {"print_label"}),
    ],
)
def test_a_decision_fits_kinds_of_interrupts(item: dict[str, Any], fits: set[str]) -> None:
    """A call for approval is not answered, and a call that runs outside is not approved."""
    named = {"refund": REFUND, "print_label": PRINTER, "question": QUESTION}
    assert {name for name, stop in named.items() if scripted(item).decide(stop) is not None} == fits


def test_a_question_takes_an_answer_before_a_yes() -> None:
    """An approval for all tools does not answer a question that an item with an answer is meant for."""
    approvals = scripted({"approve": True}, {"answer": "red"}, times=None)
    decisions = [approvals.decide(stop) for stop in (QUESTION, REFUND)]
    assert [decision.kind for decision in decisions if decision] == [DecisionKind.ANSWER, DecisionKind.APPROVE]


def test_a_yes_or_no_answers_a_question() -> None:
    """Where a question is approved or denied, its answer is true or false."""
    sentences = [scripted(item).decide(QUESTION) for item in ({"approve": True}, {"deny": "no"}, {"answer": {"a": 1}})]
    assert [decision.answer for decision in sentences if decision] == [True, False, {"a": 1}]


def test_every_problem_of_a_list_is_named() -> None:
    """Nothing of a list with problems is used, and all of them are said at once."""
    items = [
        {"approve": True, "deny": "no"},
        {"tool": "refund"},
        {"approve": False},
        {"deny": True},
        {"deny": " "},
        {"edit": [1]},
        {"edit": {"at": object()}},
        {"answer": 1, "time": 2},
        {"answer": 1, "times": 0, "tool": ""},
        {"answer": 1, "times": True},
        "approve",
        {"answer": 1, 5: 2},
    ]
    _, problems = read_approvals(items, times=1)
    assert [part for part, _ in problems] == [
        "[0]", "[1]", "[2].approve", "[3].deny", "[4].deny", "[5].edit", "[6].edit", "[7].time", "[8].tool",
        "[8].times", "[9].times", "[10]", "[11].5",
    ]  # fmt: skip
    assert problems[0][1] == "decides approve and deny: write one decision an item"
    assert problems[2][1] == "must be true, not False; to refuse a call write deny: REASON"
    assert problems[7][1] == "unknown field of an approval 'time'; did you mean 'times'?"
    assert read_approvals({"approve": True}, times=1)[1] == [("", "must be a list of decisions, not an object")]
    assert read_approvals([{"approve": True}] * 101, times=1)[1] == [("", "has 101 items, more than 100")]
    ((part, said),) = read_approvals([{"answer": "x" * 120_000}] * 2, times=1)[1]
    assert (part, said.endswith("characters as JSON, more than 200,000: shorten the values")) == ("", True)


@given(st.lists(ITEMS, max_size=6), st.sampled_from([None, 1]))
def test_a_list_survives_json(items: list[dict[str, Any]], times: int | None) -> None:
    """What is written is read back the same, whatever the default of the reader was."""
    approvals, problems = read_approvals(items, times=times)
    assert problems == []
    assert approvals_from_json(approvals_to_json(approvals)) == approvals
    assert read_approvals(approvals_to_json(approvals), times=1)[0] == approvals


@given(
    st.lists(ITEMS, max_size=6),
    st.lists(st.sampled_from([REFUND, MAIL, PRINTER, QUESTION]), max_size=12),
    st.integers(0, 12),
)
def test_turns_share_a_list(items: list[dict[str, Any]], stops: list[Interrupt], cut: int) -> None:
    """A conversation cut into turns takes the same decisions as one turn with all of its stops."""
    approvals, _ = read_approvals(items, times=1)
    whole = ScriptedApprovals(approvals)
    expected = [whole.decide(stop) for stop in stops]
    first = ScriptedApprovals(approvals)
    head = [first.decide(stop) for stop in stops[:cut]]
    second = ScriptedApprovals(remaining_approvals(approvals, first.interrupts))
    assert head + [second.decide(stop) for stop in stops[cut:]] == expected
    assert remaining_approvals(approvals, first.interrupts) == first.remaining()


def test_tools_without_a_stop_are_named_once() -> None:
    """A tool's name that no stop has is shown, however many items have it."""
    approve = Decision(DecisionKind.APPROVE)
    approvals = [Approval(approve, "refnd"), Approval(approve, "refund"), Approval(approve), Approval(approve, "refnd")]
    assert unstopped_tools(approvals, [dataclasses.replace(REFUND, decision="approve")]) == ("refnd",)


@pytest.mark.parametrize(
    ("items", "status", "text", "decisions"),
    [
        ([], AgentStatus.INTERRUPTED, "May I refund 5 EUR?", [""]),
        ([{"approve": True}], AgentStatus.SUCCESS, "Refunded 5 EUR.", ["approve"]),
        ([{"tool": "refund", "edit": {"amount": 3}}], AgentStatus.SUCCESS, "Refunded 3 EUR.", ["edit"]),
        ([{"deny": "too much"}], AgentStatus.SUCCESS, "No refund: too much", ["deny"]),
    ],
)
async def test_the_agent_of_the_guide_resumes_itself(
    items: list[dict[str, Any]], status: AgentStatus, text: str, decisions: list[str]
) -> None:
    """It reads its decisions from the request, and its answer has every stop with its decision."""
    (block,) = blocks("docs/approvals.md", "python")
    names: dict[str, Any] = {}
    exec(block.text, names)
    request = AgentRequest("r", "run", "c", "q", approvals=read_approvals(items, times=1)[0])
    answer = await AgentCaller(names["answer"]).call(request)
    assert (answer.status, answer.text) == (status, text)
    assert [(stop.kind, stop.tool, stop.decision) for stop in answer.interrupts] == [
        (InterruptKind.APPROVAL, "refund", decision) for decision in decisions
    ]
