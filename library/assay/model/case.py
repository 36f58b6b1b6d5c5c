"""The contents of a dataset: cases, their turns and their recorded answers."""

from __future__ import annotations

import json
from dataclasses import MISSING, asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from assay.model.answers.agent_response import AgentResponse, Message, response_from_json, response_to_json
from assay.model.answers.approvals import Approval, approvals_from_json, approvals_to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MAX_WEIGHT = 1e6
"""Maximum weight of a case."""

TOOL_MATCHES = ("name", "subset", "exact", "unordered")
"""The ways to compare the arguments of an expected tool call."""


@dataclass(frozen=True, slots=True)
class ExpectedTool:
    """A tool call that a good answer makes.

    Args:
        name: The tool.
        arguments: The tool's arguments; None if only the name counts.
        match: "name", "subset" (the call may have further arguments), "exact", or "unordered" (exact, but lists in any
            order).
    """

    name: str
    arguments: dict[str, Any] | None = None
    match: str = "name"


@dataclass(frozen=True, slots=True)
class Assertion:
    """A check of the answer that comes with the case.

    Args:
        type: The type of check, e.g. "contains"; the names are in `assay.metrics.assertions`.
        value: The value it compares with; its type depends on the check.
        threshold: Least value at which a graded check passes; None for the check's default.
        group: The group whose mean the summary reports; empty for none.
        weight: Its share in the case's weighted score, at least 0.
        negate: Whether the check must fail.
    """

    type: str
    value: Any = None
    threshold: float | None = None
    group: str = ""
    weight: float = 1.0
    negate: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a conversation.

    Args:
        input: The user's text.
        history: Messages before the input, oldest first.
        references: Reference answers, each of them correct; empty if there are none.
        expected_sources: Titles or addresses of the sources that a good answer uses.
        expected_tools: Tool calls that a good answer makes, in order.
    """

    input: str
    history: tuple[Message, ...] = ()
    references: tuple[str, ...] = ()
    expected_sources: tuple[str, ...] = ()
    expected_tools: tuple[ExpectedTool, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedVerdict:
    """A judge's verdict on an answer to a case, recorded in one run and used in another.

    Args:
        rubric: The name of the rubric, e.g. "quality".
        answer_sha256: SHA-256 of the answer's text in UTF-8, in hexadecimal.
        judge: The judge's name, for display.
        verdict: The judge's reply, a JSON object.
        repeat: The repeat of the case, from 1; None for all repeats.
        criterion: The criterion of the check it belongs to; empty for other verdicts.
        turn_index: The turn of the answer, from 0; 0 for a single question.
    """

    rubric: str
    answer_sha256: str
    judge: str
    verdict: dict[str, Any]
    repeat: int | None = None
    criterion: str = ""
    turn_index: int = 0


@dataclass(frozen=True, slots=True)
class Case:
    """A case of a dataset.

    Args:
        case_id: Unique in the dataset, 1 to 200 characters.
        turns: At least one; a plain question is one turn.
        variables: Template variables.
        parameters: Call parameters such as filters.
        contexts: Passages given with the case.
        choices: The options of a multiple-choice question, in order.
        category: The category, or empty.
        tags: Free tags.
        expected: Values that metrics compare with, besides references.
        assertions: Checks of the answer that come with the case.
        thresholds: Row thresholds that replace the metrics' own, by metric.
        weight: How much the case counts in weighted aggregates, from 0 to MAX_WEIGHT.
        human_labels: Labels that people gave to recorded answers.
        metadata: Fields that Assay does not use.
        recordings: Recorded answers for the replay adapter, by repeat and turn; a single recording serves all repeats.
            A recording ends at its first error. In a conversation, a single answer that is no error answers the last
            turn.
        verdicts: Recorded verdicts on its answers, which come with the run.
        approvals: Scripted decisions for stops of the agent, shared by all turns; empty for the run's approvals.
        place: The position in the dataset, from 0, if cases are uploaded in another order; otherwise None.
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
    human_labels: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    recordings: tuple[tuple[AgentResponse, ...], ...] = ()
    verdicts: tuple[RecordedVerdict, ...] = ()
    approvals: tuple[Approval, ...] = ()
    place: int | None = None

    @property
    def input(self) -> str:
        """The last turn's input: the question of a single-turn case."""
        return self.turns[-1].input

    @property
    def question(self) -> str:
        """The question: the input, or the variables as JSON if there is none."""
        return self.input or (json.dumps(self.variables, ensure_ascii=False) if self.variables else "")

    @property
    def references(self) -> tuple[str, ...]:
        """The last turn's references."""
        return self.turns[-1].references

    @property
    def recorded(self) -> AgentResponse | None:
        """The final recorded answer of the first repeat, or None."""
        return self.recordings[0][-1] if self.recordings else None

    @property
    def has_recorded_turns(self) -> bool:
        """Whether the case is a conversation with recorded answers to all turns, not only to the last one."""
        due = len(self.turns)
        is_conversation = due > 1 and bool(self.recordings)
        return is_conversation and all(len(turns) == due or turns[-1].is_failed for turns in self.recordings)

    @property
    def expects(self) -> dict[str, Any]:
        """The case's expectations besides references, as rows show them; see `expected_of_case`."""
        turn = self.turns[-1]
        if not (self.expected or self.assertions or turn.expected_sources or turn.expected_tools):
            return {}
        checks = _as_objects(self.assertions)
        return expected_of_case({"turns": [_turn_to_json(turn)], "expected": self.expected, "assertions": checks})

    def up_to(self, turn_index: int) -> Case:
        """Return the case cut off after a turn, from 0, without its recorded answers."""
        return replace(self.without_answers(), turns=self.turns[: turn_index + 1])

    def without_answers(self) -> Case:
        """Return the case without the recorded answers."""
        return replace(self, recordings=())


