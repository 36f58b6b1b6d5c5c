"""Cases written as records, and read again: what `assay run --record` writes is what `replay` is given."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.datasets import open_dataset
from assay.datasets.cases.case_record import case_record
from assay.errors import DatasetError
from assay.model.answers.agent_response import (
    AgentError,
    AgentErrorKind,
    AgentResponse,
    AgentStatus,
    Attempt,
    Message,
    Source,
    ToolCall,
    Usage,
    error_response,
)
from assay.model.case import Assertion, Case, ExpectedTool, Turn

_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
_WORDS = _TEXT.filter(lambda text: bool(text.strip()))
_NAME = st.text("abc-é7", min_size=1, max_size=8)
_NUMBER = st.floats(0, 1e6)
_JSON = st.recursive(st.none() | st.booleans() | st.integers(-9, 9) | _TEXT, lambda inner: st.lists(inner, max_size=2))
_OBJECT = st.dictionaries(_NAME, _JSON, max_size=2)
_TEXTS = st.lists(_TEXT, max_size=2).map(tuple)
_TOOLS = st.builds(
    ExpectedTool, _NAME, st.none() | st.dictionaries(_NAME, _JSON, max_size=2), st.sampled_from(["name", "exact"])
)
_MESSAGES = st.builds(Message, st.sampled_from(["user", "tool"]), _TEXT, _TEXT, _TEXT)
_TURNS = st.builds(
    Turn,
    _WORDS,
    st.lists(_MESSAGES, max_size=2).map(tuple),
    _TEXTS,
    _TEXTS,
    st.lists(_TOOLS, max_size=2).map(tuple),
)
_SOURCES = st.lists(st.builds(Source, _TEXT, _TEXT, _TEXT, _TEXT, st.none() | _NUMBER, _OBJECT), max_size=2).map(tuple)
_CALLS = st.lists(st.builds(ToolCall, _NAME, _TEXT, _TEXT, _TEXT, st.booleans(), st.none() | _NUMBER), max_size=2)
_ATTEMPT = Attempt(3.5, AgentError(AgentErrorKind.TIMEOUT, "late", retryable=True))
_ANSWERS = st.builds(
    AgentResponse,
    status=st.sampled_from([AgentStatus.SUCCESS, AgentStatus.OUT_OF_SCOPE]),
    text=_TEXT,
    output=_JSON,
    sql=st.none() | _WORDS,
    data_rows=st.none() | st.integers(0, 9),
    tool_calls=_CALLS.map(tuple),
    sources=_SOURCES,
    retrieved=st.none() | _SOURCES,
    usage=st.none() | st.builds(Usage, total_tokens=st.integers(0, 99), cost_usd=st.none() | _NUMBER),
    latency_ms=st.none() | _NUMBER,
    time_to_first_token_ms=st.none() | _NUMBER,
    cold=st.booleans(),
    finish_reason=_TEXT,
    model=_TEXT,
    attempts=st.sampled_from([(), (_ATTEMPT,)]),
    metadata=_OBJECT,
) | st.just(error_response(AgentErrorKind.HTTP_STATUS, "no", http_status=500, retryable=True, traceback="a\nb"))
_CASES = st.builds(
    Case,
    case_id=_NAME,
    turns=st.lists(_TURNS, min_size=1, max_size=2).map(tuple),
    variables=_OBJECT,
    parameters=_OBJECT,
    contexts=_TEXTS,
    choices=_TEXTS,
    category=_TEXT,
    tags=_TEXTS,
    expected=_OBJECT,
    assertions=st.lists(
        st.builds(Assertion, st.just("contains"), _WORDS, group=_TEXT, weight=_NUMBER, negate=st.booleans()),
        max_size=2,
    ).map(tuple),
    thresholds=st.dictionaries(_NAME, _NUMBER, max_size=2),
    weight=_NUMBER,
    human_labels=_OBJECT,
    metadata=_OBJECT,
)


def read_again(case: Case) -> Case:
    """Return the case that a file with the record of a case holds."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "recorded.jsonl"
        file.write_text(json.dumps(case_record(case)) + "\n", encoding="utf-8")
        (found,) = open_dataset(file).cases()
        return found


@given(_CASES, st.lists(_ANSWERS, max_size=3))
def test_a_record_is_read_as_its_case(case: Case, answers: list[AgentResponse]) -> None:
    """A file keeps every field of a case and of its recorded answers."""
    case = replace(case, recordings=tuple((answer,) for answer in answers))
    assert read_again(case) == case


@given(_CASES.filter(lambda case: len(case.turns) > 1), st.lists(st.tuples(_ANSWERS, _ANSWERS), min_size=1, max_size=3))
def test_a_recorded_conversation_is_read_as_it_was(
    case: Case, conversations: list[tuple[AgentResponse, AgentResponse]]
) -> None:
    """A file keeps the answers of every repeat to every turn, up to the first failure."""
    recordings = tuple((first, last) if first.error is None else (first,) for first, last in conversations)
    case = replace(case, recordings=recordings)
    assert case.has_recorded_turns
    assert read_again(case) == case


TALK = {"turns": [{"input": "one"}, {"input": "two"}]}
FAILED = {"status": "error", "error": "down"}


@pytest.mark.parametrize(
    ("recorded", "place", "message"),
    [
        ({"turns": []}, "recorded.turns", "is empty"),
        ({"turns": ["a"]}, "recorded", "has 1 answers to 2 turns"),
        ({"turns": ["a", "b", "c"]}, "recorded", "has 3 answers to 2 turns"),
        ({"turns": [FAILED, "b"]}, "recorded.turns[0]", "a conversation ends there"),
        ({"turns": ["a", {"text": [1]}]}, "recorded.turns[1]", "text must be a string"),
        ([{"turns": ["a", "b"]}, "b"], "recorded[1]", "has 1 answers to 2 turns"),
    ],
)
def test_a_recorded_conversation_that_is_wrong_is_refused(
    tmp_path: Path, recorded: object, place: str, message: str
) -> None:
    """Each turn has one answer until the agent fails; the message names repeat and turn."""
    file = tmp_path / "talk.jsonl"
    file.write_text(json.dumps({"id": "t", **TALK, "recorded": recorded}) + "\n", encoding="utf-8")
    with pytest.raises(DatasetError) as refusal:
        open_dataset(file).check()
    assert place in str(refusal.value)
    assert message in str(refusal.value)


@pytest.mark.parametrize("answer", ["", "[1]", '{"text": "a"}'])
def test_texts_that_look_like_something_else_stay_texts(answer: str) -> None:
    """An answer that is JSON or empty stays text."""
    case = Case("c", (Turn("q", references=("a",)),), recordings=((AgentResponse(text=answer),),))
    assert read_again(case) == case
