"""A dataset: checked in one streaming pass, read in another."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from assay.cases import Case, case_to_json
from assay.datasets.files import open_utf8, suffix_of
from assay.datasets.mapping import FieldMap, derive_id, foreign_format, map_record
from assay.datasets.readers import read_csv, read_json, read_jsonl, read_yaml, sniff_json
from assay.datasets.records import MAX_RECORD_BYTES, BadFileError, Record
from assay.errors import DatasetError, Problem

__all__ = ["Dataset", "DatasetInfo", "open_dataset", "records_dataset"]

_MAX_PROBLEMS = 50
_MAX_WARNINGS = 20
_MOJIBAKE = re.compile("â€|Ã[\u0080-\u00bf©]|Ø§|Ù\u0084")


@dataclasses.dataclass(frozen=True, slots=True)
class DatasetInfo:
    """What a dataset was recognised as.

    Args:
        name: The file's name.
        format: Shape and container, e.g. "prompt-benchmark/json".
        mapping: Canonical field to the dataset's own, as recognised.
        case_count: Cases.
        recorded_count: Cases with a recorded answer.
        reference_count: Cases with a reference that is not blank.
        sha256: Of the file's bytes; empty for cases given as objects.
        warnings: What is odd, but no reason to refuse.
    """

    name: str
    format: str
    mapping: Mapping[str, str]
    case_count: int
    recorded_count: int
    reference_count: int
    sha256: str
    warnings: tuple[Problem, ...]


class Dataset:
    """Cases from a file or from objects.

    Args:
        name: For people.
        file: As the user named it; empty where there is none.
        open_records: Returns the container's name and its records, from the beginning.
        field_map: The user's own mapping.
        limit: Only so many cases; None means all.
        digest: Returns the SHA-256 of the source.
    """

    def __init__(
        self,
        *,
        name: str,
        file: str,
        open_records: Callable[[], Iterator[tuple[str, Record]]],
        field_map: Mapping[str, str],
        limit: int | None,
        digest: Callable[[], str],
    ) -> None:
        self.name = name
        self._file = file
        self._open_records = open_records
        self._given_map = field_map
        self._limit = limit
        self._digest = digest
        self._info: DatasetInfo | None = None

    def check(self) -> DatasetInfo:
        """Read everything once and return what it is.

        Raises:
            DatasetError: Something is wrong; holds every problem, at most 50 of them.
        """
        if self._info is None:
            checker = _Checker(self._file)
            field_map = FieldMap(self._given_map)
            checker.problems += [Problem(message, "map") for message in field_map.problems()]
            container, shape = "", "plain"
            if not checker.problems:
                container, shape = checker.run(self._limited(), field_map)
            if checker.problems:
                raise DatasetError(checker.listed())
            self._info = DatasetInfo(
                name=self.name,
                format=f"{shape}/{container}",
                mapping=dict(field_map.seen),
                case_count=checker.count,
                recorded_count=checker.recorded,
                reference_count=checker.references,
                sha256=self._digest(),
                warnings=tuple(checker.warnings),
            )
        return self._info

    def cases(self) -> Iterator[Case]:
        """Yield the cases in order; the dataset is checked first."""
        self.check()
        field_map = FieldMap(self._given_map)
        ids = _DerivedIds()
        try:
            for _, record in self._limited():
                case, _ = map_record(record.data, field_map)
                if case is None:
                    raise DatasetError([Problem("has changed since it was checked: run again", file=self._file)])
                yield case if case.case_id else dataclasses.replace(case, case_id=ids.next(case))
        except BadFileError as error:
            raise DatasetError([Problem(error.message, file=self._file, line=error.line)]) from None

    def _limited(self) -> Iterator[tuple[str, Record]]:
        for index, found in enumerate(self._open_records()):
            if self._limit is not None and index >= self._limit:
                return
            yield found


class _DerivedIds:
    """Ids for cases that have none: equal cases get -2, -3, ..."""

    def __init__(self) -> None:
        self._counts: dict[bytes, int] = {}
        self._seen: set[int] = set()

    def next(self, case: Case) -> str:
        derived = derive_id(case)
        key = int(derived, 16)
        if key not in self._seen:
            self._seen.add(key)
            return derived
        packed = bytes.fromhex(derived)
        self._counts[packed] = self._counts.get(packed, 1) + 1
        return f"{derived}-{self._counts[packed]}"


class _Checker:
    """Gathers what one pass over a dataset finds."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self.count = self.recorded = self.references = 0
        self._more_problems = 0
        self._ids: set[int] = set()
        self._duplicates = 0

    def run(self, records: Iterable[tuple[str, Record]], field_map: FieldMap) -> tuple[str, str]:
        container, shape = "", "plain"
        try:
            for kind, record in records:
                container = kind
                if record.number == 1:
                    shape = _shape(record.data)
                    if foreign := foreign_format(record.data):
                        raise BadFileError(f"looks like {foreign} which this version does not read", record.line)
                self._add(record, field_map)
        except BadFileError as error:
            self.problems.append(Problem(error.message, file=self._file, line=error.line))
        if not self.problems and not self.count:
            self.problems.append(Problem("holds no cases", file=self._file))
        if self._duplicates:
            self._warn(f"{self._duplicates} cases equal earlier ones; their ids got -2, -3, ...", None)
        return container, shape

    def listed(self) -> list[Problem]:
        if not self._more_problems:
            return self.problems
        return [*self.problems, Problem(f"... and {self._more_problems} more problems", file=self._file)]

    def _add(self, record: Record, field_map: FieldMap) -> None:
        self.count += 1
        if record.warning:
            self._warn(f"record {record.number} {record.warning}", record.line)
        if record.problem:
            self._report(record, "", record.problem)
            return
        case, problems = map_record(record.data, field_map)
        for field, message in problems:
            self._report(record, field, message)
        if case is not None:
            self._add_case(case, record)

    def _add_case(self, case: Case, record: Record) -> None:
        self.recorded += case.recorded is not None
        self.references += any(text.strip() for text in case.references)
        key = case.case_id or derive_id(case)
        # Eight bytes stand for an id, so that a million cases fit in little memory.
        digest = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest())
        if digest in self._ids and case.case_id:
            self._report(record, "id", f"{case.case_id!r} is the id of an earlier case too: give each case its own")
        elif digest in self._ids:
            self._duplicates += 1
        self._ids.add(digest)
        size = len(case.input) + sum(map(len, case.references))
        if size > 10_000 and len(json.dumps(case_to_json(case))) > MAX_RECORD_BYTES:
            self._report(record, "", "is larger than 3 MiB")
        if not case.input.isascii() and _MOJIBAKE.search(case.input):
            self._warn(f"record {record.number} looks wrongly decoded: {case.input[:40]!r}", record.line)

    def _report(self, record: Record, field: str, message: str) -> None:
        if len(self.problems) >= _MAX_PROBLEMS:
            self._more_problems += 1
            return
        where = f"record {record.number}" + (f", {field}" if field else "")
        self.problems.append(Problem(message, where, self._file, record.line))

    def _warn(self, message: str, line: int | None) -> None:
        if len(self.warnings) < _MAX_WARNINGS:
            self.warnings.append(Problem(message, file=self._file, line=line))