_CHECK_DEFAULTS = {part.name: part.default for part in fields(Assertion)}


def expected_of_turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    """Return a turn's expectations besides references, by dataset field name.

    Args:
        turn: The turn as JSON from `case_to_json`.
    """
    tools = [
        tool["name"] if tool.get("arguments") is None else {key: tool[key] for key in ("name", "arguments", "match")}
        for tool in turn.get("expected_tools", ())
    ]
    expected = {"expected_sources": turn.get("expected_sources"), "expected_tools": tools}
    return {name: value for name, value in expected.items() if value}


def expected_of_case(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return a case's expectations besides references: those of its last turn, its checks, and other expected values.

    Args:
        case: The case as JSON from `case_to_json`.
    """
    checks = [
        {name: value for name, value in check.items() if value != _CHECK_DEFAULTS.get(name)}
        for check in case.get("assertions", ())
    ]
    expected = {**case.get("expected", {}), **expected_of_turn(case["turns"][-1])}
    return {**expected, **({"assertions": checks} if checks else {})}


def case_to_json(case: Case) -> dict[str, Any]:
    """Return the case as a JSON object without empty fields, in field order."""
    data: dict[str, Any] = {"case_id": case.case_id, "turns": [_turn_to_json(turn) for turn in case.turns]}
    for name, default, write in _WRITTEN:
        value = getattr(case, name)
        if value != default:
            data[name] = write(value) if write else value
    return data


def case_from_json(data: dict[str, Any]) -> Case:
    """Return the case from the JSON of `case_to_json`; fields of a newer version are ignored."""
    # Most cases have three of twenty fields; looking up only those present is faster.
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
    "recordings": _each(_each(response_from_json)),
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


_WRITERS: dict[str, Callable[[Any], Any]] = {
    "assertions": _as_objects,
    "recordings": lambda recordings: [[response_to_json(answer) for answer in turns] for turns in recordings],
    "verdicts": _as_objects,
    "approvals": approvals_to_json,
}
_WRITTEN = [
    (part.name, part.default if part.default is not MISSING else {}, _WRITERS.get(part.name))
    for part in fields(Case)
    if part.name not in {"case_id", "turns"}
]
"""The optional fields of a case: name, default, and how another value is written."""
