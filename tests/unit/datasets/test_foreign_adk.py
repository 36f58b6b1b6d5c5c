"""ADK's shapes: eval sets in snake and camel case, earlier eval files, test files that are one conversation."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from assay.datasets import open_dataset
from assay.errors import DatasetError
from assay.model.case import Case, ExpectedTool
from assay.model.run_spec import CaseSelection

Write = Callable[..., str]
Read = Callable[..., list[Case]]
Refusal = Callable[..., list[str]]


def _content(text: str, role: str = "user") -> dict[str, Any]:
    """Return a content as ADK writes it, with every field that is null."""
    nothing = dict.fromkeys(["video_metadata", "thought", "inline_data", "file_data", "function_call"])
    return {"parts": [{**nothing, "text": text}], "role": role}


EVAL_SET: dict[str, Any] = {
    "eval_set_id": "home_automation",
    "name": "Home automation",
    "description": None,
    "eval_cases": [
        {
            "eval_id": "lamp_then_door",
            "conversation": [
                {
                    "invocation_id": "e-1",
                    "user_content": _content("Turn off device_2 in the bedroom."),
                    "final_response": _content("I have set device_2 to off.", "model"),
                    "intermediate_data": {
                        "tool_uses": [
                            {"id": None, "args": {"device_id": "device_2", "status": "OFF"}, "name": "set_device_info"}
                        ],
                        "intermediate_responses": [["home_agent", [{"text": "One moment."}]]],
                    },
                    "creation_timestamp": 1747337309.2,
                },
                {
                    "invocation_id": "e-2",
                    "user_content": _content("And the door?"),
                    "final_response": _content("The door is locked.", "model"),
                    "intermediate_data": {"tool_uses": [], "intermediate_responses": []},
                    "creation_timestamp": 1747337311.0,
                },
            ],
            "session_input": {"app_name": "home", "user_id": "u", "state": {"room": "bedroom"}},
            "creation_timestamp": 1747337309.2,
        },
        {
            "eval_id": "hello",
            "conversation": [
                {"invocation_id": "", "user_content": _content("Hi"), "final_response": None, "intermediate_data": None}
            ],
            "session_input": None,
        },
    ],
    "creation_timestamp": 1747337309.2,
}


def _camel(value: Any) -> Any:
    """Return the value with field names as ADK's other writer has them."""
    if isinstance(value, dict):
        free = ("args", "state")
        return {
            name if "_" not in name else name.split("_")[0] + "".join(part.title() for part in name.split("_")[1:]): (
                item if name in free else _camel(item)
            )
            for name, item in value.items()
        }
    return [_camel(item) for item in value] if isinstance(value, list) else value


def _look_at_eval_set(lamp: Case, hello: Case) -> None:
    assert (lamp.case_id, hello.case_id) == ("lamp_then_door", "hello")
    assert [turn.input for turn in lamp.turns] == ["Turn off device_2 in the bedroom.", "And the door?"]
    assert [turn.references for turn in lamp.turns] == [("I have set device_2 to off.",), ("The door is locked.",)]
    arguments = {"device_id": "device_2", "status": "OFF"}
    assert lamp.turns[0].expected_tools == (ExpectedTool("set_device_info", arguments, "exact"),)
    assert lamp.turns[1].expected_tools == ()
    assert lamp.parameters == {"state": {"room": "bedroom"}}
    assert (hello.input, hello.references, hello.parameters) == ("Hi", (), {})


def test_an_eval_set(write: Write, wired: Read) -> None:
    """Shape 1: every eval case is a case with turns, answers, tool calls and initial state."""
    lamp, hello = wired(write("home.evalset.json", EVAL_SET))
    _look_at_eval_set(lamp, hello)
    intermediate = [["home_agent", [{"text": "One moment."}]]]
    assert lamp.expected["turns"] == [{"intermediate_responses": intermediate}, {}]
    assert lamp.metadata["session_input"]["app_name"] == "home"
    info = open_dataset("home.evalset.json").check()
    assert (info.format, info.case_count, info.reference_count, info.warnings) == ("adk/json", 2, 1, ())
    assert info.mapping["turns"] == "conversation | data | the file's list"


