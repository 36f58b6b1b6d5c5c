"""Datasets, read and checked in one streaming pass."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.datasets.cases.case_reader import CaseReader
from assay.datasets.choices import FORMAT_NAMES, ON_BAD_CASE
from assay.datasets.diagnostics import Diagnostics
from assay.datasets.fields.aliases import FieldMap
from assay.datasets.readers.sources import FileSource, ObjectSource
from assay.datasets.records import BadFileError
from assay.datasets.selection import Selector
from assay.errors import DatasetError, Problem
from assay.model.run_spec import CaseSelection
from assay.parsing.names import unknown_name

if TYPE_CHECKING:
    from assay.datasets.readers.sources import Signature, Source
    from assay.datasets.unused_fields import OptionalField
    from assay.model.case import Case

_ALL = CaseSelection()


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """The properties of a dataset, determined by a pass over it.

    Args:
        path: The file; None for cases given as objects.
        name: The file's name, for display.
        format: Shape and container, e.g. "prompt-benchmark/json".
        mapping: The dataset's own field names as detected, by canonical field.
        case_count: Number of cases.
        recorded_count: Cases with a recorded answer.
        reference_count: Cases with a non-blank reference.
        sources_count: Cases with expected sources.
        tools_count: Cases with expected tool calls.
        approvals_count: Cases with approvals of their own.
        textless_count: Cases with variables instead of a question.
        sha256: Hash of the file's bytes; empty for cases given as objects.
        warnings: Oddities that do not refuse the dataset; at most one of each kind.
        skipped_count: Records whose field `skip` excludes them.
        left_out_count: Invalid records that were left out, if that is allowed.
        left_out: The first fifty problems of records that were left out.
        optional_fields: Fields of cases that only some metrics use.
        checks: Number of checks in the cases, by type.
        selection: The selection of cases, with counts; None for the whole dataset.
        copy_count: Cases that repeat an earlier one: equal question, variables, history, references and approvals.
        first_copy: The first such copy, e.g. "record 2 repeats record 1"; empty without one.
    """

    path: Path | None
    name: str
    format: str
    mapping: Mapping[str, str]
    case_count: int
    recorded_count: int
    reference_count: int
    sha256: str
    warnings: tuple[Problem, ...]
    skipped_count: int = 0
    left_out_count: int = 0
    left_out: tuple[Problem, ...] = ()
    optional_fields: tuple[OptionalField, ...] = ()
    checks: Mapping[str, int] = field(default_factory=dict)
    selection: CaseSelection | None = None
    copy_count: int = 0
    first_copy: str = ""
    sources_count: int = 0
    tools_count: int = 0
    approvals_count: int = 0
    textless_count: int = 0


class Dataset:
    """Cases from a file or from objects; nothing is read before `check` or `cases`.

    Args:
        source: The source of the records.
        field_map: The dataset's own field names, by canonical field.
        selection: The selection of cases; the rest is checked too, unless only the limit is set.
        failed_cases: The ids of the cases that failed in the run that `selection.failed_of` names.
        on_bad_case: "refuse" or "skip".
        format: The format; None to detect it from the records.
    """

    def __init__(
        self,
        source: Source,
        *,
        field_map: Mapping[str, str],
        selection: CaseSelection = _ALL,
        failed_cases: Collection[str] = (),
        on_bad_case: str = "refuse",
        format: str | None = None,  # noqa: A002
    ) -> None:
        self._source = source
        self._field_map = field_map
        self._selection = selection
        self._failed_cases = failed_cases
        self._on_bad_case = on_bad_case
        self._format = format
        self._info: DatasetInfo | None = None
        self._signature: Signature = ()

    @property
    def path(self) -> Path | None:
        """The file; None for cases given as objects."""
        return self._source.path

    @property
    def name(self) -> str:
        """The file's name."""
        return self._source.name

    def check(self, take: Callable[[Case], None] | None = None) -> DatasetInfo:
        """Read the whole dataset once and return its properties.

        Args:
            take: Receives each case while it is checked, in order, even if a later record turns out to be invalid;
                None if the properties are enough, which takes less time.

        Raises:
            DatasetError: The dataset is invalid; the error holds every problem, at most fifty.
        """
        if self._info is None:
            self._info = self._checked(take)
        elif take is not None:
            for case in self.cases():
                take(case)
        return self._info

    def __iter__(self) -> Iterator[Case]:
        """Yield the same as `cases`, starting from the first case each time."""
        return self.cases()

    def cases(self) -> Iterator[Case]:
        """Yield the cases in order; the dataset is checked first.

        Raises:
            DatasetError: The dataset is invalid, or the file changed after the check.
        """
        info = self.check()
        if self._source.signature() != self._signature:
            raise self._changed()
        reader = self._reader(FieldMap(self._field_map), self._diagnostics(), self._selector())
        try:
            for case in reader.cases():
                if reader.diagnostics.problem_count:
                    break
                yield case
        except BadFileError:
            raise self._changed() from None
        if reader.diagnostics.problem_count or reader.diagnostics.left_out_count != info.left_out_count:
            raise self._changed()

    def _selector(self) -> Selector | None:
        return Selector(self._selection, self._failed_cases) if self._selection.has_conditions else None

    def _reader(self, field_map: FieldMap, diagnostics: Diagnostics, selector: Selector | None) -> CaseReader:
        limit = self._selection.limit if selector is None else None
        return CaseReader(self._source, field_map, diagnostics, limit, self._format, selector)

    def _diagnostics(self) -> Diagnostics:
        return Diagnostics(self._source.file, leave_out=self._on_bad_case == "skip")

    def _changed(self) -> DatasetError:
        return DatasetError([Problem("has changed since it was checked: start again", file=self._source.file)])

    def _checked(self, take: Callable[[Case], None] | None) -> DatasetInfo:
        diagnostics = self._diagnostics()
        field_map = FieldMap(self._field_map)
        for message in field_map.problems():
            diagnostics.report(message, name="map")
        if self._selection.limit is not None and self._selection.limit < 1:
            diagnostics.report(f"the limit must be at least 1, not {self._selection.limit}")
        if self._on_bad_case not in ON_BAD_CASE:
            diagnostics.report(f"on_bad_case must be {' or '.join(ON_BAD_CASE)}, not {self._on_bad_case!r}")
        if self._format is not None and self._format not in FORMAT_NAMES:
            diagnostics.report(unknown_name("format", self._format, FORMAT_NAMES), name="format")
        if diagnostics.problem_count:
            raise diagnostics.error()
        selector = self._selector()
        reader = self._reader(field_map, diagnostics, selector)
        sha256 = ""
        try:
            self._signature = self._source.signature()
            reader.survey(take)
            for message in field_map.unused():
                diagnostics.report(message, name="map")
            sha256 = self._source.sha256()
            if self._source.signature() != self._signature:
                diagnostics.report("has changed while it was read: start again")
        except BadFileError as error:
            diagnostics.report(error.message, line=error.line)
        if not diagnostics.problem_count:
            for message in _missing(reader, selector):
                diagnostics.report(message)
        if diagnostics.problem_count:
            raise diagnostics.error()
        return self._info_of(reader, field_map, sha256, selector)

    def _info_of(self, reader: CaseReader, field_map: FieldMap, sha256: str, selector: Selector | None) -> DatasetInfo:
        diagnostics, file = reader.diagnostics, self._source.file
        warnings = list(diagnostics.warnings())
        if reader.skipped_count:
            warnings.append(Problem(f"{_records(reader.skipped_count)} skipped: `skip` is true", file=file))
        if diagnostics.left_out_count:
            message = (
                f"{_records(diagnostics.left_out_count)} wrong and left out: correct them, or read on with what is left"
            )
            warnings.append(Problem(message, file=file))
        if selector is not None and (odd := selector.warning()):
            warnings.append(Problem(odd, file=file))
        return DatasetInfo(
            path=self._source.path,
            name=self._source.name,
            format=f"{reader.shape}/{reader.container}",
            mapping=field_map.mapping(),
            case_count=reader.count,
            recorded_count=reader.recorded_count,
            reference_count=reader.reference_count,
            sources_count=reader.sources_count,
            tools_count=reader.tools_count,
            approvals_count=reader.approvals_count,
            textless_count=reader.textless_count,
            sha256=sha256,
            warnings=tuple(warnings),
            skipped_count=reader.skipped_count,
            left_out_count=diagnostics.left_out_count,
            left_out=diagnostics.left_out(),
            optional_fields=reader.optional_fields.found(),
            checks=dict(sorted(reader.optional_fields.checks.items())),
            selection=selector.counted() if selector is not None else self._cut_at_limit(reader),
            copy_count=reader.copy_count,
            first_copy=reader.first_copy,
        )

    def _cut_at_limit(self, reader: CaseReader) -> CaseSelection | None:
        """Return the limit and the number of cases it was applied to; None if it omits none."""
        unread = reader.unread_count
        if unread == 0:
            return None
        total = None if unread is None else reader.count + unread
        return replace(self._selection, matched_count=total, total_count=total)


