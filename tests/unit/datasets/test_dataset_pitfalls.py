"""What goes wrong with files in practice, and what happens here."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.datasets import open_dataset
from assay.datasets.diagnostics import looks_damaged
from assay.datasets.records import JsonText
from assay.metrics import build_metric, complete_parameters
from assay.metrics.core.score import Row
from assay.model.case import Case
from assay.model.run import MetricSpec

Write = Callable[..., str]
Read = Callable[..., list[Case]]
Refusal = Callable[..., list[str]]


@pytest.mark.parametrize("cell", ["=1+1", "+966 11", "-3", "@home", "=HYPERLINK(A1)", "'quoted"])
def test_cells_that_a_spreadsheet_would_run_are_texts(write: Write, read: Read, cell: str) -> None:
    """A cell that begins like a formula is the text that it is.

    Pitfall: cells that a spreadsheet would run.
    """
    (case,) = read(write("x.csv", f"question,answer\n{cell},{cell}\n"))
    assert (case.input, case.references) == (cell, (cell,))


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_separators_and_marks(write: Write, read: Read, delimiter: str, mark: str) -> None:
    """Each separator is found with and without a byte order mark, also where other separators stand in the texts.

    Pitfall: UTF-8 BOM; CSV sniffing.
    """
    rows = [["question", "answer"], ["one two", "x"], ['"a, b; c | d"', "y"]]
    content = mark + "\n".join(delimiter.join(row) for row in rows)
    assert [case.references for case in read(write("x.csv", content))] == [("x",), ("y",)]


@pytest.mark.parametrize("text", ["question\nfoo boo\ngoo\n", "question\na; b\nc\n", "question\na|b\nc|d\n"])
def test_one_column_is_one_column(write: Write, read: Read, text: str) -> None:
    """No letter and no mark in the texts of a single column is taken for a separator.

    Pitfall: CSV sniffing.
    """
    assert len(read(write("x.csv", text))) == 2
    assert open_dataset("x.csv").check().mapping == {"input": "question"}


def test_places_after_cells_of_several_lines(write: Write, refusal: Refusal) -> None:
    """The line in a message is the physical one at which the row begins.

    Pitfall: multi-line cells.
    """
    (problem,) = refusal(write("x.csv", 'question,answer\n"a\nb\nc","d\ne"\nQ\n'))
    assert problem.startswith("x.csv:6: record 2: has 1 cells")


def test_a_bomb_of_aliases(write: Write, refusal: Refusal) -> None:
    """Ten lines of YAML that stand for ten thousand million texts are refused at the first anchor.

    Pitfall: bombs of anchors in YAML.
    """
    levels = ["- &a0 [" + ",".join(["x"] * 10) + "]"]
    levels += [f"- &a{n} [" + ",".join([f"*a{n - 1}"] * 10) + "]" for n in range(1, 10)]
    assert "x.yaml:1: uses an anchor (&)" in refusal(write("x.yaml", "\n".join(levels)))[0]


def test_floats_are_floats(write: Write, read: Read) -> None:
    """A number with a point is the float that any JSON reader gives, in an array as in lines.

    Pitfall: floats that a streaming reader makes decimals.
    """
    for name in ("x.json", "x.jsonl"):
        (case,) = read(write(name, [{"question": "Q", "n": 0.1, "big": 2**70}]))
        assert case.metadata == {"n": 0.1, "big": 2**70}
        assert type(case.metadata["n"]) is float


def test_labels_and_categories_keep_what_was_written(write: Write, read: Read) -> None:
    """Space and the difference of 1 and "1" are not lost here; metrics fold for comparison only.

    Pitfall: labels `" Yes"` and `"Yes"`, 1 and "1".
    """
    labels, two = read(
        write(
            "x.json", [{"question": "Q", "answer": " Yes", "labels": {"a": 1}}, {"question": "R", "labels": {"a": "1"}}]
        )
    )
    assert labels.references == (" Yes",)
    assert (labels.human_labels, two.human_labels) == ({"a": 1}, {"a": "1"})


@pytest.mark.parametrize("text", ["مـرحـبا", "مَرْحَبًا", "ﻻ ﺑﺄس", "٠١٢٣٤", "\u200fعربي\u200e", "e\u0301"])
def test_letters_stay_as_they_are(write: Write, read: Read, text: str) -> None:
    """Tatweel, tashkeel, presentation forms, Eastern digits and bidi marks reach the agent unchanged.

    Pitfall: Arabic.
    """
    (case,) = read(write("x.jsonl", [{"question": text, "answer": text}]))
    assert (case.input, case.references) == (text, (text,))
    assert open_dataset("x.jsonl").check().warnings == ()


def test_numbers_keep_every_digit_on_the_wire(write: Write, wired: Read) -> None:
    """A number of any size, and the difference of 3 and 3.0, reaches the orchestrator as it was written.

    Pitfall: big integers and floats on the wire.
    """
    values = {"big": 12345678901234567890, "whole": 3, "point": 3.0, "small": -(2**63), "tiny": 5e-324}
    (case,) = wired(write("x.jsonl", [{"question": "Q", "variables": values, "expected": values, "meta": values}]))
    for held in (case.variables, case.expected, case.metadata["meta"]):
        assert held == values
        assert [type(item) for item in held.values()] == [type(item) for item in values.values()]


@pytest.mark.parametrize(
    ("right", "message", "kind", "value"),
    [
        (" Yes", "yes\n", "exact_match", 1.0),
        ("1", 1, "exact_match", 1.0),
        ("ما هي عاصمة السعودية", "ما هي عاصمة السعودية", "rouge", 1.0),
        ("ﻻ ﺑﺄس", "لا بأس", "rouge", 1.0),
    ],
)
def test_metrics_compare_what_people_mean(
    write: Write, read: Read, right: str, message: object, kind: str, value: float
) -> None:
    """What a dataset keeps as it was written is compared in a normal form: space, case, digits, Arabic forms.

    Pitfall: labels `" Yes"` and `"Yes"`, 1 and "1"; Arabic.
    """
    (case,) = read(write("x.json", [{"question": "Q", "reference": right, "recorded": message}]))
    assert case.references == (right,)
    assert case.recorded is not None
    parameters = complete_parameters(kind, {}, where="metrics[0]")
    metric = build_metric(MetricSpec(kind, parameters))
    assert metric.score(Row(case, case.recorded)).value == pytest.approx(value)


@pytest.mark.parametrize("text", ["Greater â‰¥ 5", "donâ€™t", "cafÃ©", "Ø§Ù„Ø³Ø¹ÙˆØ¯ÙŠØ©", "a\ufffdb"])
def test_damaged_letters_are_seen(text: str) -> None:
    """What wrongly read UTF-8 leaves behind is recognised.

    Pitfall: mojibake.
    """
    assert looks_damaged(text)


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ('{"a": 1, "a": 2}', "a"),
        ('{"a" : 1, "a"\t: 2}', "a"),
        ('{"a"\n:\n1, "b": {"a": 1}, "a"\r:2}', "a"),
        ('{"t": "x: y", "a": {"b": 1, "b": 2}}', "b"),
        ('{"t": "\\":\\"", "a": [{"b": 1}, {"c": 1, "c": 2}]}', "c"),
        ('{"a": 1, "\\u0061": 2}', "a"),
        ('{"t": ": : :", "a": 1}', ""),
        ('{"a": {"a": {"a": 1}}, "b": [{"a": 1}, {"a": 2}]}', ""),
        ('{"t": "{\\"a\\": 1, \\"a\\": 2}"}', ""),
    ],
)
def test_fields_given_twice(raw: str, name: str) -> None:
    """A field that is given twice is found however it is spelled and nested, and colons in texts are none.

    Pitfall: duplicate keys of JSON.
    """
    text = JsonText()
    data, _ = text.read(raw)
    record = text.record(1, 1, data, raw)
    assert (f'the field "{name}" twice' in record.problem) if name else not record.problem
    assert (record.data is None) is bool(name)


_NAMES = st.text(':" a', max_size=3)
_VALUES = st.recursive(
    st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(_NAMES, inner), max_size=4).map(tuple),
    max_leaves=12,
)


def _written(value: Any, space: str) -> tuple[str, bool]:
    """Return JSON in which tuples are objects of their pairs, and whether an object has a field twice."""
    if isinstance(value, tuple):
        parts = [(json.dumps(key), *_written(item, space)) for key, item in value]
        twice = len({key for key, _ in value}) < len(value) or any(found for _, _, found in parts)
        return "{" + ",".join(f"{key}{space}:{space}{text}" for key, text, _ in parts) + "}", twice
    if isinstance(value, list):
        items = [_written(item, space) for item in value]
        return "[" + ",".join(text for text, _ in items) + "]", any(found for _, found in items)
    return json.dumps(value), False


@given(_VALUES, st.sampled_from(["", " ", "\t", "\n", " \r\n "]))
def test_the_cheap_search_for_repeated_fields_misses_none(value: Any, space: str) -> None:
    """Counting colons finds the same objects as looking at every pair."""
    raw, twice = _written(value, space)
    text = JsonText()
    data, _ = text.read(raw)
    assert bool(text.record(1, 1, data, raw).problem) == twice


@pytest.mark.parametrize("expected", [{"expected_table": "t1"}, {"expected_table": "t1", "score": 3}])
def test_a_column_does_not_overwrite_what_expected_says(write: Write, read: Read, expected: dict[str, Any]) -> None:
    """Where a field stands within `expected` and beside it, the one within it counts."""
    (case,) = read(write("x.jsonl", [{"question": "Q", "expected": expected, "expected_table": "t2"}]))
    assert case.expected == expected
    (alone,) = read(write("x.jsonl", [{"question": "Q", "expected_table": "t2"}]))
    assert alone.expected == {"expected_table": "t2"}
