"""The turns of a case: the user's text, the expectations and the recorded answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.datasets.cases.case_rules import incomplete
from assay.datasets.cases.expectations import expected_tools
from assay.datasets.fields.aliases import FieldMap, is_blank
from assay.datasets.foreign.messages import messages_of
from assay.datasets.records import BadRecordError, shown
from assay.datasets.values.cells import json_in_cell, value_in_cell
from assay.datasets.values.field_values import Fields, Findings
from assay.datasets.values.message_parts import parts_text
from assay.datasets.values.separated_names import split_sources
from assay.model.answers.agent_response import AgentResponse, MalformedAnswerError, Message, response_from_json
from assay.model.answers.response_names import source_parts
from assay.model.case import Turn
from assay.parsing.names import unknown_name

if TYPE_CHECKING:
    from assay.datasets.fields.aliases import Layout

_TURN_FIELDS = ("input", "history", "references", "expected_sources", "expected_tools", "recorded")


def read_turns(
    fields: Fields, references: tuple[str, ...], variables: dict[str, Any]
) -> tuple[tuple[Turn, ...], list[Any]]:
    """Return the turns of a case, and the answers recorded in them.

    Args:
        fields: The record.
        references: The case's references.
        variables: The case's variables; an input that is an object is added to them.
    """
    source, value = fields.find("turns")
    if isinstance(value, str):
        value = value_in_cell(value)
    if is_blank(value):
        return (_turn(fields, references, variables),), []
    if "input" in fields.layout.sources or references:
        fields.trouble.append((source, "is set beside an input or a reference: move those into the turns"))
    for name in ("expected_sources", "expected_tools", "history"):
        where, beside = fields.find(name)
        if not is_blank(beside) and beside != []:
            fields.trouble.append((where, "is set beside `turns`: move it into its turn"))
    if not isinstance(value, list) or not value:
        fields.trouble.append((source, f"must be a list of turns, not {shown(value)}"))
        return (), []
    turns, answers = [], []
    for index, item in enumerate(value):
        where = f"{source}[{index}]"
        if not isinstance(item, dict):
            fields.trouble.append((where, f"must be an object with an input, not {shown(item)}"))
            continue
        turn, answer = _inner_turn(fields, where, item, needs_input=not variables)
        turns.append(turn)
        answers.append(answer)
    return tuple(turns), answers


def _turn(fields: Fields, references: tuple[str, ...], variables: dict[str, Any]) -> Turn:
    source, value = fields.find("input")
    text = ""
    if isinstance(value, dict):
        if variables:
            fields.trouble.append((source, "is an object of variables, and so is another field: keep one of them"))
        variables.update(value)
    elif isinstance(value, list) and parts_text(value) is None:
        fields.trouble.append(
            (
                source,
                f"must be a string, not {shown(value)}: earlier messages belong in `history`, later ones in `turns`",
            )
        )
    elif value is not None:
        text = fields.as_text(source, value)
    if not text.strip() and not variables and not fields.trouble:
        missing = "is blank" if "input" in fields.layout.sources else "is missing"
        fields.trouble.append((source, f"{missing}: every case needs a question, or variables for a prompt"))
    return Turn(text, _history(fields), references, _sources(fields), expected_tools(fields))


def _inner_turn(outer: Fields, where: str, item: dict[str, Any], *, needs_input: bool) -> tuple[Turn, Any]:
    layout = (outer.layout.turns or FieldMap()).layout(item)
    findings = Findings()
    fields = Fields(item, layout, findings, from_cells=outer.from_cells)
    for name in _not_of_a_turn(layout):
        findings.trouble.append((name, unknown_name("field of a turn", name, _TURN_FIELDS)))
    text = fields.text("input")
    source, asked = fields.find("input")
    if needs_input and (is_blank(asked) or (isinstance(asked, str) and not text.strip())):
        findings.trouble.append((source, "is blank: every turn needs a question"))
    if problem := two_faced(layout, item):
        findings.trouble.append(problem)
    turn = Turn(text, _history(fields), fields.texts("references"), _sources(fields), expected_tools(fields))
    outer.trouble.extend((f"{where}.{name}" if name else where, message) for name, message in findings.trouble)
    for kind, name, message in findings.odd:
        outer.warn(kind, f"{where}.{name}", message)
    return turn, fields.find("recorded")[1]


def _not_of_a_turn(layout: Layout) -> list[str]:
    """Return the first field that turns cannot have."""
    others = [names[0] for name, names in layout.sources.items() if name not in _TURN_FIELDS]
    return [*layout.rest, *layout.hidden, *others][:1]


def two_faced(layout: Layout, data: dict[str, Any]) -> tuple[str, str] | None:
    """Return the problem of a record with `answer` beside another reference, if no earlier record had both."""
    held = [name for name in layout.sources.get("references", ()) if not is_blank(data[name])]
    answers = [name for name in held if name in layout.answers]
    if not answers or answers == held:
        return None
    return answers[0], (
        f"is set beside {shown(held[0])}, unlike in earlier records: set "
        f"`map: {{recorded: {answers[0]}}}` or `map: {{references: {answers[0]}}}`"
    )


def _sources(fields: Fields) -> tuple[str, ...]:
    """Return the expected sources; a source object, as in answers, stands for its title, address or id."""
    if "expected_sources" not in fields.layout.sources:
        return ()
    source, value = fields.find("expected_sources")
    items = value_in_cell(value) if isinstance(value, str) else value
    items = [items] if isinstance(items, dict) else items
    if not isinstance(items, list) or not any(isinstance(item, dict) for item in items):
        return fields.names("expected_sources", split_sources)
    names = []
    for index, item in enumerate(items):
        parts = source_parts(item) if isinstance(item, dict) else None
        name = item if parts is None else parts.title or parts.uri or parts.id
        if name == "":
            fields.trouble.append((f"{source}[{index}]", "must name a source: a title, an address or an id"))
        elif name is not None:
            names.append(fields.as_text(f"{source}[{index}]", name))
    return tuple(names)


def _history(fields: Fields) -> tuple[Message, ...]:
    if "history" not in fields.layout.sources:
        return ()
    source, value = fields.find("history")
    if isinstance(value, str):
        value = value_in_cell(value)
    if is_blank(value):
        return ()
    if not isinstance(value, list):
        fields.trouble.append((source, f"must be a list of messages with role and content, not {shown(value)}"))
        return ()
    try:
        messages = messages_of(value, source)
    except BadRecordError as error:
        fields.trouble.append((error.field, error.message))
        return ()
    calls = sum(len(message.pop("tool_calls", ())) for message in messages)
    if calls:
        fields.warn("calls", source, "holds messages with tool calls: the agent is given their texts, not the calls")
    return tuple(Message(**message) for message in messages)


def recorded_answers(fields: Fields, spoken: list[Any]) -> tuple[tuple[AgentResponse, ...], ...]:
    """Return the recorded answers by repeat and turn.

    Only the field `recorded` may hold a list of repeats.

    Args:
        fields: The record.
        spoken: The answers in the record's turns; None for a turn without one.
    """
    source, value = fields.find("recorded")
    if value is None:
        source, value = _spoken(fields, spoken)
    if value is None:
        return ()
    is_recorded = source.lower() == "recorded"
    if is_recorded and isinstance(value, str):
        value = _in_cell(value, is_table=fields.from_cells)
    if is_recorded and isinstance(value, list) and len(value) > 1:
        sources = {f"{source}[{index}]": answers for index, answers in enumerate(value)}
    else:
        sources = {source: value}
    conversations = [
        _conversation(fields, where, answers, turn_count=len(spoken)) for where, answers in sources.items()
    ]
    return tuple(answers for answers in conversations if answers)


def _spoken(fields: Fields, answers: list[Any]) -> tuple[str, Any]:
    """Return the answers in turns as a recorded conversation, or as the case's answer if only the last turn has one."""
    source = fields.find("turns")[0]
    present = [not is_blank(answer) for answer in answers]
    if not any(present):
        return source, None
    if present == [False] * (len(present) - 1) + [True]:
        return source, answers[-1]
    first = present.index(False) if False in present else len(present)
    if any(present[first:]):
        fields.trouble.append((f"{source}[{first}]", "has no recorded answer, and a later turn has one"))
    return source, {"turns": answers[:first]}


