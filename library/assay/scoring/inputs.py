"""Datasets for scoring: records with an answer beside the fields of their case.

A record is read as any other dataset's, with three liberties: `answer` is the answer where no other field holds
one; fields of an answer may stand beside it; a record needs no question.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.datasets.dataset import Dataset
from assay.datasets.fields.aliases import names_of
from assay.datasets.fields.field_names import folded
from assay.datasets.foreign import is_foreign
from assay.datasets.readers.sources import FileSource, ObjectSource
from assay.datasets.unused_fields import unscored_turns
from assay.datasets.values.cells import json_in_cell
from assay.errors import DatasetError, Problem
from assay.model.answers.agent_response import AgentStatus

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from assay.datasets import DatasetInfo
    from assay.datasets.readers.detection import Container
    from assay.datasets.readers.sources import Signature, Source
    from assay.datasets.records import Record

BESIDE = ("sql", "data_rows", "tool_calls", "sources", "retrieved", "usage", "latency_ms", "status")
"""Fields of an answer that a record may have beside it."""

NO_QUESTION = "(no question)"
"""The question of a record that has none."""

_STATUSES = tuple(status.value for status in AgentStatus)
_RECORDED = ("recorded", "actual_output", "output", "response")
_QUESTION = ("input", "turns", "variables")


def answered_file(
    path: str | os.PathLike[str],
    *,
    field_map: Mapping[str, str] | None = None,
    encoding: str | None = None,
    shown_as: str | None = None,
    on_bad_case: str = "refuse",
) -> Dataset:
    """Return the dataset of a file whose records hold answers; nothing is read yet.

    Args:
        path: Any dataset file.
        shown_as: What messages call it; None for its path.
        field_map: Canonical field to the file's own name for it.
        encoding: The file's encoding; None means UTF-8, or what its byte order mark says.
        on_bad_case: As for `assay.datasets.open_dataset`.
    """
    import os

    source = FileSource.of(Path(path), shown_as or os.fspath(path), encoding)
    given = dict(field_map or {})
    return Dataset(_Answered(source, given), field_map=given, on_bad_case=on_bad_case)


def answered_records(records: Iterable[Mapping[str, Any]]) -> Dataset:
    """Return the dataset of objects that hold answers, or of a data frame's rows."""
    return Dataset(_Answered(ObjectSource.of(records, "rows"), {}), field_map={})


def check_answered(dataset: Dataset) -> DatasetInfo:
    """Read the dataset once and return its description.

    Raises:
        DatasetError: It is wrong, or records have no answer; holds every problem.
    """
    info = dataset.check()
    missing = info.case_count - info.recorded_count
    if missing:
        raise DatasetError(
            [
                Problem(
                    f"{missing} of {info.case_count} records have no answer to score: it belongs in `answer` (beside "
                    "a `reference`), `recorded`, `actual_output`, `output` or `response`; if another field holds it, "
                    "map `recorded` to that field",
                    file=str(info.path) if info.path is not None else "",
                )
            ]
        )
    warnings = unscored_turns(info.optional_fields, info.name)
    return replace(info, warnings=(*info.warnings, *warnings)) if warnings else info


@dataclass(frozen=True, slots=True)
class _Answered:
    """A source that turns its records into cases with recorded answers."""

    inner: Source
    given: Mapping[str, str]

    @property
    def path(self) -> Path | None:
        return self.inner.path

    @property
    def file(self) -> str:
        return self.inner.file

    @property
    def name(self) -> str:
        return self.inner.name

    def open(self) -> tuple[Container | None, Iterator[Record]]:
        container, records = self.inner.open()
        from_cells = self.is_table if container is None else container.is_table
        return container, (_ready(record, self.given, from_cells=from_cells) for record in records)

    @property
    def is_table(self) -> bool:
        return self.inner.is_table

    def signature(self) -> Signature:
        return self.inner.signature()

    def sha256(self) -> str:
        return self.inner.sha256()


def _ready(record: Record, given: Mapping[str, str], *, from_cells: bool) -> Record:
    if not isinstance(record.data, Mapping) or is_foreign(record.data, given.values()):
        return record
    data = dict(record.data)
    taken = set(given.values())
    names: dict[str, str] = {}
    for key in data:
        if isinstance(key, str) and key not in taken:
            names.setdefault(folded(key), key)
    _place_answer(data, names, given, from_cells=from_cells)
    mapped = {folded(name) for name in given}
    if mapped.isdisjoint(_QUESTION) and not any(name in names for field in _QUESTION for name in names_of(field)):
        data["input"] = NO_QUESTION
        if "id" not in mapped and not any(name in names for name in names_of("id")):
            data["id"] = f"row-{record.number}"
    return record._replace(data=data)


def _place_answer(data: dict[str, Any], names: dict[str, str], given: Mapping[str, str], *, from_cells: bool) -> None:
    """Move the answer, with its fields, to where recorded answers are read."""
    key = given.get("recorded")
    if key is None:
        key = next((names[name] for name in _RECORDED if name in names and data[names[name]] is not None), None)
        if key is None and "answer" in names:
            data["recorded"] = data.pop(names["answer"])
            key = "recorded"
    beside = {name: names[name] for name in BESIDE if name in names and _belongs(name, data[names[name]])}
    if not beside:
        return
    answer = data.get(key) if key else None
    if from_cells and isinstance(answer, str) and answer.lstrip().startswith("{"):
        answer = json_in_cell(answer)
    if answer is None or isinstance(answer, str | int | float):
        answer = {} if answer is None else {"text": answer}
    if not isinstance(answer, Mapping):
        return
    moved = {name: data.pop(own) for name, own in beside.items()}
    if from_cells:
        moved = {
            name: json_in_cell(value) if isinstance(value, str) and name not in ("sql", "status") else value
            for name, value in moved.items()
        }
    joined = {**moved, **answer}
    # A cell of this name holds an answer as JSON.
    data[key or "recorded"] = json.dumps(joined) if from_cells and folded(key or "recorded") == "recorded" else joined


def _belongs(name: str, value: object) -> bool:
    """Return whether a field beside the answer belongs to the answer; `status` may be a column of the user's."""
    return value is not None and (name != "status" or value in _STATUSES)
