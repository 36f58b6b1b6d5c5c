"""Selecting the cases of a dataset while it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from assay.datasets import open_dataset, records_dataset
from assay.errors import DatasetError
from assay.model.run_spec import CaseSelection

if TYPE_CHECKING:
    from tests.unit.datasets.conftest import Write

RECORDS = [{"id": f"c{i}", "question": f"q{i}", "answer": "a", "tags": ["odd"] if i % 2 else []} for i in range(6)]


def test_only_selected_cases_are_counted_and_read() -> None:
    """The count of a dataset is that of the selected cases; the total is counted separately."""
    dataset = records_dataset(RECORDS, selection=CaseSelection(tags=["odd"], limit=2))
    info = dataset.check()
    assert [case.case_id for case in dataset] == ["c1", "c3"]
    assert (info.case_count, info.reference_count) == (2, 2)
    assert info.selection == CaseSelection(tags=["odd"], limit=2, matched_count=3, total_count=6)


@pytest.mark.parametrize(("limit", "is_cut"), [(5, True), (6, False), (7, False)])
def test_a_limit_that_leaves_nothing_out_is_no_selection(limit: int, is_cut: bool) -> None:
    """A run over all cases is one over the whole dataset, whatever the limit."""
    counted = CaseSelection(limit=limit, matched_count=6, total_count=6)
    info = records_dataset(RECORDS, selection=CaseSelection(limit=limit)).check()
    assert info.selection == (counted if is_cut else None)


@pytest.mark.parametrize(
    ("name", "text", "total"),
    [
        ("x.jsonl", '{"question": "q", "answer": "a"}\n{broken\n', 2),
        ("x.json", '[{"question": "q", "answer": "a"}, {broken', None),
        ("x.jsonl", '{"question": "q"}\n{"question": "r", "skip": true}\n{"question": "s"}\n', 2),
    ],
)
def test_what_follows_a_limit_is_counted_and_may_be_broken(
    write: Write, name: str, text: str, total: int | None
) -> None:
    """Cases after the limit are counted but not checked; a truncated file has no known total."""
    name = write(name, text)
    info = open_dataset(name, selection=CaseSelection(limit=1)).check()
    assert info.selection == CaseSelection(limit=1, matched_count=total, total_count=total)
    if "broken" not in text:
        return
    with pytest.raises(DatasetError):
        open_dataset(name, selection=CaseSelection(cases=["*"], limit=1)).check()


def test_an_id_with_signs_of_patterns_selects_itself() -> None:
    """`c[1]` selects the case of that id, and also works as a pattern for c1."""
    records = [{"id": name, "question": name} for name in ("c[1]", "c1", "C1", "c2")]
    dataset = records_dataset(records, selection=CaseSelection(cases=["c[1]"]))
    assert [case.case_id for case in dataset] == ["c[1]", "c1"]


@pytest.mark.parametrize(
    ("selection", "message"),
    [
        (CaseSelection(tags=["od"]), "has no case with the tag 'od'; did you mean 'odd'?"),
        (CaseSelection(categories=["x"]), "has no case with the category 'x': its cases have no categories"),
        (CaseSelection(cases=["zz*"]), "has no case with the id 'zz*'; it has: c0, c1, c2, c3, c4, c5"),
        (CaseSelection(cases=["c0"], tags=["odd"]), "has no case that meets all conditions at once, of 6 cases"),
    ],
)
def test_values_that_no_case_has_are_refused(selection: CaseSelection, message: str) -> None:
    """The message names the nearest or the existing values; one wrong value among right ones is refused too."""
    for given in (selection, CaseSelection(("c1", *selection.cases), ("odd", *selection.tags), selection.categories)):
        if message.startswith("has no case that"):
            given = selection
        with pytest.raises(DatasetError) as refusal:
            records_dataset(RECORDS, selection=given).check()
        assert message in str(refusal.value)


def test_failures_that_the_dataset_lacks_are_a_warning() -> None:
    """Of an earlier run's failed cases, those still in the dataset are run, with a warning."""
    selection = CaseSelection(failed_of="run-1")
    info = records_dataset(RECORDS, selection=selection, failed_cases=["c1", "gone"]).check()
    assert info.case_count == 1
    assert [odd.message for odd in info.warnings] == [
        "1 of the 2 cases that failed in run run-1 is not in this dataset"
    ]
    with pytest.raises(DatasetError, match="has none of the 1 case that failed in run run-1"):
        records_dataset(RECORDS, selection=selection, failed_cases=["gone"]).check()


COPIES = [
    {"id": "a", "question": "Q?", "answer": "Yes"},
    {"id": "b", "question": " q? ", "answer": "yes\u200b"},
    {"id": "c", "question": "Q?", "answer": "No"},
    {"id": "d", "question": "Q?", "answer": "Yes", "variables": {"x": 1}},
    {"id": "e", "question": "Q?", "answer": "Yes", "tags": ["t"], "category": "k"},
]


@pytest.mark.parametrize(
    ("selection", "count", "first"),
    [
        (CaseSelection(), 2, "record 2 repeats record 1"),
        (CaseSelection(cases=["b", "c", "e"]), 1, "record 5 repeats record 2"),
        (CaseSelection(cases=["c", "d", "e"]), 0, ""),
    ],
)
def test_copies_are_counted_among_the_cases_of_the_run(selection: CaseSelection, count: int, first: str) -> None:
    """Equal question, variables, history and reference make a copy, whatever the ids; only selected cases count."""
    info = records_dataset(COPIES, selection=selection).check()
    assert (info.copy_count, info.first_copy) == (count, first)


def test_copies_in_a_file_are_found_with_and_without_building_cases(write: Write) -> None:
    """Plain records, which are not built during the check, count as copies of built ones."""
    lines = ['{"question": "q", "answer": "a"}', '{"question": "Q", "answer": ["a"], "tags": ["t"]}']
    info = open_dataset(write("x.jsonl", "\n".join([*lines, lines[0]]))).check()
    assert (info.copy_count, info.first_copy) == (2, "line 2 repeats line 1")
