"""One pass over a dataset: records recognised, turned into cases, given ids."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from assay.datasets.fields import FieldMap, is_blank
from assay.datasets.formats import foreign_format, shape_of
from assay.datasets.identity import CaseIds
from assay.datasets.json_reader import folded, no_list
from assay.datasets.mapping import Trouble, build_case
from assay.datasets.records import BadFileError, Record, shown

if TYPE_CHECKING:
    from assay.cases import Case
    from assay.datasets.findings import Findings
    from assay.datasets.readers import Container
    from assay.datasets.sources import Source

__all__ = ["Reading"]

_HEAD_RECORDS = 50
_HEAD_CHARS = 4 * 1024 * 1024


class Reading:
    """One pass over a dataset.

    Args:
        source: Where the records come from.
        field_map: Which field holds what.
        findings: Takes problems and warnings.
        limit: Only so many records; None means all.
    """

    def __init__(self, source: Source, field_map: FieldMap, findings: Findings, limit: int | None) -> None:
        self._source = source
        self._field_map = field_map
        self._limit = limit
        self._ids = CaseIds()
        self._from_cells = False
        self._place_is_line = False
        self.findings = findings
        self.count = 0
        self.container = "objects"
        self.shape = "plain"

    def cases(self) -> Iterator[tuple[Case, Record]]:
        """Yield the cases that are right, with the records they came from.

        Raises:
            BadFileError: Reading cannot go on.
        """
        container, records = self._source.open()
        if container is not None:
            self.container = container.name
            self._from_cells = container.kind in ("csv", "tsv")
            self._place_is_line = container.kind != "json"
        records = itertools.islice(records, self._limit)
        head = _head(records)
        self._recognise(head, container)
        for record in itertools.chain(head, records):
            self.count += 1
            case = self._case(record)
            if case is not None:
                yield case, record

    def _recognise(self, head: list[Record], container: Container | None) -> None:
        """Settle what the fields are, by the first records."""
        mappings = [(record, record.data) for record in head if isinstance(record.data, dict)]
        for record, data in mappings:
            if foreign := foreign_format(data, self._field_map.given.values()):
                raise BadFileError(
                    f"looks like {foreign}, which this version does not read: it reads lists of cases with fields "
                    "such as question and reference_answer; if these are such cases, say with `map:` what holds what",
                    record.line,
                )
        if not mappings:
            return
        first, data = mappings[0]
        self.shape = shape_of(data)
        self._field_map.learn([data for _, data in mappings])
        layouts = [self._field_map.layout(data) for _, data in mappings]
        if not any(layout.sources.keys() & {"input", "turns", "variables"} for layout in layouts):
            if container is not None and container.top and len(head) == 1:
                raise no_list(container.top, first.line)
            fields = dict.fromkeys(name for _, data in mappings for name in data)
            raise BadFileError(self._field_map.without_input(fields), first.line)

    def _case(self, record: Record) -> Case | None:
        findings = self.findings
        if record.warning:
            findings.warn("twice", record.warning, record=record)
        if record.problem:
            findings.report(record.problem, record=record)
            return None
        if not isinstance(record.data, dict):
            findings.report(f"must be an object with named fields, not {shown(record.data)}", record=record)
            return None
        layout = self._field_map.layout(record.data)
        trouble: Trouble = []
        case = build_case(record, layout, from_cells=self._from_cells, trouble=trouble)
        if case is None:
            for name, message in trouble:
                findings.report(message, record=record, name=name)
            return None
        if "references" in layout.choices:
            self._look_at_answer(record, layout.sources["references"])
        findings.look_at(case, layout, record)
        return self._with_id(case, record, layout.sources.get("id", ("id",))[0])

    def _look_at_answer(self, record: Record, references: tuple[str, ...]) -> None:
        if folded(references[-1]) == "answer":
            held = [name for name in references if not is_blank(record.data[name])]
            if len(held) > 1 and held[-1] == references[-1]:
                self.findings.report(
                    f"stands beside {shown(held[0])}, as in no earlier record: say what it is, with "
                    "`map: {recorded: answer}` or `map: {references: answer}`",
                    record=record,
                    name=held[-1],
                )

    def _with_id(self, case: Case, record: Record, source: str) -> Case:
        place = record.line if self._place_is_line and record.line else record.number
        if not case.case_id:
            case_id, is_equal = self._ids.derive(case, place)
            if is_equal:
                self.findings.warn("equal", "equals an earlier record: its id ends in -2, -3, ...", record=record)
            return replace(case, case_id=case_id)
        before = self._ids.take(case.case_id, place)
        if before is not None:
            what = "line" if self._place_is_line else "record"
            self.findings.report(
                f"{shown(case.case_id)} is the id of {what} {before} too: give every case an id of its own, or derive "
                'ids with `map: {id: ""}`',
                record=record,
                name=source,
            )
        return case


def _head(records: Iterator[Record]) -> list[Record]:
    head: list[Record] = []
    size = 0
    for record in records:
        head.append(record)
        size += record.size
        if len(head) == _HEAD_RECORDS or size > _HEAD_CHARS:
            break
    return head
