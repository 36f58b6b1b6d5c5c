"""Recorded verdicts for a replay without a model: JSON lines with `key`, `judge` and `verdict`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from assay.errors import InvalidInputError, Problem, StorageError, first_problems

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_MOST_PROBLEMS = 20


class Recording:
    """The recorded verdicts of a file.

    Args:
        records: The records by key.
    """

    def __init__(self, records: Mapping[str, dict[str, Any]]) -> None:
        self._records = records
        self._judges = sorted({record["judge"] for record in records.values()})

    @classmethod
    def read(cls, path: Path) -> Recording:
        """Read a file.

        Raises:
            InvalidInputError: The file is invalid; lists all problems with their lines.
        """
        records: dict[str, dict[str, Any]] = {}
        problems: list[Problem] = []
        try:
            with path.open(encoding="utf-8-sig") as lines:
                for number, line in enumerate(lines, start=1):
                    if not line.strip():
                        continue
                    record = _record(line)
                    if record is None:
                        message = "is not a JSON object with the texts key and judge and the object verdict"
                        problems.append(Problem(message, file=str(path), line=number))
                    else:
                        records[record["key"]] = record
        except (OSError, UnicodeDecodeError) as error:
            problems.append(Problem(f"cannot be read: {error}", file=str(path)))
        if problems:
            raise InvalidInputError(first_problems(problems, _MOST_PROBLEMS), reason="INVALID_SETTINGS")
        return cls(records)

    @property
    def judges(self) -> list[str]:
        """The recorded judges, e.g. "openai:gpt-4o-mini"."""
        return self._judges

    def find(self, key: str) -> dict[str, Any] | None:
        """Return the record of a verdict."""
        return self._records.get(key)


def append_record(path: Path, record: Mapping[str, Any]) -> None:
    """Append a verdict to a file.

    Raises:
        StorageError: The file cannot be written.
    """
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n")
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error}") from None


def _record(line: str) -> dict[str, Any] | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("verdict"), dict):
        return None
    texts = all(isinstance(record.get(name), str) and record[name] for name in ("key", "judge"))
    return record if texts else None
