"""Detecting a file's kind: by name for CSV, TSV and YAML, by contents for JSON and JSON Lines."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from assay.datasets.readers.csv_reader import find_delimiter, read_csv
from assay.datasets.readers.files import find_codec, open_text, suffix_of
from assay.datasets.readers.json_reader import read_json
from assay.datasets.readers.jsonl_reader import is_json_lines, read_jsonl
from assay.datasets.readers.parquet_reader import is_parquet, read_parquet
from assay.datasets.readers.yaml_reader import read_yaml
from assay.datasets.records import BadFileError, Record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SUFFIXES = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".yaml", ".yml", ".parquet")
"""The suffixes of a dataset's name, before .gz."""

_WORKBOOKS = (".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers")
_HEAD_CHARS = 64 * 1024
_MAX_FIRST_LINE_CHARS = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Container:
    """A file of a known kind.

    Args:
        path: The file.
        kind: json, jsonl, csv, tsv, yaml or parquet.
        codec: Its encoding.
        delimiter: The cell separator of a CSV.
        top: The data beside the list of cases; filled while the records are read.
    """

    path: Path
    kind: str
    codec: str
    delimiter: str = ""
    top: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The kind for messages, e.g. "jsonl.gz"."""
        return self.kind + (".gz" if self.path.suffix.lower() == ".gz" else "")

    @property
    def is_table(self) -> bool:
        """Whether its records are table rows, whose cells hold lists as texts."""
        return self.kind in ("csv", "tsv", "parquet")

    def records(self) -> Iterator[Record]:
        """Yield the records from the beginning.

        Raises:
            BadFileError: Reading cannot continue.
        """
        if self.kind == "parquet":
            yield from read_parquet(self.path)
            return
        newline = "" if self.kind in ("csv", "tsv") else "\n"
        with open_text(self.path, self.codec, newline=newline) as stream:
            if self.kind in ("csv", "tsv"):
                yield from read_csv(stream, self.delimiter)
            elif self.kind == "yaml":
                yield from read_yaml(stream, self.top)
            elif self.kind == "jsonl":
                yield from read_jsonl(stream)
            else:
                yield from read_json(stream, self.top)


def recognise_container(path: Path, encoding: str | None) -> Container:
    """Return the container for a file's kind.

    Raises:
        BadFileError: The file cannot be read, or is not a dataset.
    """
    if is_parquet(path):
        return Container(path, "parquet", "")
    codec = find_codec(path, encoding)
    suffix = suffix_of(path)
    with open_text(path, codec, newline="") as stream:
        head = stream.read(_HEAD_CHARS)
        if not head.strip():
            head += stream.read(_MAX_FIRST_LINE_CHARS)
        if not head.strip():
            raise BadFileError("is empty: a dataset needs at least one case")
        if suffix in (".csv", ".tsv"):
            delimiter = "\t" if suffix == ".tsv" else find_delimiter(head)
            return Container(path, suffix[1:], codec, delimiter)
        if suffix in (".yaml", ".yml"):
            return Container(path, "yaml", codec)
        if "\n" not in head.lstrip():
            head += stream.read(_MAX_FIRST_LINE_CHARS)
    return Container(path, _json_kind(head.lstrip(), suffix), codec)


def _json_kind(head: str, suffix: str) -> str:
    if head.startswith("["):
        return "json"
    if suffix in (".jsonl", ".ndjson"):
        return "jsonl"
    if head.startswith("{"):
        return "jsonl" if is_json_lines(head) else "json"
    if suffix == ".json":
        return "json"
    if suffix in _WORKBOOKS:
        raise BadFileError("is a spreadsheet, which cannot be read: save the sheet as CSV (UTF-8) and use that file")
    raise BadFileError(f"has an unknown file type: rename it to end with {', '.join(SUFFIXES)} (or .gz)")
