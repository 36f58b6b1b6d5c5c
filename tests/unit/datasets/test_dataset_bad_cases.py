"""Leaving out what is wrong: every record counted and listed; what is no record still refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.datasets import open_dataset, records_dataset
from assay.errors import DatasetError
from assay.model.case import Case

Write = Callable[..., str]
Read = Callable[..., list[Case]]
Refusal = Callable[..., list[str]]

LINES = [
    '{"id": "a", "question": "Q"}',
    '{"id": "b", "question": ["Q"], "weight": -1}',
    "nonsense",
    '{"id": "a", "question": "again"}',
    '{"id": "c", "question": "R", "score": NaN}',
    '{"id": "d", "question": "S"}',
]


def test_wrong_records_are_left_out_and_listed(write: Write, read: Read) -> None:
    """Wrong records are left out and listed with file, line, field and message; the rest is read."""
    name = write("x.jsonl", "\n".join(LINES))
    info = open_dataset(name, on_bad_case="skip").check()
    assert (info.case_count, info.left_out_count) == (2, 4)
    sentences = [str(problem) for problem in info.left_out]
    assert sentences[0].startswith("x.jsonl:2: record 2, question: must be a string")
    assert sentences[1].startswith("x.jsonl:2: record 2, weight: must be a number")
    assert [line.split(":")[1] for line in sentences] == ["2", "2", "3", "4", "5"]
    assert "x.jsonl: 4 records are wrong and left out" in str(info.warnings[-1])
    assert [case.case_id for case in read(name, on_bad_case="skip")] == ["a", "d"]


def test_the_default_is_to_refuse(write: Write, refusal: Refusal) -> None:
    """By default nothing is left out; an unknown policy is refused."""
    name = write("x.jsonl", "\n".join(LINES))
    assert len(refusal(name)) == 5
    assert "on_bad_case must be refuse or skip, not 'ignore'" in refusal(name, on_bad_case="ignore")[0]


def test_ragged_rows_are_left_out(write: Write, read: Read) -> None:
    """A row with too few cells is a record that is wrong."""
    name = write("x.csv", "question,answer\nQ,A\nR\nS,B\n")
    assert [case.input for case in read(name, on_bad_case="skip")] == ["Q", "S"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.json", '[{"question": "Q"}, {"question": ', "it may be cut off"),
        ("x.csv", 'question\n"Q', "is not valid CSV"),
        ("x.yaml", "- question: Q\n- question: [", "is not valid YAML"),
        ("x.json", '[{"question": []}]', "holds no case that can be read: 1 record is wrong"),
    ],
)
def test_a_damaged_file_is_refused_all_the_same(write: Write, name: str, content: str, message: str) -> None:
    """A damaged file, or one of which no record is left, is refused."""
    dataset = open_dataset(write(name, content), on_bad_case="skip")
    with pytest.raises(DatasetError, match=message):
        dataset.check()


def test_the_list_is_bounded_and_everything_is_counted(write: Write) -> None:
    """At most fifty problems are listed; all wrong records are counted."""
    records: list[Any] = [{"question": "Q"}, *({"question": []} for _ in range(200))]
    info = open_dataset(write("x.jsonl", records), on_bad_case="skip").check()
    assert (info.case_count, info.left_out_count, len(info.left_out)) == (1, 200, 50)


_RECORD = st.fixed_dictionaries(
    {"question": st.sampled_from(["Q", "R", "", " ", "é", "cafÃ©", 3, [1], None])},
    optional={
        "id": st.sampled_from(["a", "b", "", 1, None, "x" * 201]),
        "answer": st.sampled_from(["A", "", " ", None, ["A"]]),
        "skip": st.sampled_from([True, False, None, "no", 3]),
        "category": st.sampled_from(["c", 1, None]),
        "weight": st.sampled_from([1, -1]),
    },
)


@given(st.lists(_RECORD, max_size=12))
def test_the_survey_counts_what_reading_gives(tmp_path_factory: pytest.TempPathFactory, records: list[Any]) -> None:
    """Checking, which takes a short cut for plain records, and reading agree on every case and count."""
    path = tmp_path_factory.mktemp("data") / "x.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in [{"question": "first"}, *records]))
    dataset = open_dataset(path, on_bad_case="skip")
    info = dataset.check()
    cases = list(dataset.cases())
    assert len(cases) == info.case_count
    assert len(cases) + info.left_out_count + info.skipped_count == len(records) + 1
    assert sum(any(text.strip() for text in case.references) for case in cases) == info.reference_count
    again = records_dataset([{"question": "first"}, *records], on_bad_case="skip")
    assert [case.case_id for case in again.cases()] == [case.case_id for case in cases]
    assert again.check().left_out_count == info.left_out_count
