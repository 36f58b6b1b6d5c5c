"""A dataset is read once: what was checked is kept in the form in which it is sent."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from assay.client.encoded_cases import EncodedCases
from assay.client.input_checks import check_inputs
from assay.client.variants import check_variants
from assay.comparison.stopping import shuffled
from assay.datasets import open_dataset
from assay.datasets.readers.sources import FileSource
from assay.errors import DatasetError, SetupError
from assay.model.case import Case, Turn
from assay.specs.loader import spec_from_mapping
from assay.wire.case import case_from_wire

if TYPE_CHECKING:
    from assay.specs.model import Spec

CASES = [Case(f"c{number}", (Turn(f"q{number}", references=("a",)),), category="x" * number) for number in range(40)]


def encoded(*cases: Case) -> EncodedCases:
    """Return cases after they were encoded."""
    kept = EncodedCases()
    for case in cases:
        kept.add(case)
    return kept


def spec(dataset: Path, **settings: Any) -> Spec:
    """Return a spec whose checks read every case."""
    return spec_from_mapping(
        {
            "dataset": str(dataset),
            "agent": {"adapter": "replay"},
            "repeats": 2,
            "cluster": "category",
            "metrics": ["exact_match"],
            "gates": ["category.x.exact_match >= 0.5"],
            **settings,
        }
    )


@pytest.fixture
def openings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the files that were opened as datasets, in order."""
    opened: list[str] = []
    real = FileSource.open

    def open_file(source: FileSource) -> Any:
        opened.append(source.name)
        return real(source)

    monkeypatch.setattr(FileSource, "open", open_file)
    return opened


@pytest.mark.parametrize("in_memory_bytes", [1, 1 << 20], ids=["file", "memory"])
def test_cases_come_back_in_order(in_memory_bytes: int) -> None:
    """From memory and from the file, every time, and from two iterators at once."""
    with EncodedCases(in_memory_bytes=in_memory_bytes) as kept:
        for case in CASES:
            kept.add(case)
        assert [case_from_wire(message) for message in kept] == CASES
        assert [(a.case_id, b.case_id) for a, b in zip(kept, kept, strict=True)] == [
            (case.case_id, case.case_id) for case in CASES
        ]


def test_shuffled_cases_know_their_places() -> None:
    """The order is that of the seed, and each case has its position in the dataset."""
    order = shuffled([case.case_id for case in CASES], 7)
    with encoded(*CASES) as kept, kept.shuffled(7) as ordered:
        assert [message.place for message in ordered] == order
        assert [message.case_id for message in ordered] == [f"c{place}" for place in order]


def test_a_full_disk_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the folder, the reason and the remedy."""

    def refuse(file: object, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile.SpooledTemporaryFile, "write", refuse)
    with EncodedCases() as kept, pytest.raises(SetupError, match=r"No space left on device.*TMPDIR"):
        kept.add(CASES[0])


def test_a_run_reads_its_file_once(tmp_path: Path, openings: list[str]) -> None:
    """All checks of the cases and the upload share one pass; variants share it too."""
    file = tmp_path / "cases.jsonl"
    file.write_text('{"id": "a", "question": "q", "recorded": ["r", "s"], "category": "x"}\n', encoding="utf-8")
    with EncodedCases() as kept:
        check_inputs(spec(file), open_dataset(file), kept.add)
        assert [message.case_id for message in kept] == ["a"]
    assert openings == ["cases.jsonl"]
    check_variants([spec(file), spec(file)], open_dataset(file))
    assert openings == ["cases.jsonl"] * 2


def test_what_was_checked_is_what_is_sent(tmp_path: Path) -> None:
    """A file that changes after the check changes nothing of the upload."""
    file = tmp_path / "cases.jsonl"
    file.write_text('{"id": "a", "question": "before"}\n', encoding="utf-8")
    with EncodedCases() as kept:
        open_dataset(file).check(kept.add)
        file.write_text('{"id": "a", "question": "after"}\n', encoding="utf-8")
        assert [message.turns[0].input for message in kept] == ["before"]


def test_a_problem_in_the_last_line_refuses_all(tmp_path: Path) -> None:
    """The cases before it were encoded already; the error names the line."""
    file = tmp_path / "cases.jsonl"
    lines = [f'{{"id": "c{number}", "question": "q"}}' for number in range(2_000)]
    file.write_text("\n".join([*lines, '{"id": "c7", "question": "q"}', "{}", ""]), encoding="utf-8")
    with EncodedCases() as kept:
        with pytest.raises(DatasetError) as refused:
            open_dataset(file).check(kept.add)
        assert [problem.line for problem in refused.value.problems] == [2_001, 2_002]
        assert sum(1 for _ in kept) == len(lines)


def test_a_file_that_changes_during_the_check_is_refused(tmp_path: Path) -> None:
    """Its hash would not be that of the cases."""
    file = tmp_path / "cases.jsonl"
    file.write_text('{"id": "a", "question": "q"}\n', encoding="utf-8")

    def extend(case: Case) -> None:
        file.write_text('{"id": "a", "question": "q"}\n\n', encoding="utf-8")

    with pytest.raises(DatasetError, match=r"cases\.jsonl: has changed while it was read: start again"):
        open_dataset(file).check(extend)