def _records(count: int) -> str:
    return f"{count:,} record is" if count == 1 else f"{count:,} records are"


def _missing(reader: CaseReader, selector: Selector | None) -> list[str]:
    """Return why there are no cases to run, or fewer than requested."""
    if not (reader.count if selector is None else selector.total_count):
        return [_no_cases(reader)]
    return selector.problems() if selector is not None else []


def _no_cases(reader: CaseReader) -> str:
    if reader.diagnostics.left_out_count:
        return f"holds no case that can be read: {_records(reader.diagnostics.left_out_count)} wrong"
    if reader.skipped_count:
        return f"holds no cases: {_records(reader.skipped_count)} skipped, because `skip` is true"
    return "holds no cases: a dataset needs at least one"


def open_dataset(
    path: str | os.PathLike[str],
    *,
    field_map: Mapping[str, str] | None = None,
    encoding: str | None = None,
    selection: CaseSelection = _ALL,
    failed_cases: Collection[str] = (),
    on_bad_case: str = "refuse",
    format: str | None = None,  # noqa: A002
) -> Dataset:
    """Return the dataset of a file; nothing is read before `check` or `cases`.

    Args:
        path: A JSON, JSON Lines, CSV, TSV or YAML file, optionally compressed with gzip.
        field_map: The dataset's own field names, by canonical field; an empty name disables the field.
        encoding: The file's encoding; None for UTF-8, or the encoding of its byte order mark.
        selection: The selection of cases; with only a limit, cases after it are counted but not checked.
        failed_cases: The ids of the cases that failed in the run that `selection.failed_of` names.
        on_bad_case: "refuse" to reject the dataset for an invalid record, or "skip" to omit, count and list the record.
        format: The format, e.g. "deepeval" or "plain"; None to detect it from the records.
    """
    source = FileSource.of(Path(path), os.fspath(path), encoding)
    return Dataset(
        source,
        field_map=field_map or {},
        selection=selection,
        failed_cases=failed_cases,
        on_bad_case=on_bad_case,
        format=format,
    )


def records_dataset(
    records: Iterable[Any],
    name: str = "records",
    *,
    selection: CaseSelection = _ALL,
    failed_cases: Collection[str] = (),
    on_bad_case: str = "refuse",
    format: str | None = None,  # noqa: A002
) -> Dataset:
    """Return a dataset of objects in memory; field names may be the same as in files.

    Args:
        records: The objects, or a data frame of pandas, polars or pyarrow. Missing values (None, NaN, NaT) count as
            absent fields, numpy's numbers as numbers; dates, times and decimals become texts.
        name: The display name.
        selection: As for `open_dataset`.
        failed_cases: As for `open_dataset`.
        on_bad_case: As for `open_dataset`.
        format: As for `open_dataset`.
    """
    source = ObjectSource.of(records, name)
    return Dataset(
        source, field_map={}, selection=selection, failed_cases=failed_cases, on_bad_case=on_bad_case, format=format
    )
