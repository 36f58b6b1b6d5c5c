"""The Parquet report: typed columns that data tools read, whatever the rows hold, in groups of bounded size."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from tests.support.reports.report_documents import HOSTILE, agent_error, document, metric, row, score, written

from assay.reports.document.report import report_of_file
from assay.reports.formats.parquet_report import write_table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def table(folder: Path, found: Mapping[str, Any]) -> Any:
    """The file, read back."""
    (path,) = written(folder, found, "parquet")
    assert path.name == "results.parquet"
    return pq.read_table(path)


def test_columns_have_types(tmp_path: Path) -> None:
    """Times are times, verdicts booleans, values numbers; what is not known is null; the file names its run."""
    usage = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7, "cost_usd": 0.5}
    response = {"usage": usage, "sources": [{"id": "s1"}, {"title": "two"}]}
    columns = table(tmp_path, document([row(response=response), agent_error("c2", started_at=None)]))
    types = {field.name: field.type for field in columns.schema}
    assert types["started_at"] == pa.timestamp("ms", tz="UTC")
    assert (types["passed"], types["similarity"], types["repeat"]) == (pa.bool_(), pa.float64(), pa.int64())
    assert types["tags"] == types["references"] == pa.list_(pa.string())
    first, second = columns.to_pylist()
    assert first["started_at"] == datetime(2026, 11, 23, 16, 41, 11, 687000, UTC)
    assert (first["similarity"], first["passed"], first["references"]) == (0.8, True, ["That."])
    assert (first["sources"], first["total_tokens"], first["cost_usd"]) == (["s1", "two"], 7, 0.5)
    assert (second["similarity"], second["started_at"], second["latency_ms"]) == (None, None, None)
    assert columns.schema.metadata[b"assay.run_id"] == b"manual-20261123-164111-0c86e8"


def test_texts_are_kept_as_they_are(tmp_path: Path) -> None:
    """Data tools get every character; half a character, which UTF-8 cannot hold, does not stop the file."""
    (columns,) = table(tmp_path, document([row(answer=HOSTILE, question="مناقصة\ud800")])).to_pylist()
    assert (columns["answer"], columns["question"]) == (HOSTILE, "مناقصة?")


def test_a_metric_with_the_name_of_a_column_has_one_of_its_own(tmp_path: Path) -> None:
    """The same prefix as in data frames."""
    columns = table(tmp_path, document([row(scores={"weight": score(0.25)})], {"weight": metric()}))
    assert (columns["weight"].to_pylist(), columns["score.weight"].to_pylist()) == ([1.0], [0.25])


def test_rows_are_written_in_groups(tmp_path: Path) -> None:
    """No more rows, and no more text, are held at once than a group has; all rows are there, in order."""
    rows = [row(f"c{index}", answer="x" * (1000 if index == 7 else 1)) for index in range(10)]
    source = tmp_path / "source.json"
    source.write_text(json.dumps(document(rows)), encoding="utf-8")
    path = tmp_path / "groups.parquet"
    with report_of_file(source) as report, path.open("wb") as target:
        write_table(report, target, group_rows=3, group_chars=1000)
    file = pq.ParquetFile(path)
    assert [file.metadata.row_group(index).num_rows for index in range(file.num_row_groups)] == [3, 3, 2, 2]
    assert file.read()["case_id"].to_pylist() == [f"c{index}" for index in range(10)]


def test_a_run_without_rows(tmp_path: Path) -> None:
    """The file has its columns."""
    columns = table(tmp_path, document([]))
    assert columns.num_rows == 0
    assert "similarity" in columns.column_names
