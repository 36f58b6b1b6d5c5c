"""results.json: the whole document."""

from __future__ import annotations

import hashlib
from typing import IO, TYPE_CHECKING, Any

from assay.reports.document.document import row_document
from assay.text.unsafe_text import json_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from assay.model.run import RowResult
    from assay.reports.document.report import Report
    from assay.reports.folder import ReportFolder


def write(report: Report, folder: ReportFolder, options: Mapping[str, Any]) -> None:
    """Write results.json, row by row."""
    del options
    with folder.binary("results.json") as file:
        file.writelines(_parts(report))


def write_document(report: Report, file: IO[str]) -> None:
    """Write the document of a report: one row a line, so that readers need not hold all of them."""
    for part in _parts(report):
        file.write(part.decode())


def _parts(report: Report) -> Iterator[bytes]:
    digest = hashlib.sha256()
    for part in _content(report):
        digest.update(part)
        yield part
    yield f' "digest": "sha256:{digest.hexdigest()}"\n}}\n'.encode()


def _content(report: Report) -> Iterator[bytes]:
    """Yield the document up to its digest."""
    head = json_text(report.head, indent=1)
    yield (head.removesuffix("\n}") + ',\n "rows": [').encode()
    separator = b"\n  "
    for line in report.encoded_lines():
        yield separator + line
        separator = b",\n  "
    yield b"\n ],\n"


async def write_rows(file: IO[str], rows: AsyncIterator[RowResult]) -> None:
    """Write the documents of rows that come one after the other, with commas between them."""
    separator = "\n  "
    async for row in rows:
        file.write(separator + json_text(row_document(row)))
        separator = ",\n  "
