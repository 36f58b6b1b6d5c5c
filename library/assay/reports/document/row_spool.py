"""Texts of rows on disk, stored in the order in which the rows end and read in the order of the dataset."""

from __future__ import annotations

import os
import struct
import tempfile
from array import array
from typing import IO, TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

_LENGTHS = struct.Struct("<II")
_START_BYTES = array("q").itemsize


class RowSpool:
    """Stores two texts for each row in a file without a name, which even a killed process does not leave behind.

    Memory holds 8 bytes per row.

    Args:
        folder: Folder of the file.

    Raises:
        OSError: The file cannot be created.
    """

    def __init__(self, folder: Path) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile("w+b", dir=folder)  # noqa: SIM115 - closed by `close`
        self._starts = array("q")  # by place: where the row's record starts, plus one; 0 without a row
        self._end = 0
        self.count = 0
        """The number of rows."""
        self.second_size = 0
        """The size of all second texts, in bytes."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close and remove the file."""
        self._file.close()

    def put(self, place: int, first: str, second: str = "") -> None:
        """Store the texts of a row.

        Args:
            place: Position of the row among all rows; nothing is stored there yet.
            first: First text.
            second: Second text.

        Raises:
            OSError: The disk is full.
        """
        missing = place + 1 - len(self._starts)
        if missing > 0:
            self._starts.frombytes(bytes(_START_BYTES * missing))
        one, two = first.encode("utf-8", "surrogatepass"), second.encode("utf-8", "surrogatepass")
        self._file.write(_LENGTHS.pack(len(one), len(two)) + one + two)
        self._starts[place] = self._end + 1
        self._end += _LENGTHS.size + len(one) + len(two)
        self.second_size += len(two)
        self.count += 1

    def has(self, place: int) -> bool:
        """Return whether the row at a place is stored."""
        return place < len(self._starts) and self._starts[place] != 0

    def flush(self) -> None:
        """Make the stored rows readable.

        Raises:
            OSError: The disk is full.
        """
        self._file.flush()

    def first_text(self, place: int) -> bytes:
        """Return the first text of a stored row."""
        self.flush()
        return self._read(place, is_second=False)

    def first_texts(self) -> Iterator[bytes]:
        """Yield the first text of each row, by place."""
        return self._texts(is_second=False)

    def second_texts(self) -> Iterator[bytes]:
        """Yield the second text of each row, by place."""
        return self._texts(is_second=True)

    def _texts(self, *, is_second: bool) -> Iterator[bytes]:
        self.flush()
        for place, start in enumerate(self._starts):
            if start:
                yield self._read(place, is_second=is_second)

    def _read(self, place: int, *, is_second: bool) -> bytes:
        start, number = self._starts[place] - 1, self._file.fileno()
        one, two = _LENGTHS.unpack(os.pread(number, _LENGTHS.size, start))
        start += _LENGTHS.size
        return os.pread(number, two, start + one) if is_second else os.pread(number, one, start)
