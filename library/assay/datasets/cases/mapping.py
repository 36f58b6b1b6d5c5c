"""Building a checked case from a raw record."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from assay.datasets.cases.case_rules import case_problems, excess
from assay.datasets.cases.case_turns import read_turns, recorded_answers
from assay.datasets.cases.expectations import approvals, assertions, human_labels, thresholds, weight
from assay.datasets.fields.aliases import OPTION_NAMES, is_blank, is_plural
from assay.datasets.records import find_unusable, shown
from assay.datasets.values.cells import may_list, value_in_cell
from assay.datasets.values.field_values import Fields, Findings
from assay.datasets.values.separated_names import split_choices
from assay.model.case import Case, Turn
from assay.model.limits import MAX_BYTES_PER_CHAR, MAX_CASE_BYTES, MAX_CASE_ID_CHARS
from assay.parsing.names import name_problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.datasets.fields.aliases import Layout
    from assay.datasets.records import Record

_PLAIN_CHARS = MAX_CASE_BYTES // MAX_BYTES_PER_CHAR
_ANSWERS = ("references", "recorded", "expected_sources", "expected_tools", "assertions", "human_labels")
_RECORDED = re.compile(r"recordings\[(\d+)\]\.turns(\[\d+\])?")
_FIRST_NAME = re.compile(r"\w+")
_TAG_MARKS = re.compile(r"[,;|]")


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LETTER = re.compile(r"\(?([A-Za-z])[).:]?")
_WHOLE = re.compile(r"\d+\.0")


def with_choice(fields: Fields, references: tuple[str, ...], choices: Sequence[str]) -> tuple[str, ...]:
    """Return the references with the choice's letter and text, if the only reference names a choice.

    Args:
        fields: The record; collects the warnings.
        references: The case's references.
        choices: The case's choices, in order.
    """
    if len(references) != 1:
        return references
    source, _ = fields.find("references")
    reference = _bare(references[0], choices)
    if not choices:
        _warn_of_options(fields, source, reference)
        return references
    if reference in _LETTERS[: len(choices)] and len(reference) == 1:
        return (*dict.fromkeys((*references, reference)), *_by_letter(fields, source, reference, choices))
    if reference.isdecimal() and reference.isascii() and reference not in choices:
        return _by_number(fields, source, int(reference), choices) or references
    return references


def _bare(reference: str, choices: Sequence[str]) -> str:
    """Return "B" for "(b)" and "1" for "1.0" unless a choice is written that way."""
    text = reference.strip()
    if text in choices:
        return text
    if (letter := _LETTER.fullmatch(text)) is not None:
        return letter[1].upper()
    return text.removesuffix(".0") if _WHOLE.fullmatch(text) else text


def _warn_of_options(fields: Fields, source: str, reference: str) -> None:
    """Warn if the reference may name a choice in a field that is not read."""
    if not (len(reference) == 1 and reference in _LETTERS) and not reference.isdecimal():
        return
    for name in fields.layout.rest:
        options = fields.record[name]
        if name.lower() in OPTION_NAMES and isinstance(options, list | dict) and len(options) > 1:
            fields.warn(
                "options",
                source,
                f"may name one of the choices in {shown(name)}, which are not read: set `map: {{choices: {name}}}`",
            )
            return


def _by_letter(fields: Fields, source: str, letter: str, choices: Sequence[str]) -> tuple[str, ...]:
    text = choices[_LETTERS.index(letter)]
    if text == letter:
        return ()
    if letter in choices:
        fields.warn(
            "letter",
            source,
            f"{shown(letter)} is read as the letter of {shown(text)}, and is the text of another choice too: write "
            "the right choice's text",
        )
    return (text,)


def _by_number(fields: Fields, source: str, number: int, choices: Sequence[str]) -> tuple[str, ...]:
    """Return text and letter of a numbered choice, if the first records show where numbering starts."""
    first = fields.layout.first_choice
    index = number - (first or 0)
    if first is None or not 0 <= index < len(choices):
        fields.warn(
            "number",
            source,
            f"{number} is compared as text, though it may be the number of a choice: write the right choice's text",
        )
        return ()
    fields.warn(
        "number",
        source,
        f"{number} is read as the number of a choice, counted from {first}: {shown(choices[index])}; if it is not, "
        "write the right choice's text",
    )
    letters = (_LETTERS[index],) if index < len(_LETTERS) else ()
    return (choices[index], *letters)


def build_case(record: Record, layout: Layout, *, from_cells: bool, findings: Findings) -> Case | None:
    """Return the case of a record, or None after adding its problems to `findings.trouble`.

    A case without an id of its own gets the empty id.

    Args:
        record: A record that holds an object.
        layout: The layout of its fields.
        from_cells: Whether its values are cells of a table.
        findings: Collects problems and warnings.
    """
    trouble = findings.trouble
    if record.suspect and (problem := find_unusable(record.data)):
        trouble.append(("", problem))
        return None
    texts = plain_texts(record, layout, from_cells=from_cells)
    if texts is not None:
        return plain_case(texts, record, layout)
    fields = Fields(record.data, layout, findings, from_cells=from_cells)
    expected, references = _expected(fields)
    choices = fields.names("choices", split_choices)
    references = with_choice(fields, references, choices)
    variables = dict(fields.mapping("variables"))
    turns, spoken = read_turns(fields, references, variables)
    case = Case(
        case_id=_case_id(fields),
        turns=turns,
        variables=variables,
        parameters=fields.mapping("parameters"),
        contexts=fields.texts("contexts"),
        choices=choices,
        category=fields.text("category"),
        tags=_tags(fields),
        expected=expected,
        assertions=assertions(fields),
        thresholds=thresholds(fields),
        weight=weight(fields),
        human_labels=human_labels(fields),
        metadata=_metadata(fields),
        recordings=recorded_answers(fields, spoken),
        approvals=approvals(fields),
    )
    if trouble:
        return None
    trouble += [
        (_source_of(problem.field, fields, case), problem.message)
        for problem in case_problems(case)
        if problem.field != "case_id"  # derived later if missing, and checked above if present
    ]
    if trouble:
        return None
    if record.size > _PLAIN_CHARS and (problem := excess(case)):
        trouble.append(("", problem))
        return None
    return case


def _source_of(path: str, fields: Fields, case: Case) -> str:
    """Return the path of a case's field with the record's own name for it."""
    if (answer := _RECORDED.fullmatch(path)) is not None:
        index, turn = int(answer[1]), f".turns{answer[2]}" if answer[2] else ""
        repeat = f"[{index}]" if len(case.recordings) > 1 else ""
        return f"{fields.find('recorded')[0]}{repeat}{turn if len(case.recordings[index]) > 1 else ''}"
    name = _FIRST_NAME.match(path)
    return path if name is None else fields.find(name[0])[0] + path[name.end() :]


def plain_texts(record: Record, layout: Layout, *, from_cells: bool) -> tuple[str, str, str, str] | None:
    """Return question, reference, id and category of a record of plain texts, or None if it needs the full reading.

    Args:
        record: A record that holds an object without unusable parts.
        layout: The layout of its fields.
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
    if from_cells and may_list(reference):
        return None
    if not (case_id.isascii() and case_id.isprintable() and len(case_id) <= MAX_CASE_ID_CHARS):
        return None
    return text, reference, case_id.strip(), category


