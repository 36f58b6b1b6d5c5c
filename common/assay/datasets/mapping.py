"""From a raw record to a case, everything checked."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from assay.datasets.case_rules import case_problems, excess
from assay.datasets.expectations import assertions, expected_tools, labels, thresholds, tools_of, weight
from assay.datasets.fields import is_blank, is_plural
from assay.datasets.records import find_unusable, shown
from assay.datasets.values import Fields, Trouble, object_in_cell
from assay.model.agent_response import AgentResponse, MalformedAnswerError, Message, response_from_json
from assay.model.case import Case, Turn
from assay.model.case_limits import MAX_BYTES_PER_CHAR, MAX_CASE_BYTES, MAX_CASE_ID_CHARS
from assay.parsing.names import name_problem, unknown_name

if TYPE_CHECKING:
    from assay.datasets.fields import Layout
    from assay.datasets.records import Record

_PLAIN_CHARS = MAX_CASE_BYTES // MAX_BYTES_PER_CHAR
_ROLES = ("system", "user", "assistant", "tool")
_ANSWERS = ("references", "recorded", "expected_sources", "expected_tools", "assertions", "labels")
_TURN_FIELDS = ("input", "history", "references", "expected_sources", "expected_tools")
_FIRST_NAME = re.compile(r"\w+")
_TAG_MARKS = re.compile(r"[,;|]")


def build_case(record: Record, layout: Layout, *, from_cells: bool, trouble: Trouble) -> Case | None:
    """Return the case that a record describes, or None after adding what is wrong to `trouble`.

    A case without an id of its own gets the empty id.

    Args:
        record: A record that holds an object.
        layout: Where its fields are.
        from_cells: Whether its values are cells of a table, in which lists and objects stand as JSON.
        trouble: Takes what is wrong.
    """
    if record.suspect and (problem := find_unusable(record.data)):
        trouble.append(("", problem))
        return None
    texts = plain_texts(record, layout, from_cells=from_cells)
    if texts is not None:
        return _plain_case(texts, {name: record.data[name] for name in layout.rest} if layout.rest else {})
    fields = Fields(record.data, layout, trouble, from_cells=from_cells)
    expected, references = _expected(fields)
    variables = dict(fields.mapping("variables"))
    turns = _turns(fields, references, variables) if "turns" in layout.sources else None
    if turns is None:
        turns = (_turn(fields, references, variables),)
    conversations, has_turns = _recorded(fields)
    answers = tuple(each[-1] for each in conversations)
    earlier = tuple(each[:-1] for each in conversations)
    case = Case(
        case_id=_case_id(fields),
        turns=turns,
        variables=variables,
        parameters=fields.mapping("parameters"),
        contexts=fields.texts("contexts"),
        choices=fields.texts("choices"),
        category=fields.text("category"),
        tags=_tags(fields),
        expected=expected,
        assertions=assertions(fields),
        thresholds=thresholds(fields),
        weight=weight(fields),
        labels=labels(fields),
        metadata=_metadata(fields),
        recorded=answers[0] if answers else None,
        recorded_repeats=answers[1:],
        recorded_turns=earlier if has_turns else (),
    )
    if trouble:
        return None
    trouble += [
        (_source_of(problem.field, fields), problem.message)
        for problem in case_problems(case)
        if problem.field != "case_id"  # which is derived later where there is none, and was checked where there is one
    ]
    if trouble:
        return None
    if record.size > _PLAIN_CHARS and (problem := excess(case)):
        trouble.append(("", problem))
        return None
    return case


def _source_of(path: str, fields: Fields) -> str:
    """Return the path of a case's field with the name that it has in the record."""
    name = _FIRST_NAME.match(path)
    return path if name is None else fields.find(name[0])[0] + path[name.end() :]


def plain_texts(record: Record, layout: Layout, *, from_cells: bool) -> tuple[str, str, str, str] | None:
    """Return question, reference, id and category of a record of plain texts, or None where it takes the long way.

    Args:
        record: A record that holds an object, nothing in which is unusable.
        layout: Where its fields are.
        from_cells: Whether its values are cells of a table.
    """
    names = layout.plain
    if names is None or record.size > _PLAIN_CHARS or (from_cells and names.may_list):
        return None
    data = record.data
    text = data[names.input]
    case_id = "" if names.id is None else data[names.id]
    category = "" if names.category is None else data[names.category]
    reference = "" if names.reference is None else data[names.reference]
    if not (type(text) is type(case_id) is type(category) is type(reference) is str) or text.isspace() or not text:
        return None
    if not (case_id.isascii() and case_id.isprintable() and len(case_id) <= MAX_CASE_ID_CHARS):
        return None
    return text, reference, case_id.strip(), category


