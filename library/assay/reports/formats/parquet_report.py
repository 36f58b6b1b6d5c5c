"""results.parquet: the rows of a run with typed columns, one per metric among them."""

from __future__ import annotations

import json
from datetime import datetime
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, overload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from assay.reports.document.report import Report
    from assay.reports.folder import ReportFolder

    Row = Mapping[str, Any]
    Record = dict[str, Any]

_GROUP_ROWS = 10_000
_GROUP_CHARS = 16 << 20
_USAGE = {"input_tokens": "int64", "output_tokens": "int64", "total_tokens": "int64", "cost_usd": "float64"}


def write(report: Report, folder: ReportFolder, options: Mapping[str, Any]) -> None:
    """Write results.parquet."""
    del options
    with folder.binary("results.parquet") as file:
        write_table(report, file)


def write_table(
    report: Report, file: IO[bytes], *, group_rows: int = _GROUP_ROWS, group_chars: int = _GROUP_CHARS
) -> None:
    """Write the rows of a report in groups; the metadata of the file names its run.

    Args:
        report: The report.
        file: Takes the bytes.
        group_rows: How many rows are held at once at most.
        group_chars: A group ends after the row whose texts reach this number of characters.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = _metric_columns(report.head["results"])
    about = {"assay.schema": report.head["schema"], "assay.run_id": report.run_id}
    schema = _schema(names.values()).with_metadata({key: _text(value) for key, value in about.items()})
    row_records = (_record(report.run_id, row, names) for row in report.rows())
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for records in _groups(row_records, group_rows, group_chars):
            writer.write_table(pa.Table.from_pylist(records, schema=schema))


def _schema(metrics: Iterable[str]) -> Any:
    import pyarrow as pa

    text, number, texts = pa.string(), pa.float64(), pa.list_(pa.string())
    fields = {
        "run_id": text,
        "case_id": text,
        "repeat": pa.int64(),
        "category": text,
        "tags": texts,
        "weight": number,
        "status": text,
        "passed": pa.bool_(),
        "message": text,
        "question": text,
        "answer": text,
        "references": texts,
        "expected": text,
        "sources": texts,
        "error": text,
        "latency_ms": number,
        "started_at": pa.timestamp("ms", tz="UTC"),
        "duration_ms": number,
        **{name: getattr(pa, kind)() for name, kind in _USAGE.items()},
    }
    return pa.schema([*fields.items(), *((name, number) for name in metrics)])


def _metric_columns(metrics: Iterable[str]) -> dict[str, str]:
    """Return the column of each metric; one with the name of another column gets a prefix, as in data frames."""
    taken = set(_schema(()).names)
    return {metric: _text(f"score.{metric}" if metric in taken else metric) for metric in metrics}


def _groups(records: Iterable[Record], most_rows: int, most_chars: int) -> Iterator[list[Record]]:
    group: list[Record] = []
    chars = 0
    for record in records:
        group.append(record)
        chars += sum(len(value) for value in record.values() if isinstance(value, str))
        chars += sum(map(len, chain(record["references"], record["sources"])))
        if len(group) >= most_rows or chars >= most_chars:
            yield group
            group, chars = [], 0
    if group:
        yield group


def _record(run_id: str, row: Row, metrics: Mapping[str, str]) -> Record:
    response = row["response"]
    usage, error = _mapping(response.get("usage")), _mapping(response.get("error"))
    sources = [_mapping(source) for source in response.get("sources") or () if isinstance(source, dict)]
    return {
        "run_id": _text(run_id),
        "case_id": _text(row["case_id"]),
        "repeat": row["repeat"],
        "category": _text(row["category"]),
        "tags": [_text(tag) for tag in row["tags"]],
        "weight": row["weight"],
        "status": row["status"],
        "passed": row["passed"],
        "message": _text(row["message"]),
        "question": _text(row["question"]),
        "answer": _text(row["answer"]),
        "references": [_text(text) for text in row["references"]],
        "expected": _text(json.dumps(row["expected"], ensure_ascii=False)) if row.get("expected") else None,
        "sources": [_text(str(entry.get("id") or entry.get("uri") or entry.get("title") or "")) for entry in sources],
        "error": _text(str(error["message"])) if error.get("message") else None,
        "latency_ms": row["latency_ms"],
        "started_at": _time(row.get("started_at")),
        "duration_ms": row.get("duration_ms"),
        **{name: _number(usage.get(name), kind) for name, kind in _USAGE.items()},
        **{column: row["scores"].get(metric, {}).get("value") for metric, column in metrics.items()},
    }


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: object, kind: str) -> float | int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) >= 1 << 63:
        return None
    return int(value) if kind == "int64" else value


def _time(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


@overload
def _text(text: str) -> str: ...
@overload
def _text(text: None) -> None: ...
def _text(text: str | None) -> str | None:
    """Return a text that UTF-8 can hold: half a character becomes a question mark; None stays."""
    return text if text is None or text.isascii() else text.encode("utf-8", "replace").decode()
