"""Parquet files: rows as records, with a sentence where pyarrow is missing."""

from __future__ import annotations

import datetime
import gzip
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from assay.datasets import open_dataset
from assay.errors import DatasetError
from assay.model.case import Case, ExpectedTool
from assay.model.run_spec import CaseSelection

Read = Callable[..., list[Case]]
Refusal = Callable[..., list[str]]


def _write(path: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, **options)
    return path


def test_rows_are_records(tmp_path: Path, read: Read) -> None:
    """Texts, lists and structs are read as they are; nulls are absent fields, dates are texts."""
    rows: list[dict[str, Any]] = [
        {
            "id": "a",
            "question": "ما هي؟",
            "answer": ["A", "B"],
            "expected_tools": [{"name": "search", "arguments": {"q": "x"}}],
            "weight": 0.5,
            "day": datetime.date(2024, 5, 1),
            "note": None,
        },
        {"id": "b", "question": "R", "answer": ["C"], "expected_tools": None, "weight": None, "note": "n", "day": None},
    ]
    path = _write(tmp_path / "x.parquet", rows)
    info = open_dataset(path).check()
    assert (info.format, info.case_count, info.reference_count) == ("plain/parquet", 2, 2)
    first, second = read(path)
    assert (first.case_id, first.input, first.references, first.weight) == ("a", "ما هي؟", ("A", "B"), 0.5)
    assert first.turns[0].expected_tools == (ExpectedTool("search", {"q": "x"}, "subset"),)
    assert first.metadata == {"day": "2024-05-01"}
    assert (second.weight, second.metadata) == (1.0, {"note": "n"})


def test_many_batches(tmp_path: Path) -> None:
    """A file of more rows than one batch is read to its end, and equal ids are found across batches."""
    path = _write(tmp_path / "x.parquet", [{"question": f"Q{n}"} for n in range(1000)], row_group_size=300)
    assert open_dataset(path).check().case_count == 1000
    assert [case.input for case in open_dataset(path, selection=CaseSelection(limit=2)).cases()] == ["Q0", "Q1"]


def test_values_that_json_has_no_form_for(tmp_path: Path, refusal: Refusal) -> None:
    """Infinity and bytes are refused with their record and field; NaN is a missing value, as pandas has it."""
    path = _write(tmp_path / "x.parquet", [{"question": "Q", "n": float("nan")}, {"question": "R", "n": float("inf")}])
    assert refusal(path)[0].startswith(f"{path}: record 2, n: holds inf, which is not a JSON number")
    nan = _write(tmp_path / "nan.parquet", [{"question": "Q", "n": float("nan")}, {"question": "R", "n": 1.0}])
    assert [dict(case.metadata) for case in open_dataset(nan).cases()] == [{}, {"n": 1.0}]
    path = _write(tmp_path / "y.parquet", [{"question": "Q", "n": b"\xff"}])
    assert "record 1, n: holds a bytes" in refusal(path)[0]


def test_equal_ids(tmp_path: Path, refusal: Refusal) -> None:
    """An id that is given twice is refused with both records; there are no lines to name."""
    path = _write(tmp_path / "x.parquet", [{"id": "a", "question": "Q"}, {"id": "a", "question": "R"}])
    assert 'record 2, id: "a" is the id of record 1 too' in refusal(path)[0]


def test_damaged_and_packed_files(tmp_path: Path, refusal: Refusal) -> None:
    """A cut-off file and one inside gzip are refused as what they are."""
    whole = _write(tmp_path / "x.parquet", [{"question": "Q"}]).read_bytes()
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(whole[: len(whole) // 2])
    assert "is a parquet file that cannot be read" in refusal(cut)[0]
    packed = tmp_path / "x.parquet.gz"
    packed.write_bytes(gzip.compress(whole))
    assert "is a parquet file inside gzip: unpack it" in refusal(packed)[0]


def test_without_pyarrow(tmp_path: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pyarrow is not installed, the sentence names the extra."""
    path = _write(tmp_path / "x.parquet", [{"question": "Q"}])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert re.search(r"needs pyarrow: \S*pip install -e \S*\[parquet\]\S*, or export it", refusal(path)[0])


def test_a_row_that_would_unfold_to_gigabytes_is_refused_unread(tmp_path: Path) -> None:
    """A few kilobytes of a file hold a cell of 200 MB: the file's end says so before anything is decompressed."""
    rows = [{"question": "Q", "context": "x" * 50_000_000}]
    path = _write(tmp_path / "x.parquet", rows, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 100_000
    with pytest.raises(DatasetError, match="holds rows of 47 MiB"):
        open_dataset(path).check()


def test_rows_of_any_allowed_size_are_read(tmp_path: Path) -> None:
    """Large rows come in smaller batches."""
    rows = [{"question": f"Q{n}", "context": "x" * 500_000} for n in range(300)]
    path = _write(tmp_path / "x.parquet", rows, compression="zstd")
    assert [case.input for case in open_dataset(path).cases()] == [row["question"] for row in rows]