def _plain_case(texts: tuple[str, str, str, str], metadata: dict[str, Any]) -> Case:
    text, reference, case_id, category = texts
    turn = Turn(text, (), (reference,) if reference else (), ())
    return Case(case_id, (turn,), category=category, metadata=metadata)


def _expected(fields: Fields) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return what metrics compare with: named values, and the references."""
    source, value = fields.find("references")
    expected: dict[str, Any] = {}
    references: tuple[str, ...] = ()
    if isinstance(value, dict):
        if source.lower() != "expected":
            fields.trouble.append((source, f"must be a string or a list of strings, not {shown(value)}"))
        expected = dict(value)
    else:
        # A cell in a column for one reference may be JSON that the agent is to answer with.
        references = fields.texts("references", lists_in_cells=is_plural(source))
    # Under `expected`, because agents see metadata and must not see answers.
    spare = [name for canonical in _ANSWERS for name in _spare(fields, canonical)]
    for name in (*fields.layout.hidden, *spare):
        value = fields.record[name]
        if name == "expected" and isinstance(value, dict):
            expected = {**value, **expected}
        elif not is_blank(value):
            expected.setdefault(name, value)
    return expected, references


def _spare(fields: Fields, canonical: str) -> list[str]:
    """Return the fields that could be a canonical one, but another is."""
    sources = fields.layout.sources.get(canonical, ())
    if len(sources) < 2:
        return []
    used, _ = fields.find(canonical)
    return [name for name in sources if name != used]


def _turn(fields: Fields, references: tuple[str, ...], variables: dict[str, Any]) -> Turn:
    source, value = fields.find("input")
    text = ""
    if isinstance(value, dict):
        if variables:
            fields.trouble.append((source, "is an object of variables, and so is another field: keep one of them"))
        variables.update(value)
    elif isinstance(value, list):
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
    _, history = fields.find("history")
    messages = _history(fields, "history", history)
    return Turn(text, messages, references, fields.texts("expected_sources"), expected_tools(fields))


def _turns(fields: Fields, references: tuple[str, ...], variables: dict[str, Any]) -> tuple[Turn, ...] | None:
    source, value = fields.find("turns")
    if is_blank(value):
        return None
    if "input" in fields.layout.sources or references:
        fields.trouble.append((source, "stands beside an input or a reference: put them into the turns"))
    for name in ("expected_sources", "expected_tools", "history"):
        where, beside = fields.find(name)
        if not is_blank(beside) and beside != []:
            fields.trouble.append((where, "stands beside `turns`: put it into the turn that it belongs to"))
    if not isinstance(value, list) or not value:
        fields.trouble.append((source, f"must be a list of turns, not {shown(value)}"))
        return ()
    turns = []
    for index, item in enumerate(value):
        where = f"{source}[{index}]"
        if not isinstance(item, dict):
            fields.trouble.append((where, f"must be an object with an input, not {shown(item)}"))
            continue
        turns.append(_inner_turn(fields, where, item, needs_input=not variables))
    return tuple(turns)


def _inner_turn(fields: Fields, where: str, item: dict[str, Any], *, needs_input: bool) -> Turn:
    unknown = [key for key in item if key not in _TURN_FIELDS]
    if unknown:
        fields.trouble.append((f"{where}.{unknown[0]}", unknown_name("field of a turn", unknown[0], _TURN_FIELDS)))
    text = "" if item.get("input") is None else fields.as_text(f"{where}.input", item["input"])
    if needs_input and not text.strip():
        fields.trouble.append((f"{where}.input", "is blank: every turn needs a question"))
    lists: dict[str, tuple[str, ...]] = {}
    for name in ("references", "expected_sources"):
        value = item.get(name)
        values = [] if is_blank(value) else value if isinstance(value, list) else [value]
        lists[name] = tuple(fields.as_text(f"{where}.{name}[{i}]", each) for i, each in enumerate(values))
    history = _history(fields, f"{where}.history", item.get("history"))
    tools = tools_of(fields, f"{where}.expected_tools", item.get("expected_tools"))
    return Turn(text, history, lists["references"], lists["expected_sources"], tools)


def _history(fields: Fields, where: str, value: object) -> tuple[Message, ...]:
    if is_blank(value):
        return ()
    if not isinstance(value, list):
        fields.trouble.append((where, f"must be a list of messages with role and content, not {shown(value)}"))
        return ()
    messages = []
    for index, item in enumerate(value):
        place = f"{where}[{index}]"
        if not isinstance(item, dict) or item.get("role") not in _ROLES:
            fields.trouble.append((place, f"must be a message with role ({', '.join(_ROLES)}), not {shown(item)}"))
            continue
        texts = {
            name: fields.as_text(f"{place}.{name}", item[name])
            for name in ("content", "name", "tool_call_id")
            if item.get(name) is not None
        }
        messages.append(Message(**{"role": item["role"], "content": "", **texts}))
    return tuple(messages)


def _case_id(fields: Fields) -> str:
    case_id = fields.text("id").strip()
    if problem := name_problem(case_id, MAX_CASE_ID_CHARS, required=False):
        source, _ = fields.find("id")
        fields.trouble.append((source, problem))
    return case_id


def _tags(fields: Fields) -> tuple[str, ...]:
    tags = fields.texts("tags")
    if fields.from_cells and len(tags) == 1:
        return tuple(tag.strip() for tag in _TAG_MARKS.split(tags[0]) if tag.strip())
    return tags


def _metadata(fields: Fields) -> dict[str, Any]:
    """Return what Assay does not read: nothing that a dataset holds is dropped."""
    source, value = fields.find("metadata")
    if fields.from_cells and isinstance(value, str) and value:
        value = object_in_cell(value)
    metadata: dict[str, Any] = {}
    if isinstance(value, dict):
        metadata.update(value)
    elif not is_blank(value):
        metadata[source] = value
    for name in fields.layout.rest:
        if name in metadata:
            metadata[f"metadata.{name}"] = metadata[name]
        metadata[name] = fields.record[name]
    for canonical in fields.layout.sources:
        if canonical not in _ANSWERS:
            metadata.update({name: fields.record[name] for name in _spare(fields, canonical)})
    return metadata


def _recorded(fields: Fields) -> tuple[tuple[tuple[AgentResponse, ...], ...], bool]:
    """Return the recorded answers, of each repeat one a turn, and whether there are those to earlier turns.

    A list under another name is no list of repeats.
    """
    source, value = fields.find("recorded")
    if value is None:
        return (), False
    is_recorded = source.lower() == "recorded"
    if is_recorded and isinstance(value, list) and len(value) > 1:
        given = {f"{source}[{index}]": answers for index, answers in enumerate(value)}
    else:
        given = {source: object_in_cell(value) if fields.from_cells and is_recorded else value}
    found = [_conversation(fields, where, answers) for where, answers in given.items()]
    return tuple(answers for answers in found if answers), any(map(_is_conversation, given.values()))


def _is_conversation(value: object) -> bool:
    """Return whether a recorded value is an object of nothing but the answers to all turns."""
    return isinstance(value, dict) and value.keys() == {"turns"} and isinstance(value["turns"], list)


def _conversation(fields: Fields, source: str, value: Any) -> tuple[AgentResponse, ...]:
    """Return recorded answers, the last one last; empty where one is wrong."""
    if not _is_conversation(value):
        answers = [_answer(fields, source, value)]
    else:
        turns = value["turns"]
        if not turns:
            fields.trouble.append((f"{source}.turns", "is empty: it has an answer to each turn"))
        answers = [_answer(fields, f"{source}.turns[{index}]", each) for index, each in enumerate(turns)]
    found = tuple(answer for answer in answers if answer is not None)
    return found if len(found) == len(answers) else ()


def _answer(fields: Fields, source: str, value: object) -> AgentResponse | None:
    try:
        return response_from_json(value if isinstance(value, dict) else fields.as_text(source, value))
    except MalformedAnswerError as problem:
        fields.trouble.append((source, f"is no recorded answer: {problem}"))
        return None