def plain_case(texts: tuple[str, str, str, str], record: Record, layout: Layout) -> Case:
    """Return the case of a record of plain texts.

    Args:
        texts: Question, reference, id and category, as `plain_texts` returns them.
        record: The record.
        layout: The layout of its fields.
    """
    text, reference, case_id, category = texts
    metadata = {name: record.data[name] for name in layout.rest} if layout.rest else {}
    turn = Turn(text, (), (reference,) if reference else (), ())
    return Case(case_id, (turn,), category=category, metadata=metadata)


def _expected(fields: Fields) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the values that metrics compare with: named values, and the references."""
    source, value = fields.find("references")
    expected: dict[str, Any] = {}
    references: tuple[str, ...] = ()
    if isinstance(value, dict):
        if source.lower() != "expected":
            fields.trouble.append((source, f"must be a string or a list of strings, not {shown(value)}"))
        expected = dict(value)
    else:
        # A cell in a column for one reference may be JSON that the agent should answer with.
        references = fields.texts("references", lists_in_cells=fields.from_cells and is_plural(source))
    # Kept under `expected`, because agents see metadata and must not see answers.
    sources = fields.layout.sources
    doubled = [canonical for canonical in _ANSWERS if len(sources.get(canonical, ())) > 1]
    spare = [name for canonical in doubled for name in _spare(fields, canonical)]
    for name in (*fields.layout.hidden, *spare):
        value = fields.record[name]
        if name == "expected" and isinstance(value, dict):
            expected = {**value, **expected}
        elif not is_blank(value):
            expected.setdefault(name, value)
    return expected, references


def _spare(fields: Fields, canonical: str) -> list[str]:
    """Return the fields that could be a canonical field that another one already is."""
    sources = fields.layout.sources[canonical]
    used, _ = fields.find(canonical)
    return [name for name in sources if name != used]


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
    """Return the fields that Assay does not use: no data of a dataset is dropped."""
    source, value = fields.find("metadata")
    if isinstance(value, str):
        value = value_in_cell(value)
    metadata: dict[str, Any] = {}
    if isinstance(value, dict):
        metadata.update(value)
    elif not is_blank(value):
        metadata[source] = value
    for name in fields.layout.rest:
        if name in metadata:
            metadata[f"metadata.{name}"] = metadata[name]
        metadata[name] = fields.record[name]
    for canonical, sources in fields.layout.sources.items():
        if len(sources) > 1 and canonical not in _ANSWERS:
            metadata.update({name: fields.record[name] for name in _spare(fields, canonical)})
    return metadata
