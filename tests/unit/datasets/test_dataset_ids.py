"""Ids of cases: derived ones survive reordering and edits, equal cases stay apart."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.datasets import open_dataset, records_dataset
from assay.datasets.cases.identity import CaseIds, derive_id
from assay.model.case import Case, Turn

Write = Callable[..., str]
Read = Callable[..., list[Case]]


def test_derived_ids_follow_the_documented_formula(write: Write, read: Read) -> None:
    """The id can be recomputed: SHA-256 of canonical JSON of input, parameters and variables."""
    name = write("x.jsonl", [{"input": "Q é", "filters": {"b": 1, "a": 2}, "answer": "A"}])
    text = '{"input":"Q é","parameters":{"a":2,"b":1},"variables":{}}'
    assert read(name)[0].case_id == hashlib.sha256(text.encode()).hexdigest()[:12]


def test_derived_ids_survive_reordering_and_edits(write: Write, read: Read) -> None:
    """Neither the order of cases nor references, categories and notes change an id."""
    labels = read(write("x.jsonl", [{"input": "a", "answer": "1"}, {"input": "b"}]))
    two = read(write("x.jsonl", [{"input": "b", "category": "c"}, {"input": "a", "answer": "2", "note": 1}]))
    assert [case.case_id for case in labels] == [case.case_id for case in reversed(two)]


@given(st.text(), st.dictionaries(st.text(), st.text()))
def test_derived_ids_do_not_depend_on_the_form_of_letters(text: str, variables: dict[str, str]) -> None:
    """Composed and decomposed letters give the same case."""
    ids = {
        derive_id(Case("", (Turn(unicodedata.normalize(form, text)),), variables=nested))
        for form in ("NFC", "NFD")
        for nested in [json.loads(unicodedata.normalize(form, json.dumps(variables, ensure_ascii=False)))]
    }
    assert len(ids) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Case("", (Turn("caf\u00e9"),)), Case("", (Turn("cafe\u0301"),))),
        (Case("", (Turn("q"), Turn("\u00e9"))), Case("", (Turn("q"), Turn("e\u0301")))),
        (
            Case("", (Turn("q"),), variables={"\u00e9": ["\u00e9"]}),
            Case("", (Turn("q"),), variables={"e\u0301": ["e\u0301"]}),
        ),
        (Case("", (Turn("q"),), parameters={"a": "\u00e9"}), Case("", (Turn("q"),), parameters={"a": "e\u0301"})),
    ],
)
def test_composed_and_decomposed_letters_give_one_id(one: Case, other: Case) -> None:
    """This holds in inputs, turns, names and values of variables, and parameters."""
    assert derive_id(one) == derive_id(other)


def test_equal_cases_get_numbers(write: Write, read: Read) -> None:
    """Equal cases get numbers and a warning with their count; both passes number them alike."""
    name = write("x.jsonl", [{"input": "a"}, {"input": "b"}, {"input": "a"}, {"input": "a"}, {"input": "b"}])
    ids = [case.case_id for case in read(name)]
    a, b = ids[0], ids[1]
    assert ids == [a, b, f"{a}-2", f"{a}-3", f"{b}-2"]
    (warning,) = open_dataset(name).check().warnings
    sentence = "repeats line 1; 3 such records count as cases of their own (their ids end in -2, -3, ...)"
    assert str(warning) == f"x.jsonl:3: record 3: {sentence}"


def test_derived_ids_avoid_given_ones(write: Write, read: Read) -> None:
    """A derived id is never one that the dataset gives to another case."""
    base = read(write("x.jsonl", [{"input": "a"}]))[0].case_id
    ids = [
        case.case_id for case in read(write("x.jsonl", [{"id": base, "input": "z"}, {"input": "a"}, {"input": "a"}]))
    ]
    assert ids == [base, f"{base}-2", f"{base}-3"]


@given(st.lists(st.sampled_from([None, "a", "b", "c"]), max_size=40))
def test_ids_are_never_the_same_twice(given_ids: list[str | None]) -> None:
    """An accepted dataset has unique ids, whichever are given or missing."""
    seen: set[str] = set()
    records = []
    for case_id in given_ids:
        if case_id not in seen:
            records.append({"id": case_id, "question": "Q"})
        if case_id is not None:
            seen.add(case_id)
    if records:
        ids = [case.case_id for case in records_dataset(records).cases()]
        assert len(set(ids)) == len(records)


def test_many_ids() -> None:
    """The table grows without losing or inventing an id."""
    ids = CaseIds()
    assert all(ids.take(str(number), number + 1) is None for number in range(5000))
    assert [ids.take(str(number), 9999) for number in range(5000)] == list(range(1, 5001))
