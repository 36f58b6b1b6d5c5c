"""Approvals of a spec and of cases are read, or refused with all problems before anything is asked."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest

from assay.client.input_checks import check_inputs
from assay.datasets import open_dataset
from assay.datasets.cases.case_record import case_record
from assay.datasets.cases.identity import content_of
from assay.errors import DatasetError, SpecError
from assay.model.answers.agent_request import AgentRequest
from assay.model.answers.approvals import Approval, Decision
from assay.model.answers.interrupts import DecisionKind
from assay.model.settings_differences import differing_settings
from assay.specs.approvals import check_approvals
from assay.specs.http_options import render
from assay.specs.loader import spec_from_mapping

if TYPE_CHECKING:
    from pathlib import Path

    from assay.model.case import Case
    from assay.specs.model import Spec

REFUND = {"tool": "refund", "approve": True}
LANGGRAPH = {"adapter": "langgraph", "target": "agent:graph"}
HTTP = {"adapter": "http", "target": "http://127.0.0.1:1/"}
MODEL = {"adapter": "openai", "target": "m"}
WITH_BODY = {**HTTP, "body": {"q": "{{input}}", "approvals": "{{ approvals }}"}}
WITH_QUERY = {**HTTP, "query": {"a": "{{approvals}}"}}


def spec(approvals: object = None, agent: dict[str, Any] = LANGGRAPH) -> Spec:
    data = {"metrics": ["latency"], "agent": agent} | ({} if approvals is None else {"approvals": approvals})
    return spec_from_mapping(data, needs_dataset=False)


def problems(approvals: object, agent: dict[str, Any] = LANGGRAPH) -> list[str]:
    with pytest.raises(SpecError) as caught:
        spec(approvals, agent)
    return [str(problem) for problem in caught.value.problems]


def cases(folder: Path, *records: dict[str, Any]) -> list[Case]:
    file = folder / "cases.jsonl"
    file.write_text("".join(json.dumps({"input": "q"} | record) + "\n" for record in records))
    return list(open_dataset(file).cases())


def test_a_spec_uses_an_item_as_often_as_needed() -> None:
    """A spec's approval is unbounded by default; a difference between two specs is named."""
    settings = spec([REFUND, {"answer": None, "times": 2}]).settings
    assert settings.approvals == (
        Approval(Decision(DecisionKind.APPROVE), "refund"),
        Approval(Decision(DecisionKind.ANSWER), times=2),
    )
    assert differing_settings(settings, spec([REFUND]).settings) == ["approvals"]


def test_every_problem_of_a_spec_is_named_with_its_place() -> None:
    """Problems of approvals come with each other and with those of other keys."""
    assert problems([{"approve": True, "deny": "no"}, {"edit": 3, "tol": "x"}], {"adapter": "langgraph"})[-3:] == [
        "approvals[0]: decides approve and deny: write one decision an item",
        "approvals[1].tol: unknown field of an approval 'tol'; did you mean 'tool'?",
        "approvals[1].edit: must be a mapping of the call's arguments, not 3",
    ]
    assert problems({"approve": True}) == ["approvals: must be a list of decisions, not an object"]
    assert problems(None, {**LANGGRAPH, "approvals": [REFUND]}) == [
        "agent.approvals: belongs beside `agent`, not in it: move it out one level"
    ]


@pytest.mark.parametrize(
    ("agent", "message"),
    [
        (MODEL, "asks a model once"),
        (HTTP, r"write {{approvals}} into agent.body"),
    ],
)
def test_an_agent_that_cannot_use_them_is_refused(agent: dict[str, Any], message: str) -> None:
    """An adapter without approvals would run every row to its first stop, and be paid for it."""
    assert [message in problem for problem in problems([REFUND], agent)] == [True]
    settings = dataclasses.replace(spec(agent=agent).settings, approvals=spec([REFUND]).settings.approvals)
    assert [message in problem.message for problem in check_approvals(settings)] == [True]


