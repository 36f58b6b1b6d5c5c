"""Parquet: one record per row, read in batches; needs pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.datasets.readers.python_values import plain_record
from assay.datasets.records import MAX_RAW_CHARS, BadFileError, Record
from assay.local_stack.install_hint import install_hint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MAGIC = b"PAR1"
_BATCH_ROWS = 256
_BATCH_BYTES = 64 * 1024 * 1024


def is_parquet(path: Path) -> bool:
    """Return whether a file starts like Parquet; False if it cannot be read."""
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except (OSError, ValueError):
        return False


def read_parquet(path: Path) -> Iterator[Record]:
    """Yield a record per row; a null is an absent field, and dates become texts.

    Raises:
        BadFileError: The file is damaged, or pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise BadFileError(
            f"is a parquet file, and reading these needs pyarrow: {install_hint('parquet')}, or export it as JSONL "
            "or CSV"
        ) from None
    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for group, row_bytes in enumerate(_row_sizes(file.metadata)):
                count = max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, row_bytes)))
                for batch in file.iter_batches(batch_size=count, row_groups=[group]):
                    for row in batch.to_pylist():
                        number += 1
                        yield _record(number, row)
    except (pyarrow.ArrowException, OSError, UnicodeError) as error:
        reason = str(error).partition("\n")[0]
        raise BadFileError(f"is a parquet file that cannot be read ({reason}): write it again") from None


def _row_sizes(metadata: Any) -> list[int]:
    """Return the mean uncompressed size of a row in each row group, in bytes, from the file's footer.

    A few bytes may decompress to gigabytes, so sizes are checked before decompressing.

    Raises:
        BadFileError: Rows are larger than a case may be.
    """
    groups = [metadata.row_group(index) for index in range(metadata.num_row_groups)]
    sizes = [group.total_byte_size // max(1, group.num_rows) for group in groups]
    if max(sizes, default=0) > MAX_RAW_CHARS:
        raise BadFileError(
            f"holds rows of {max(sizes) // 1024**2} MiB, and a case may be 1 MiB: shorten them, or leave columns out"
        )
    return sizes


def _record(number: int, row: dict[str, Any]) -> Record:
    try:
        data = plain_record(row)
    except ValueError as problem:
        message, name = problem.args
        return Record(number, None, None, problem=message, field=name)
    return Record(number, None, data, len(repr(data)))