def test_an_eval_set_in_camel_case(write: Write, wired: Read) -> None:
    """The same file with names in camel case, its list under `evalCases`, is the same dataset."""
    content = _camel(EVAL_SET)
    assert "evalCases" in content
    assert content["evalCases"][0]["conversation"][0]["intermediateData"]["toolUses"]
    _look_at_eval_set(*wired(write("home.evalset.json", content)))


@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "x.yaml"])
def test_eval_cases_without_their_set(write: Write, wired: Read, name: str) -> None:
    """Eval cases outside their set are still recognised, in every container."""
    cases = EVAL_SET["eval_cases"]
    _look_at_eval_set(*wired(write(name, cases if name != "x.yaml" else json.dumps(cases))))


def test_eval_cases_with_a_query_of_their_own(write: Write, wired: Read) -> None:
    """A case that has a conversation stays a case of its own, whatever else is written beside it."""
    noted = [{**case, "query": "a note"} for case in EVAL_SET["eval_cases"]]
    _look_at_eval_set(*wired(write("x.json", noted)))


def test_calls_in_recorded_events(write: Write, wired: Read) -> None:
    """Later versions record events between question and answer: their calls of tools are the expected ones."""
    call = {"function_call": {"id": "c1", "args": {"city": "Riyadh"}, "name": "weather"}}
    thought = {"text": "Let me think. ", "thought": True}
    turn = {
        "user_content": _content("Weather?"),
        "final_response": {"parts": [thought, {"text": "It is "}, {"text": "hot."}], "role": "model"},
        "intermediate_data": {"invocation_events": [{"author": "a", "content": {"parts": [call], "role": "model"}}]},
    }
    (case,) = wired(write("x.json", {"eval_set_id": "s", "eval_cases": [{"eval_id": "a", "conversation": [turn]}]}))
    assert case.turns[0].expected_tools == (ExpectedTool("weather", {"city": "Riyadh"}, "exact"),)
    assert case.references == ("It is hot.",)


OLD_FILE: list[dict[str, Any]] = [
    {
        "name": "roll_and_check",
        "data": [
            {
                "query": "Roll a die",
                "expected_tool_use": [{"tool_name": "roll_die", "tool_input": {"sides": 6}}],
                "expected_intermediate_agent_responses": [],
                "reference": "I rolled a 4.",
            },
            {"query": "Is it prime?", "expected_tool_use": [], "reference": "No."},
        ],
        "initial_session": {"state": {"rolls": []}, "app_name": "dice", "user_id": "u"},
    },
    {"name": "bye", "data": [{"query": "Bye", "expected_tool_use": [], "reference": "Bye."}], "initial_session": {}},
]


def test_an_earlier_eval_file(write: Write, wired: Read) -> None:
    """Shape 2: a list of named conversations; each is one case with its first state."""
    roll, bye = wired(write("dice.evalset.json", OLD_FILE))
    assert (roll.case_id, bye.case_id) == ("roll_and_check", "bye")
    assert [turn.input for turn in roll.turns] == ["Roll a die", "Is it prime?"]
    assert roll.turns[0].expected_tools == (ExpectedTool("roll_die", {"sides": 6}, "exact"),)
    assert roll.references == ("No.",)
    assert roll.parameters == {"state": {"rolls": []}}
    assert open_dataset("dice.evalset.json").check().format == "adk/json"


def test_a_test_file_is_one_conversation(write: Write, wired: Read) -> None:
    """Shape 3: a bare list of turns is ONE case named after the file, never as many cases as it has turns."""
    turns = OLD_FILE[0]["data"]
    name = write("dice.test.json", turns)
    (case,) = wired(name)
    assert case.case_id == "dice"
    assert [turn.input for turn in case.turns] == ["Roll a die", "Is it prime?"]
    assert [turn.references for turn in case.turns] == [("I rolled a 4.",), ("No.",)]
    info = open_dataset(name).check()
    assert (info.format, info.case_count) == ("adk/json", 1)
    assert open_dataset(name, selection=CaseSelection(limit=1)).check().case_count == 1
    assert len(next(iter(open_dataset(name, selection=CaseSelection(limit=1)).cases())).turns) == 2


def test_a_long_test_file_is_one_conversation(write: Write, wired: Read) -> None:
    """A conversation longer than the sampled records is still one case."""
    turns = [{"query": f"Q{n}", "expected_tool_use": [], "reference": f"A{n}"} for n in range(100)]
    (case,) = wired(write("long.test.json", turns))
    assert len(case.turns) == 100
    assert case.input == "Q99"
    with pytest.raises(DatasetError, match="turns: must be 1 to 100, not 101"):
        wired(write("longer.test.json", [*turns, turns[0]]))


