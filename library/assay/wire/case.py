"""Conversion of cases to protobuf messages and back, without loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from assay.errors import DatasetError, Problem
from assay.model.answers.agent_response import AgentResponse, json_text
from assay.model.case import TOOL_MATCHES, Assertion, Case, ExpectedTool, RecordedVerdict, Turn
from assay.v1 import case_pb2
from assay.wire.agent import (
    approval_from_wire,
    approval_to_wire,
    message_from_wire,
    message_to_wire,
    plain_response,
    response_from_wire,
    response_to_wire,
)
from assay.wire.json_text import mapping_from_text, mapping_to_text, value_from_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from assay.agent.v1 import agent_pb2
    from assay.model.answers.approvals import Approval

_T = TypeVar("_T")
_U = TypeVar("_U")


def case_to_wire(case: Case) -> case_pb2.Case:
    """Return the message for a case."""
    # Most cases have three of twenty fields; writing only those is faster.
    parts: dict[str, Any] = {field: write(value) for name, field, write in _WRITERS if (value := getattr(case, name))}
    if case.weight != 1.0:
        parts["weight"] = case.weight
    return case_pb2.Case(case_id=case.case_id, turns=map(_turn_to_wire, case.turns), place=case.place, **parts)


def case_from_wire(message: case_pb2.Case) -> Case:
    """Return the case in a message.

    Raises:
        DatasetError: A JSON text is not a JSON object; holds every problem, with its field relative to the case.
    """
    texts = _Texts()
    # Most cases have three of twenty fields; reading only those present is faster.
    parts: dict[str, Any] = {"case_id": "", "turns": ()}
    for field, value in message.ListFields():
        parts[_NAMES.get(field.name, field.name)] = _PARTS[field.name](value, texts)
    case = Case(**parts)
    if texts.problems:
        raise DatasetError(texts.problems)
    return case


class _Texts:
    """Reads the JSON texts of a case and collects their problems."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def mapping(self, text: str, field: str) -> dict[str, Any]:
        return self._read(mapping_from_text, text, field) or {}

    def value(self, text: str, field: str) -> Any:
        return self._read(value_from_text, text, field) if text else None

    def answer(self, message: agent_pb2.AgentResponse, field: str) -> AgentResponse | None:
        return self._read(response_from_wire, message, field)

    def approvals(self, messages: Iterable[agent_pb2.Approval]) -> tuple[Approval, ...]:
        read = [self._read(approval_from_wire, item, f"approvals[{index}]") for index, item in enumerate(messages)]
        return tuple(approval for approval in read if approval is not None)

    def _read(self, read: Callable[[_T], _U], data: _T, field: str) -> _U | None:
        try:
            return read(data)
        except ValueError as problem:
            self.problems.append(Problem(f"cannot be read: {problem}", field))
            return None


def _turn_to_wire(turn: Turn) -> case_pb2.Turn:
    if not (turn.history or turn.expected_sources or turn.expected_tools):
        return case_pb2.Turn(input=turn.input, references=turn.references)
    return case_pb2.Turn(
        input=turn.input,
        history=map(message_to_wire, turn.history),
        references=turn.references,
        expected_sources=turn.expected_sources,
        expected_tools=map(_expected_tool_to_wire, turn.expected_tools),
    )


def _turns_from_wire(turns: Sequence[case_pb2.Turn], texts: _Texts) -> tuple[Turn, ...]:
    return tuple([_turn_from_wire(turn, index, texts) for index, turn in enumerate(turns)])


def _turn_from_wire(turn: case_pb2.Turn, index: int, texts: _Texts) -> Turn:
    parts: dict[str, Any] = {"input": ""}
    for field, value in turn.ListFields():
        match field.name:
            case "input":
                parts["input"] = value
            case "history":
                parts["history"] = tuple(map(message_from_wire, value))
            case "expected_tools":
                tools = _each(f"turns[{index}].expected_tools", _expected_tool_from_wire)
                parts["expected_tools"] = tools(value, texts)
            case name:
                parts[name] = tuple(value)
    return Turn(**parts)


def _expected_tool_to_wire(tool: ExpectedTool) -> case_pb2.ExpectedTool:
    arguments = "" if tool.arguments is None else json_text(tool.arguments, "arguments of an expected tool")
    return case_pb2.ExpectedTool(name=tool.name, arguments_json=arguments, match=_MATCHES[tool.match])


def _expected_tool_from_wire(tool: case_pb2.ExpectedTool, where: str, texts: _Texts) -> ExpectedTool:
    arguments = texts.mapping(tool.arguments_json, f"{where}.arguments_json") if tool.arguments_json else None
    return ExpectedTool(tool.name, arguments, _MATCH_NAMES.get(tool.match, "name"))


def _assertion_to_wire(assertion: Assertion) -> case_pb2.Assertion:
    return case_pb2.Assertion(
        type=assertion.type,
        value_json="" if assertion.value is None else json_text(assertion.value, "value of an assertion"),
        threshold=assertion.threshold,
        group=assertion.group,
        weight=None if assertion.weight == 1.0 else assertion.weight,
        negate=assertion.negate,
    )