def open_dataset(
    path: str | os.PathLike[str],
    *,
    field_map: Mapping[str, str] | None = None,
    encoding: str | None = None,
    limit: int | None = None,
) -> Dataset:
    """Return the dataset of a file; nothing is read before `check` or `cases`.

    Args:
        path: A JSON, JSON Lines, CSV, TSV or YAML file, which may be compressed with gzip.
        field_map: Canonical field to the dataset's own name for it.
        encoding: The file's encoding; None means UTF-8, or what its byte order mark says.
        limit: Only so many cases.
    """
    source = Path(path)
    return Dataset(
        name=source.name,
        file=os.fspath(path),
        open_records=lambda: _file_records(source, encoding),
        field_map=field_map or {},
        limit=limit,
        digest=lambda: _sha256(source),
    )


def records_dataset(
    records: Iterable[Mapping[str, Any]], name: str = "records", *, limit: int | None = None
) -> Dataset:
    """Return the dataset of some objects in memory, with the field names that a file may have."""
    kept = [dict(record) for record in records]
    return Dataset(
        name=name,
        file="",
        open_records=lambda: (("objects", Record(index, None, data)) for index, data in enumerate(kept, start=1)),
        field_map={},
        limit=limit,
        digest=lambda: "",
    )


def _file_records(path: Path, encoding: str | None) -> Iterator[tuple[str, Record]]:
    with open_utf8(path, encoding) as stream:
        buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(stream)  # type: ignore[type-var]
        suffix = suffix_of(path)
        if not buffered.peek(1):
            raise BadFileError("is empty")
        if suffix in (".csv", ".tsv"):
            for record in read_csv(buffered, tab=suffix == ".tsv"):
                yield suffix[1:], record
        elif suffix in (".yaml", ".yml"):
            for record in read_yaml(buffered):
                yield "yaml", record
        else:
            kind = "jsonl" if suffix in (".jsonl", ".ndjson") else sniff_json(buffered)
            records = read_jsonl(buffered) if kind == "jsonl" else read_json(buffered, kind)
            for record in records:
                yield ("jsonl" if kind == "jsonl" else "json"), record


def _shape(record: object) -> str:
    if isinstance(record, dict) and {"eval_id", "user_query"} <= set(record):
        return "prompt-benchmark"
    return "plain"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