def test_the_orchestrator_checks_approvals_itself() -> None:
    """A request of another client is held to the same rules."""
    settings = dataclasses.replace(
        spec().settings,
        approvals=(Approval(Decision(DecisionKind.DENY), times=0), Approval(Decision(DecisionKind.DENY))),
    )
    assert [problem.field for problem in check_approvals(settings)] == [
        "approvals[0].deny", "approvals[0].times", "approvals[1].deny",
    ]  # fmt: skip


@pytest.mark.parametrize("agent", [WITH_BODY, WITH_QUERY])
def test_an_http_request_may_have_them(agent: dict[str, Any]) -> None:
    """A template that names the approvals gets them as people write them."""
    approvals = spec([REFUND], agent).settings.approvals
    request = AgentRequest("r", "run", "c", "q", approvals=approvals)
    assert render({"a": "{{approvals}}"}, request) == {"a": [{**REFUND, "times": "unlimited"}]}


def test_a_case_uses_an_item_once(tmp_path: Path) -> None:
    """A case's approval is used once by default, and survives in a record of the case."""
    (case,) = cases(tmp_path, {"id": "a", "approvals": [REFUND, {"edit": {"n": [1]}, "times": "unlimited"}]})
    assert case.approvals == (
        Approval(Decision(DecisionKind.APPROVE), "refund", 1),
        Approval(Decision(DecisionKind.EDIT, arguments={"n": [1]})),
    )
    assert cases(tmp_path, case_record(case)) == [case]
    assert content_of(case) != content_of(dataclasses.replace(case, approvals=()))


def test_cases_that_differ_in_their_approvals_are_no_copies(tmp_path: Path) -> None:
    """One question with a yes and with a no is two cases, with ids of their own and without a warning."""
    one, other = cases(tmp_path, {"approvals": [REFUND]}, {"approvals": [{"deny": "no"}]})
    assert one.case_id != other.case_id
    info = open_dataset(tmp_path / "cases.jsonl").check()
    assert (info.copy_count, info.warnings) == (0, ())


def test_a_cell_of_a_table_holds_a_list(tmp_path: Path) -> None:
    """In a table the list is JSON; an empty cell is a case without approvals."""
    file = tmp_path / "cases.csv"
    file.write_text('question,approvals\na,"[{""approve"": true}]"\nb,\n')
    assert [len(case.approvals) for case in open_dataset(file).cases()] == [1, 0]


def test_every_problem_of_a_case_is_named(tmp_path: Path) -> None:
    """A case with wrong approvals is refused with its line; another meaning of the field can be switched off."""
    with pytest.raises(DatasetError) as caught:
        cases(tmp_path, {"approvals": [{"deny": ""}, {}]}, {"approvals": 3})
    assert [(problem.line, problem.field.rpartition(", ")[2]) for problem in caught.value.problems] == [
        (1, "approvals[0].deny"), (1, "approvals[1]"), (2, "approvals"),
    ]  # fmt: skip
    assert 'map: {approvals: ""}' in caught.value.problems[2].message
    file = tmp_path / "cases.jsonl"
    file.write_text('{"question": "q", "approvals": 3}')
    (case,) = open_dataset(file, field_map={"approvals": ""}).cases()
    assert case.metadata == {"approvals": 3}


def test_cases_with_approvals_need_an_agent_that_can_use_them(tmp_path: Path) -> None:
    """What cases bring along is checked before anything is asked; recorded answers need no agent."""
    cases(tmp_path, {"approvals": [REFUND], "recorded": "a"}, {"recorded": "b"})
    dataset = open_dataset(tmp_path / "cases.jsonl")
    assert spec([REFUND], {"adapter": "replay"}).settings.approvals
    assert check_inputs(spec(), dataset).approvals_count == 1
    assert check_inputs(spec(agent={"adapter": "replay"}), dataset).approvals_count == 1
    with pytest.raises(DatasetError, match=r"1 of 2 cases have `approvals`: the openai adapter asks a model once"):
        check_inputs(spec(agent={**MODEL, "prompt": "{{input}}"}), dataset)
