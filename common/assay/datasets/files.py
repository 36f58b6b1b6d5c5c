"""Opening a dataset's file: compression, encoding, and what is no dataset at all."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, BinaryIO, cast

from assay.datasets.records import BadFileError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["open_utf8", "suffix_of"]

_GZIP = b"\x1f\x8b"
_PARQUET = b"PAR1"
_LFS = b"version https://git-lfs.github.com/spec/"
_MAX_UNPACKED_BYTES = 64 * 1024**3
_MAX_RATIO = 1100  # what deflate can reach on anything is about 1030


def suffix_of(path: Path) -> str:
    """Return the suffix that names the format, lower case, without .gz."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


@contextmanager
def open_utf8(path: Path, encoding: str | None) -> Iterator[BinaryIO]:
    """Open a file as UTF-8 bytes without a byte order mark, whatever it is stored as.

    Args:
        path: The file, which may be compressed with gzip.
        encoding: Its encoding; None means UTF-8, or what its byte order mark says.

    Raises:
        BadFileError: It cannot be opened, or is no text.
    """
    try:
        with path.open("rb") as raw:
            head = raw.read(4)
            raw.seek(0)
            if head.startswith(_GZIP):
                with gzip.open(raw, "rb") as unpacked:
                    yield _decoded(cast("BinaryIO", io.BufferedReader(cast("io.RawIOBase", unpacked))), encoding)
            else:
                yield _decoded(raw, encoding)
    except FileNotFoundError:
        raise BadFileError("there is no such file: check the name") from None
    except IsADirectoryError:
        raise BadFileError("is a folder: name one file in it") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadFileError(f"is damaged: its compression is broken or cut off ({error})") from None
    except OSError as error:
        raise BadFileError(f"cannot be read: {error.strerror or error}") from None


def _decoded(stream: BinaryIO, encoding: str | None) -> BinaryIO:
    buffered = stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(cast("io.RawIOBase", stream))
    head = buffered.peek(64)[:64]
    if head.startswith(_LFS):
        raise BadFileError("is a Git LFS pointer, not the dataset: run `git lfs pull`")
    if head.startswith(_PARQUET):
        raise BadFileError("is a parquet file, which this version does not read: export it as JSONL or CSV")
    if encoding is None:
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            encoding = "utf-16"
        elif head.startswith(codecs.BOM_UTF8):
            buffered.read(len(codecs.BOM_UTF8))
            return cast("BinaryIO", buffered)
        else:
            return cast("BinaryIO", buffered)
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise BadFileError(f"encoding {encoding!r} is not known: use a name such as utf-8 or cp1256") from None
    return cast("BinaryIO", io.BufferedReader(_Recoded(cast("IO[bytes]", buffered), encoding)))


class _Recoded(io.RawIOBase):
    """A text in any encoding, read as UTF-8 bytes."""

    def __init__(self, stream: IO[bytes], encoding: str) -> None:
        self._stream = stream
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._encoding = encoding
        self._pending = b""
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # typeshed's Buffer
        while not self._pending and not self._ended:
            chunk = self._stream.read(65536)
            self._ended = not chunk
            try:
                self._pending = self._decoder.decode(chunk, final=self._ended).encode()
            except UnicodeError as error:
                raise BadFileError(f"is not {self._encoding}: {error}") from None
        size = min(len(buffer), len(self._pending))
        buffer[:size] = self._pending[:size]
        self._pending = self._pending[size:]
        return size