def _in_cell(cell: str, *, is_table: bool) -> Any:
    """Return the recorded answer in a text: an answer object, a list of repeats, or the text itself."""
    value = value_in_cell(cell) if is_table else cell
    if not isinstance(value, list) or isinstance(value[0] if value else None, dict):
        return value
    # An answer may be a JSON list; a list in Python's notation is a cell of a data frame.
    return cell if isinstance(json_in_cell(cell), list) else value


def _is_conversation(value: object) -> bool:
    """Return whether a recorded value is an object with only the answers to all turns."""
    return isinstance(value, dict) and value.keys() == {"turns"} and isinstance(value["turns"], list)


def _conversation(fields: Fields, source: str, value: Any, *, turn_count: int) -> tuple[AgentResponse, ...]:
    """Return recorded answers, the final one last; empty if any is invalid."""
    if not _is_conversation(value):
        answers = [_answer(fields, source, value)]
    else:
        turns = value["turns"]
        if not turns:
            fields.trouble.append((f"{source}.turns", "is empty: it has an answer to each turn"))
        answers = [_answer(fields, f"{source}.turns[{index}]", item) for index, item in enumerate(turns)]
    complete = tuple(answer for answer in answers if answer is not None)
    if len(complete) < len(answers):
        return ()
    if _is_conversation(value) and len(complete) == 1 < turn_count and not complete[0].is_failed:
        fields.trouble.append((source, incomplete(1, turn_count)))  # the case would take it for the last answer
    return complete


def _answer(fields: Fields, source: str, value: object) -> AgentResponse | None:
    try:
        return response_from_json(value if isinstance(value, dict) else fields.as_text(source, value))
    except MalformedAnswerError as problem:
        fields.trouble.append((source, f"is not a valid recorded answer: {problem}"))
        return None
