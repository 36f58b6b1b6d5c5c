"""What a dataset holds: cases, their turns, and the answers recorded with them."""

from __future__ import annotations

import json
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from assay.model.answers.agent_response import AgentResponse, Message, response_from_json, response_to_json
from assay.model.answers.approvals import Approval, approvals_from_json, approvals_to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MAX_WEIGHT = 1e6
"""Largest weight of a case."""

TOOL_MATCHES = ("name", "subset", "exact", "unordered")
"""How the arguments of an expected tool call may be compared."""


@dataclass(frozen=True, slots=True)
class ExpectedTool:
    """A tool call that a good answer makes.

    Args:
        name: The tool.
        arguments: Its arguments; None where only the name counts.
        match: "name", "subset" (the call may have further arguments), "exact", or "unordered" (exact, but lists in any
            order).
    """

    name: str
    arguments: dict[str, Any] | None = None
    match: str = "name"


@dataclass(frozen=True, slots=True)
class Assertion:
    """One check of the answer that a case brings along.

    Args:
        type: What is checked, e.g. "contains"; the names are in `assay.metrics.assertions`.
        value: What it is checked against; its type depends on the check.
        threshold: Least value with which a graded check holds; None means the check's own.
        metric: A label under which checks are summed up; empty for none.
        weight: Its share in the case's weighted score, at least 0.
        negate: Whether the check must not hold.
    """

    type: str
    value: Any = None
    threshold: float | None = None
    metric: str = ""
    weight: float = 1.0
    negate: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """One turn of a conversation.

    Args:
        input: What the user says.
        history: Messages before the input, oldest first.
        references: Reference answers, any of which is right; empty where there is none.
        expected_sources: Titles or addresses of the sources that a good answer rests on.
        expected_tools: Tool calls that a good answer makes, in order.
    """

    input: str
    history: tuple[Message, ...] = ()
    references: tuple[str, ...] = ()
    expected_sources: tuple[str, ...] = ()
    expected_tools: tuple[ExpectedTool, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedVerdict:
    """A judge's verdict on one answer to a case, recorded in one run and used in another.

    Args:
        rubric: The name of the rubric, e.g. "quality".
        answer_sha256: Of the answer's text in UTF-8, in hexadecimal.
        judge: Who gave it, for people.
        verdict: The JSON object that the judge replied.
        repeat_index: The repeat of the case that it is for, from 0; None for all of them.
        criterion: The criterion of a check that it is on; empty for other verdicts.
        turn_index: The turn whose answer it is on, from 0; 0 for a single question.
    """

    rubric: str
    answer_sha256: str
    judge: str
    verdict: dict[str, Any]
    repeat_index: int | None = None
    criterion: str = ""
    turn_index: int = 0


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a dataset.

    Args:
        case_id: Unique in the dataset, 1 to 200 characters.
        turns: At least one; a plain question is one turn.
        variables: Template variables.
        parameters: Call parameters such as filters.
        contexts: Passages given with the case.
        choices: The options of a multiple-choice question, in order.
        category: The category, or empty.
        tags: Free tags.
        expected: What metrics compare with, other than references.
        assertions: Checks of the answer that the case brings along.
        thresholds: Row thresholds in place of the metrics' own, by metric.
        weight: How much the case counts in weighted aggregates, from 0 to MAX_WEIGHT.
        labels: What people said about recorded answers.
        metadata: Fields that Assay does not read.
        recorded: An answer recorded in the dataset, for the replay adapter.
        recorded_repeats: The answers of the second and further repeats; empty where `recorded` is that of all repeats.
        recorded_turns: Of a conversation, for each of these answers, those to the turns before it; empty where last
            answers alone are recorded.
        verdicts: Recorded verdicts on its answers, which a run brings along.
        approvals: What is decided where the agent stops to wait for a person, in all turns together; empty for what the
            run says for all cases.
        place: Its place in the dataset, from 0, where cases are uploaded in another order; None where they are not.
    """

    case_id: str
    turns: tuple[Turn, ...]
    variables: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    contexts: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    category: str = ""
    tags: tuple[str, ...] = ()
    expected: dict[str, Any] = field(default_factory=dict)
    assertions: tuple[Assertion, ...] = ()
    thresholds: dict[str, float] = field(default_factory=dict)
    weight: float = 1.0
    labels: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    recorded: AgentResponse | None = None
    recorded_repeats: tuple[AgentResponse, ...] = ()
    recorded_turns: tuple[tuple[AgentResponse, ...], ...] = ()
    verdicts: tuple[RecordedVerdict, ...] = ()
    approvals: tuple[Approval, ...] = ()
    place: int | None = None

    @property
    def input(self) -> str:
        """The last turn's input: the question of a single-turn case."""
        return self.turns[-1].input

    @property
    def question(self) -> str:
        """What is asked: the input, or the variables as JSON where there is none."""
        return self.input or (json.dumps(self.variables, ensure_ascii=False) if self.variables else "")

    @property
    def references(self) -> tuple[str, ...]:
        """The last turn's references."""
        return self.turns[-1].references

    @property
    def expects(self) -> dict[str, Any]:
        """What it expects beside references, as rows of a run show it; see `expected_of_case`."""
        turn = self.turns[-1]
        if not (self.expected or self.assertions or turn.expected_sources or turn.expected_tools):
            return {}
        checks = _as_objects(self.assertions)
        return expected_of_case({"turns": [_turn_to_json(turn)], "expected": self.expected, "assertions": checks})

    def up_to(self, turn_index: int) -> Case:
        """Return the case as if it ended with a turn, from 0; without the recorded answers, which are to all turns."""
        return replace(self.without_answers(), turns=self.turns[: turn_index + 1])

    def without_answers(self) -> Case:
        """Return the case without the recorded answers."""
        return replace(self, recorded=None, recorded_repeats=(), recorded_turns=())

    def recorded_conversation(self, repeat_index: int) -> tuple[AgentResponse, ...]:
        """Return the recorded answers of a repeat, from 0, one a turn; empty where it has none, or no earlier ones."""
        # One recording is that of all repeats.
        index = repeat_index if self.recorded_repeats else 0
        if self.recorded is None or index >= len(self.recorded_turns):
            return ()
        return (*self.recorded_turns[index], (self.recorded, *self.recorded_repeats)[index])


_CHECK_DEFAULTS = {part.name: part.default for part in fields(Assertion)}


def expected_of_turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a turn expects beside references, by the names of datasets.

    Args:
        turn: As `case_to_json` writes it.
    """
    tools = [
        tool["name"] if tool.get("arguments") is None else {key: tool[key] for key in ("name", "arguments", "match")}
        for tool in turn.get("expected_tools", ())
    ]
    found = {"expected_sources": turn.get("expected_sources"), "expected_tools": tools}
    return {name: value for name, value in found.items() if value}


def expected_of_case(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a case expects beside references: its last turn, its checks, and what else metrics compare with.

    Args:
        case: As `case_to_json` writes it.
    """
    checks = [
        {name: value for name, value in check.items() if value != _CHECK_DEFAULTS.get(name)}
        for check in case.get("assertions", ())
    ]
    expected = {**case.get("expected", {}), **expected_of_turn(case["turns"][-1])}
    return {**expected, **({"assertions": checks} if checks else {})}


def case_to_json(case: Case) -> dict[str, Any]:
    """Return the case as a JSON object that leaves out what is empty, in the order of the fields."""
    data: dict[str, Any] = {"case_id": case.case_id, "turns": [_turn_to_json(turn) for turn in case.turns]}
    for name, default, write in _WRITTEN:
        value = getattr(case, name)
        if value != default:
            data[name] = write(value) if write else value
    return data


def case_from_json(data: dict[str, Any]) -> Case:
    """Return the case that `case_to_json` wrote; fields of a newer version are ignored."""
    # Most cases have three fields of twenty: what is not there is not looked for.
    return Case(**{name: _PARTS[name](value) if name in _PARTS else value
                   for name, value in data.items() if name in _NAMES})  # fmt: skip


def _turn_to_json(turn: Turn) -> dict[str, Any]:
    data: dict[str, Any] = {}
    if turn.input:
        data["input"] = turn.input
    if turn.history:
        data["history"] = [_message_to_json(message) for message in turn.history]
    if turn.references:
        data["references"] = list(turn.references)
    if turn.expected_sources:
        data["expected_sources"] = list(turn.expected_sources)
    if turn.expected_tools:
        data["expected_tools"] = [asdict(tool) for tool in turn.expected_tools]
    return data


def _turn_from_json(data: dict[str, Any]) -> Turn:
    parts = {name: _TURN_PARTS[name](value) for name, value in data.items() if name in _TURN_PARTS}
    return Turn(**{"input": "", **parts})


def _each(read: Callable[[Any], Any]) -> Callable[[Iterable[Any]], tuple[Any, ...]]:
    return lambda values: tuple(map(read, values))


_TURN_PARTS: dict[str, Callable[[Any], Any]] = {
    "input": str,
    "history": _each(lambda message: Message(**{"role": "", "content": "", **message})),
    "references": tuple,
    "expected_sources": tuple,
    "expected_tools": _each(lambda tool: ExpectedTool(**tool)),
}
_PARTS: dict[str, Callable[[Any], Any]] = {
    "turns": _each(_turn_from_json),
    "contexts": tuple,
    "choices": tuple,
    "tags": tuple,
    "assertions": _each(lambda assertion: Assertion(**assertion)),
    "recorded": response_from_json,
    "recorded_repeats": _each(response_from_json),
    "recorded_turns": _each(_each(response_from_json)),
    "verdicts": _each(lambda verdict: RecordedVerdict(**verdict)),
    "approvals": approvals_from_json,
}
_NAMES = frozenset(part.name for part in fields(Case))


def _message_to_json(message: Message) -> dict[str, Any]:
    data = {
        "role": message.role,
        "content": message.content,
        "name": message.name,
        "tool_call_id": message.tool_call_id,
    }
    return {key: value for key, value in data.items() if value}


def _as_objects(values: Iterable[Any]) -> list[dict[str, Any]]:
    return [asdict(value) for value in values]


def _answers_to_json(answers: Iterable[AgentResponse]) -> list[dict[str, Any]]:
    return [response_to_json(each) for each in answers]


_WRITERS: dict[str, Callable[[Any], Any]] = {
    "assertions": _as_objects,
    "recorded": response_to_json,
    "recorded_repeats": _answers_to_json,
    "recorded_turns": lambda turns: [_answers_to_json(each) for each in turns],
    "verdicts": _as_objects,
    "approvals": approvals_to_json,
}
_WRITTEN = [
    (part.name, part.default if part.default is not MISSING else {}, _WRITERS.get(part.name))
    for part in fields(Case)
    if part.name not in {"case_id", "turns"}
]
"""The optional fields of a case: name, what they are where nothing is said, and how another value is written."""
