"""Sources of a dataset's records: a file, or objects in memory."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from assay.datasets.readers.detection import Container, recognise_container
from assay.datasets.readers.jsonl_reader import parse_line
from assay.datasets.readers.python_values import is_table, plain_record, table_rows
from assay.datasets.records import BadFileError, JsonText, Record
from assay.parsing.names import writable

if TYPE_CHECKING:
    from pathlib import Path

Signature = tuple[int, ...]
"""A value that changes whenever the file does."""


class Source(Protocol):
    """A source of records."""

    @property
    def path(self) -> Path | None:
        """The file; None for objects."""

    @property
    def file(self) -> str:
        """The file as the user named it; empty for objects."""

    @property
    def name(self) -> str:
        """The display name."""

    @property
    def is_table(self) -> bool:
        """Whether objects in memory are table rows; for a file, the container's kind decides."""

    def open(self) -> tuple[Container | None, Iterator[Record]]:
        """Return the container, None for objects, and the records from the beginning."""

    def signature(self) -> Signature:
        """Return a value that changes whenever the source does."""

    def sha256(self) -> str:
        """Return the SHA-256 of the file's bytes; empty for objects."""


@dataclass(frozen=True, slots=True)
class FileSource:
    """A file of records.

    Args:
        path: The file.
        file: The name as the user gave it.
        encoding: The text's encoding; None to detect it.
        place: The absolute path, independent of later changes of the current folder.
    """

    path: Path
    file: str
    encoding: str | None
    place: Path

    @classmethod
    def of(cls, path: Path, file: str, encoding: str | None) -> FileSource:
        """Return a source for a file, resolved in the current folder."""
        return cls(path, file, encoding, path.absolute())

    @property
    def name(self) -> str:
        return writable(self.path.name)

    @property
    def is_table(self) -> bool:
        return False

    def open(self) -> tuple[Container | None, Iterator[Record]]:
        container = recognise_container(self.place, self.encoding)
        return container, container.records()

    def signature(self) -> Signature:
        try:
            status = self.place.stat()
        except (OSError, ValueError):
            return ()  # opening it will report why
        return status.st_size, status.st_mtime_ns, status.st_ino

    def sha256(self) -> str:
        try:
            with self.place.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise BadFileError(f"cannot be read: {error.strerror or error}") from None


@dataclass(frozen=True, slots=True)
class ObjectSource:
    """Objects in memory; `of` also accepts a data frame."""

    objects: tuple[Mapping[str, Any], ...]
    name: str
    is_table: bool = False
    path: None = None
    file: str = ""

    @classmethod
    def of(cls, data: Any, name: str) -> ObjectSource:
        """Return the objects of an iterable, or the rows of a data frame."""
        return cls(tuple(table_rows(data) if is_table(data) else data), name, is_table(data))

    def open(self) -> tuple[Container | None, Iterator[Record]]:
        text = JsonText()
        return None, (_object_record(text, number, data) for number, data in enumerate(self.objects, start=1))

    def signature(self) -> Signature:
        return ()

    def sha256(self) -> str:
        return ""


def _object_record(text: JsonText, number: int, data: object) -> Record:
    """Return the record of an object, read like an object in a file."""
    try:
        raw = json.dumps(plain_record(data) if isinstance(data, Mapping) else data, ensure_ascii=False)
    except ValueError as problem:
        message, name = problem.args if len(problem.args) == 2 else (str(problem), "")
        return Record(number, None, None, problem=message, field=name)
    except (TypeError, RecursionError) as error:
        return Record(number, None, None, problem=f"cannot be written as JSON: {error}")
    return parse_line(text, raw, number, 0)._replace(line=None, suspect=True)