def _assertion_from_wire(assertion: case_pb2.Assertion, where: str, texts: _Texts) -> Assertion:
    return Assertion(
        type=assertion.type,
        value=texts.value(assertion.value_json, f"{where}.value_json"),
        threshold=assertion.threshold if assertion.HasField("threshold") else None,
        group=assertion.group,
        weight=assertion.weight if assertion.HasField("weight") else 1.0,
        negate=assertion.negate,
    )


def _verdict_to_wire(verdict: RecordedVerdict) -> case_pb2.RecordedVerdict:
    return case_pb2.RecordedVerdict(
        rubric=verdict.rubric,
        answer_sha256=verdict.answer_sha256,
        judge=verdict.judge,
        verdict_json=mapping_to_text(verdict.verdict),
        repeat=verdict.repeat,
        criterion=verdict.criterion,
        turn_index=verdict.turn_index,
    )


def _verdict_from_wire(verdict: case_pb2.RecordedVerdict, where: str, texts: _Texts) -> RecordedVerdict:
    return RecordedVerdict(
        rubric=verdict.rubric,
        answer_sha256=verdict.answer_sha256,
        judge=verdict.judge,
        verdict=texts.mapping(verdict.verdict_json, f"{where}.verdict_json"),
        repeat=verdict.repeat if verdict.HasField("repeat") else None,
        criterion=verdict.criterion,
        turn_index=verdict.turn_index,
    )


def _plain(value: Any, _: _Texts) -> Any:
    return value


def _sequence(value: Iterable[Any], _: _Texts) -> tuple[Any, ...]:
    return tuple(value)


def _mapping(field: str) -> Callable[[str, _Texts], dict[str, Any]]:
    return lambda text, texts: texts.mapping(text, field)


def _each(field: str, read: Callable[[Any, str, _Texts], _T]) -> Callable[[Iterable[Any], _Texts], tuple[_T, ...]]:
    return lambda values, texts: tuple(read(value, f"{field}[{index}]", texts) for index, value in enumerate(values))


def _answer(message: agent_pb2.AgentResponse, where: str, texts: _Texts) -> AgentResponse:
    return texts.answer(message, where) or AgentResponse()


def _recordings(recordings: Sequence[case_pb2.Recording], texts: _Texts) -> tuple[tuple[AgentResponse, ...], ...]:
    try:
        return tuple([tuple(map(_answer_from_wire, recording.turns)) for recording in recordings])
    except ValueError:
        return _each("recordings", _recording)(recordings, texts)  # again, to name the place of every problem


def _answer_from_wire(message: agent_pb2.AgentResponse) -> AgentResponse:
    return plain_response(message) or response_from_wire(message)


def _recording(recording: case_pb2.Recording, where: str, texts: _Texts) -> tuple[AgentResponse, ...]:
    return _each(f"{where}.turns", _answer)(recording.turns, texts)


def _recordings_to_wire(recordings: Iterable[Iterable[AgentResponse]]) -> list[case_pb2.Recording]:
    return [case_pb2.Recording(turns=map(response_to_wire, turns)) for turns in recordings]


def _each_to_wire(write: Callable[[Any], Any]) -> Callable[[Iterable[Any]], list[Any]]:
    return lambda values: list(map(write, values))


_MATCHES = {name: case_pb2.ToolMatch.Value(f"TOOL_MATCH_{name.upper()}") for name in TOOL_MATCHES}
_MATCH_NAMES = {number: name for name, number in _MATCHES.items()}
_NAMES = {f"{name}_json": name for name in ("variables", "parameters", "expected", "human_labels", "metadata")}
_PARTS: dict[str, Callable[[Any, _Texts], Any]] = {
    "case_id": _plain,
    "turns": _turns_from_wire,
    **{field: _mapping(field) for field in _NAMES},
    "contexts": _sequence,
    "choices": _sequence,
    "category": _plain,
    "tags": _sequence,
    "assertions": _each("assertions", _assertion_from_wire),
    "thresholds": lambda thresholds, _: dict(thresholds),
    "weight": _plain,
    "recordings": _recordings,
    "verdicts": _each("verdicts", _verdict_from_wire),
    "place": _plain,
    "approvals": lambda approvals, texts: texts.approvals(approvals),
}
"""The readers of fields that a case may omit, by field; absent fields keep the case's defaults."""

_WRITERS: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
    *((name, field, mapping_to_text) for field, name in _NAMES.items()),
    *((name, name, list) for name in ("contexts", "choices", "tags")),
    ("category", "category", str),
    ("assertions", "assertions", _each_to_wire(_assertion_to_wire)),
    ("thresholds", "thresholds", dict),
    ("recordings", "recordings", _recordings_to_wire),
    ("verdicts", "verdicts", _each_to_wire(_verdict_to_wire)),
    ("approvals", "approvals", _each_to_wire(approval_to_wire)),
)
"""The optional parts of a case with a value: the case's field, the message's, and how the value is written."""