def test_turns_that_hold_only_query_and_reference(write: Write, wired: Read) -> None:
    """The file's name tells a test file from a list of questions; elsewhere a warning says how to choose."""
    records = [{"query": "Q1", "reference": "A1"}, {"query": "Q2", "reference": "A2"}]
    (case,) = wired(write("talk.test.json", records))
    assert (case.case_id, len(case.turns)) == ("talk", 2)
    name = write("talk.json", records)
    assert [case.input for case in wired(name)] == ["Q1", "Q2"]
    (warning,) = open_dataset(name).check().warnings
    assert "if it is a test file of ADK, which is one conversation, set `format: adk`" in str(warning)
    assert [len(case.turns) for case in wired(name, format="adk")] == [2]
    assert open_dataset(name, field_map={"input": "query"}).check().warnings == ()


def test_the_presets_own_shape(write: Write, wired: Read) -> None:
    """Shape 4: `eval_cases` of questions and reference answers is no eval set of ADK, whatever its top key."""
    content = {"eval_cases": [{"eval_id": "a", "user_query": "ما هو المترو؟", "reference_answer": "قطار"}]}
    (case,) = wired(write("x.json", content))
    assert (case.case_id, case.input, case.references) == ("a", "ما هو المترو؟", ("قطار",))
    assert open_dataset("x.json").check().format == "prompt-benchmark/json"


@pytest.mark.parametrize(
    ("record", "place"),
    [
        (
            {"eval_id": "b", "conversation_scenario": {"starting_prompt": "Hi"}},
            "record 2, conversation_scenario: lets a model play the user",
        ),
        ({"eval_id": "b", "conversation": []}, "record 2, conversation: must be a list of turns, not []"),
        ({"eval_id": "b", "conversation": ["Hi"]}, "record 2, conversation[0]: must be a turn with user_content"),
        (
            {"eval_id": "b", "conversation": [{"user_content": {"role": "user"}}]},
            "record 2, conversation[0].user_content: must be a content with parts",
        ),
        (
            {"eval_id": "b", "conversation": [{"user_content": {"parts": [{"inline_data": {"data": "x"}}]}}]},
            "record 2, conversation[0].user_content.parts[0]: must be a part with text",
        ),
        (
            {
                "eval_id": "b",
                "conversation": [{"user_content": "Q", "intermediate_data": {"tool_uses": [{"args": {}}]}}],
            },
            "record 2, conversation[0].intermediate_data.tool_uses[0].name: must name a tool",
        ),
    ],
)
def test_cases_that_are_refused(write: Write, refusal: Refusal, record: dict[str, Any], place: str) -> None:
    """What is no conversation of texts is refused with file, line and the place in the record."""
    (problem,) = refusal(write("x.jsonl", [EVAL_SET["eval_cases"][1], record]))
    assert problem.startswith(f"x.jsonl:2: {place}"), problem


def test_a_turn_that_is_refused(write: Write, refusal: Refusal) -> None:
    """A wrong turn of a test file is named by its line and field."""
    content = '[{"query": "Q", "expected_tool_use": []},\n\n{"query": "R", "expected_tool_use": [{"tool_input": 1}]}]'
    (problem,) = refusal(write("x.test.json", content))
    assert problem.startswith("x.test.json:3: record 2, expected_tool_use[0].name: must name a tool"), problem
    content = '[{"query": "Q", "expected_tool_use": []},\n{"expected_tool_use": []}]'
    (problem,) = refusal(write("x.test.json", content))
    assert problem.startswith("x.test.json:2: record 2: must be a turn with a query"), problem


@pytest.mark.parametrize("broken", [5, "text", None, [1]])
def test_a_turn_that_is_no_object_is_refused(write: Write, refusal: Refusal, broken: object) -> None:
    """The whole conversation is one case: what is wrong in one of its turns is said, with its place."""
    turns = [{"query": "Q", "reference": "A"}, broken]
    (problem,) = refusal(write("x.test.json", turns))
    assert problem == f"x.test.json:1: record 2: must be an object with named fields, not {json.dumps(broken)}"
