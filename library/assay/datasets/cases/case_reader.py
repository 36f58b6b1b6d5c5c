"""A pass over a dataset: detect the format, turn records into cases, assign ids."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from assay.datasets.cases.case_turns import two_faced
from assay.datasets.cases.expectations import is_skipped
from assay.datasets.cases.identity import CaseIds, content_of, derive_id, derive_plain_id, plain_content
from assay.datasets.cases.mapping import build_case, plain_case, plain_texts
from assay.datasets.diagnostics import looks_damaged
from assay.datasets.fields.aliases import FieldMap
from assay.datasets.fields.likely_fields import without_question
from assay.datasets.foreign import FORMATS, Setting, doubt, find_format, shape_of
from assay.datasets.readers.json_reader import no_list
from assay.datasets.records import MAX_RAW_CHARS, BadFileError, BadRecordError, Record, find_unusable, shown
from assay.datasets.unused_fields import OptionalFields
from assay.datasets.values.field_values import Findings

if TYPE_CHECKING:
    from assay.datasets.diagnostics import Diagnostics
    from assay.datasets.fields.aliases import Layout
    from assay.datasets.foreign import Convert, Format
    from assay.datasets.readers.detection import Container
    from assay.datasets.readers.sources import Source
    from assay.datasets.selection import Selector
    from assay.model.case import Case

_HEAD_RECORDS = 50
_HEAD_CHARS = 4 * 1024 * 1024


class CaseReader:
    """A pass over a dataset.

    Args:
        source: The source of the records.
        field_map: The map from fields to their contents.
        diagnostics: Collects problems and warnings.
        limit: Maximum number of records, not counting skipped ones; None for all.
        format_name: The format, one of `assay.datasets.FORMAT_NAMES`; None to detect it.
        selector: Selects the cases; None for all.
    """

    def __init__(
        self,
        source: Source,
        field_map: FieldMap,
        diagnostics: Diagnostics,
        limit: int | None,
        format_name: str | None = None,
        selector: Selector | None = None,
    ) -> None:
        self._source = source
        self._field_map = field_map
        self._limit = limit
        self._selector = selector
        self._ids = CaseIds()
        self._contents = CaseIds()
        self._from_cells = False
        self._place_is_line = False
        self._format_name = format_name
        self._format: Format | None = None
        self._convert: Convert | None = None
        self.diagnostics = diagnostics
        self.optional_fields = OptionalFields()
        self.container = "objects"
        self.shape = "plain"
        self.count = 0
        self.unread_count: int | None = 0  # records after the limit; None if the file breaks off there
        self.skipped_count = 0
        self.copy_count = 0
        self.first_copy = ""
        self.recorded_count = 0
        self.reference_count = 0
        self.sources_count = 0
        self.tools_count = 0
        self.approvals_count = 0
        self.textless_count = 0

    def cases(self) -> Iterator[Case]:
        """Yield the valid cases.

        Raises:
            BadFileError: The rest of the file cannot be read.
        """
        for record in self._records():
            case = self._case(record)
            if case is not None and (self._selector is None or self._selector.takes(case)):
                self._count(case, record)
                yield case

    def survey(self, take: Callable[[Case], None] | None = None) -> None:
        """Find and count the same as `cases`, and the copies among them.

        Args:
            take: Receives each case until the first problem; None if nothing needs the cases, which saves building
                those of plain records.

        Raises:
            BadFileError: The rest of the file cannot be read.
        """
        for record in self._records(counts_unread=True):
            if self._selector is not None or not self._survey_plain(record, take):
                case = self._case(record)
                if case is not None and (self._selector is None or self._selector.takes(case)):
                    self._count(case, record)
                    self._note_copy(content_of(case), record)
                    if take is not None and not self.diagnostics.problem_count:
                        take(case)

    def _note_copy(self, content: str, record: Record) -> None:
        """Record the case's content; a case that equals an earlier one is a copy."""
        place = record.line if self._place_is_line and record.line else record.number
        before = self._contents.take(content, place)
        if before is not None:
            noun = "line" if self._place_is_line else "record"
            self.first_copy = self.first_copy or f"{noun} {place} repeats {noun} {before}"
            self.copy_count += 1

    def _records(self, *, counts_unread: bool = False) -> Iterator[Record]:
        container, records = self._source.open()
        is_table = self._source.is_table
        if container is not None:
            self.container = container.name
            is_table = container.is_table
            self._place_is_line = container.kind not in ("json", "parquet")
        self._from_cells = is_table
        unread = records
        head = _head(records, self._limit)
        self._choose_format(head)
        if self._format is not None:
            self._prepare(self._format, container)
            if self._format.gathered is not None:
                unread = records = self._format.gathered(itertools.chain(head, records))
                head = _head(records, self._limit)
            if any(isinstance(record.data, Mapping) and self._format.is_part(record.data) for record in head):
                head, records = [self._joined(self._format, itertools.chain(head, records))], iter(())
            else:
                head, records = list(map(self._converted, head)), map(self._converted, records)
        self._learn(head, container)
        for seen, record in enumerate(itertools.chain(head, records), start=1):
            yield record
            if seen - self.skipped_count == self._limit:
                self.unread_count = self._unread_count(unread) if counts_unread else None
                break

    def _unread_count(self, records: Iterator[Record]) -> int | None:
        """Return the number of unchecked cases after the limit; None if the file breaks off."""
        count = 0
        try:
            for record in records:
                if self._format is None and isinstance(record.data, dict):
                    layout = self._field_map.layout(record.data)
                    count -= "skip" in layout.sources and is_skipped(record.data, layout, [])
                count += 1
        except BadFileError:
            return None
        return count

    def _count(self, case: Case, record: Record) -> None:
        self.optional_fields.take(case, record)
        self.count += 1
        self.recorded_count += case.recorded is not None
        self.reference_count += any(text and not text.isspace() for turn in case.turns for text in turn.references)
        self.sources_count += any(turn.expected_sources for turn in case.turns)
        self.tools_count += any(turn.expected_tools for turn in case.turns)
        self.approvals_count += bool(case.approvals)
        self.textless_count += bool(case.variables) and not all(turn.input for turn in case.turns)

    def _survey_plain(self, record: Record, take: Callable[[Case], None] | None) -> bool:
        """Survey a record by the short cut; return whether that was possible."""
        data = record.data
        if record.suspect or type(data) is not dict:
            return False
        layout = self._field_map.layout(data)
        texts = plain_texts(record, layout, from_cells=self._from_cells)
        if texts is None:
            return False
        text, reference, case_id, category = texts
        if looks_damaged(f"{text}\n{reference}"):
            return False
        place = record.line if self._place_is_line and record.line else record.number
        if not case_id:
            case_id = self._derive_id(derive_plain_id(text), place, record)
        elif (before := self._ids.take(case_id, place)) is not None:
            self._report_id(case_id, before, record, layout)
            return True
        self.count += 1
        self._note_copy(plain_content(text, reference or ""), record)
        if reference and not reference.isspace():
            self.reference_count += 1
        if take is not None and not self.diagnostics.problem_count:
            take(plain_case((text, reference, case_id, category), record, layout))
        return True

    def _choose_format(self, head: list[Record]) -> None:
        """Determine the file's format: the user's choice, or the one that the first records match."""
        if self._format_name is not None:
            self._format = next((candidate for candidate in FORMATS if candidate.name == self._format_name), None)
            self.shape = self._format_name
            return
        self._format = find_format(head, set(self._field_map.user_map.values()), self._source.name)
        if self._format is not None:
            self.shape = self._format.name
        else:
            if self.container.startswith("json") and not self._field_map.user_map and (odd := doubt(head)):
                self.diagnostics.warn("doubt", odd)
            self.shape = next((shape_of(record.data) for record in head if isinstance(record.data, dict)), "plain")

    def _prepare(self, chosen: Format, container: Container | None) -> None:
        """Prepare to convert records of a format into plain ones."""
        top: dict[str, Any] = {}
        if chosen.reads_top and container is not None and container.kind in ("json", "yaml"):
            # Data shared by all records may follow them in the file.
            whole, records = self._source.open()
            for _ in records:
                pass
            top = whole.top if whole is not None else top
            if problem := find_unusable(top):
                raise BadFileError(f"{problem}, in the data beside its cases")
        setting = Setting(
            top,
            self._field_map.user_map,
            self._from_cells,
            container is not None and container.kind in ("csv", "tsv"),
            lambda text: self.diagnostics.warn("unread", text),
        )
        self._convert = chosen.prepare(setting)
        self._from_cells = False
        self._field_map.take_canonical(chosen.fields)

    def _learn(self, head: list[Record], container: Container | None) -> None:
        """Learn from the first records what the fields contain."""
        mappings = [(record, record.data) for record in head if isinstance(record.data, dict)]
        if not mappings:
            return
        first, _ = mappings[0]
        self._field_map.learn([data for _, data in mappings])
        for name in self._field_map.unnamed:
            self.diagnostics.warn("unnamed", f"has a column without a name, which is kept as metadata: {name}")
        layouts = [self._field_map.layout(data) for _, data in mappings]
        if not any(layout.sources.keys() & {"input", "turns", "variables"} for layout in layouts):
            if container is not None and container.top and len(head) == 1:
                raise no_list(container.top, first.line)
            raise BadFileError(without_question(self._field_map, [data for _, data in mappings]), first.line)

    def _converted(self, record: Record) -> Record:
        """Return the plain record for a record in another tool's format."""
        assert self._convert is not None, "only files in another tool's format are converted"
        if not isinstance(record.data, Mapping):
            return record
        if record.suspect and (problem := find_unusable(record.data)):
            return record._replace(data=None, problem=problem)
        if self._format is not None and self._format.oddity is not None and (odd := self._format.oddity(record.data)):
            self.diagnostics.warn(odd, odd, record=record)
        try:
            return record._replace(data=self._convert(record.data))
        except BadRecordError as error:
            return record._replace(data=None, problem=error.message, field=error.field)

    def _joined(self, chosen: Format, records: Iterator[Record]) -> Record:
        """Return the plain record of a file whose records together form a case."""
        assert chosen.joined is not None, "only formats that have parts join them"
        parts: list[Record] = []
        size = 0
        for record in records:
            parts.append(record)
            size += record.size
            if record.problem or not isinstance(record.data, Mapping):
                return record  # the exception already names the problem
            if record.suspect and (unusable := find_unusable(record.data)):
                return record._replace(data=None, problem=unusable)
            if size > MAX_RAW_CHARS:
                raise BadFileError(f"is one conversation larger than {MAX_RAW_CHARS // 1024**2} MiB", record.line)
        whole = parts[0]._replace(size=size, suspect=any(part.suspect for part in parts))
        try:
            return whole._replace(data=chosen.joined([part.data for part in parts], _stem(self._source.name)))
        except BadRecordError as problem:
            for part in parts:
                if (own := _problem_of(chosen, part)) is not None:
                    return part._replace(data=None, problem=own.message, field=own.field)
            return whole._replace(data=None, problem=problem.message, field=problem.field)

    def _case(self, record: Record) -> Case | None:
        diagnostics = self.diagnostics
        if record.problem:
            diagnostics.report(record.problem, record=record, name=record.field)
            return None
        if not isinstance(record.data, dict):
            diagnostics.report(f"must be an object with named fields, not {shown(record.data)}", record=record)
            return None
        layout = self._field_map.layout(record.data)
        findings = Findings()
        trouble = findings.trouble
        if "skip" in layout.sources and is_skipped(record.data, layout, trouble):
            self.skipped_count += 1
            return None
        case = None if trouble else build_case(record, layout, from_cells=self._from_cells, findings=findings)
        if case is not None and layout.answers and (problem := two_faced(layout, record.data)):
            trouble.append(problem)
        if case is None or trouble:
            for name, message in trouble:
                diagnostics.report(message, record=record, name=name)
            return None
        for kind, name, message in findings.odd:
            diagnostics.warn(kind, message, record=record, name=name)
        diagnostics.look_at(case, layout, record)
        return self._with_id(case, record, layout)

    def _with_id(self, case: Case, record: Record, layout: Layout) -> Case | None:
        place = record.line if self._place_is_line and record.line else record.number
        if not case.case_id:
            return replace(case, case_id=self._derive_id(derive_id(case), place, record))
        before = self._ids.take(case.case_id, place)
        if before is None:
            return case
        self._report_id(case.case_id, before, record, layout)
        return None

    def _derive_id(self, base: str, place: int, record: Record) -> str:
        case_id, first = self._ids.derive(base, place)
        if first:
            noun = "line" if self._place_is_line else "record"
            self.diagnostics.warn(
                "equal",
                f"repeats {noun} {first:,}, and counts as a case of its own (id {case_id})",
                record=record,
                many=f"repeats {noun} {first:,}; {{count}} such records count as cases of their own (their ids end in "
                "-2, -3, ...)",
            )
        return case_id

    def _report_id(self, case_id: str, before: int, record: Record, layout: Layout) -> None:
        noun = "line" if self._place_is_line else "record"
        self.diagnostics.report(
            f"{shown(case_id)} is the id of {noun} {before} too: give every case an id of its own, or derive "
            'ids with `map: {id: ""}`',
            record=record,
            name=layout.sources.get("id", ("id",))[0],
        )


def _problem_of(chosen: Format, part: Record) -> BadRecordError | None:
    """Return why a record cannot be a part of a case, as reported for the record itself; None if it can."""
    assert chosen.joined is not None, "only formats that have parts join them"
    try:
        chosen.joined([part.data], "")
    except BadRecordError as problem:
        return BadRecordError(problem.message, problem.field.removeprefix("[0]").lstrip("."))
    return None


def _stem(name: str) -> str:
    """Return a file's name without its suffixes, e.g. "lamps" for "lamps.test.json"."""
    return name.split(".")[0] or name


def _head(records: Iterator[Record], limit: int | None) -> list[Record]:
    head: list[Record] = []
    size = 0
    for record in records:
        head.append(record)
        size += record.size
        if len(head) in (_HEAD_RECORDS, limit) or size > _HEAD_CHARS:
            break
    return head
