"""Opening a dataset's file: compression, encoding, and refusing files that are not datasets."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO, TextIO

from assay.datasets.records import BadFileError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_GZIP = b"\x1f\x8b"
_EXPORT = "export it as JSONL or CSV"
_NO_DATASETS = {
    b"version https://git-lfs.github.com/spec/": "is a Git LFS pointer, not the dataset: run `git lfs pull`",
    b"PAR1": "is a parquet file inside gzip: unpack it",
    b"ORC": f"is an ORC file, which this version does not read: {_EXPORT}",
    b"ARROW1": f"is an Arrow file, which this version does not read: {_EXPORT}",
    b"SQLite format 3\0": f"is an SQLite database: {_EXPORT}",
    b"PK\x03\x04": "is a zip archive or an Excel workbook: unpack it, or save the sheet as CSV (UTF-8)",
    b"\xd0\xcf\x11\xe0": "is an old Excel workbook: save the sheet as CSV (UTF-8)",
    b"\x28\xb5\x2f\xfd": "is compressed with zstd: unpack it, or compress it with gzip",
    b"BZh": "is compressed with bzip2: unpack it, or compress it with gzip",
    b"\xfd7zXZ\0": "is compressed with xz: unpack it, or compress it with gzip",
    _GZIP: "is compressed with gzip twice: unpack it once",
}
_HTML = (b"<!doctype", b"<html")
_WHERE = "in the spec (`--encoding` where there is none)"
_BOMS = (
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose byte order mark is the beginning of this one
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
    (codecs.BOM_UTF8, "utf-8-sig"),
)
# These codecs decode to texts that no file in that encoding held, or do not decode files.
_NO_FILE_CODECS = ("idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape", "utf-7", "mbcs", "oem")
_BUFFER_BYTES = 256 * 1024
_RATIO_FREE_BYTES = 16 * 1024 * 1024
_MAX_RATIO = 200  # datasets shrink 3- to 30-fold; a bomb up to 1030-fold


def suffix_of(path: Path) -> str:
    """Return the suffix that determines the format, in lower case, without .gz."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] == ".gz":
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def find_codec(path: Path, encoding: str | None) -> str:
    """Return the codec of a file.

    Args:
        path: The file, optionally compressed with gzip.
        encoding: The user's encoding; None for UTF-8, or the encoding of the byte order mark.

    Raises:
        BadFileError: The file cannot be read, is not text, or has another encoding.
    """
    with _open_bytes(path) as stream:
        head = stream.read(4096)
    if not head:
        raise BadFileError("is empty: a dataset needs at least one case")
    for magic, message in _NO_DATASETS.items():
        if head.startswith(magic):
            raise BadFileError(message)
    if head.lstrip()[:9].lower().startswith(_HTML):
        raise BadFileError("is a web page, not a dataset: download the file itself")
    marked = next((codec for mark, codec in _BOMS if head.startswith(mark)), None)
    if encoding is not None:
        return _agreed(_known_codec(encoding), marked)
    if marked is None and b"\0" in head:
        likely = "utf-16-le" if head[1:2] == b"\0" else "utf-16-be"
        raise BadFileError(
            f"holds NUL bytes, so it is not UTF-8 text: if it is UTF-16, set `encoding: {likely}` {_WHERE}"
        )
    return marked or "utf-8"


def _known_codec(encoding: str) -> str:
    try:
        name = codecs.lookup(encoding).name
        io.TextIOWrapper(io.BytesIO(), name).detach()  # refuses codecs that are not for texts
    except (LookupError, ValueError, UnicodeError):
        name = ""
    if not name or name.replace("_", "-") in _NO_FILE_CODECS:
        raise BadFileError(f"encoding {encoding!r} is not known: use a name such as utf-8, utf-16, cp1252 or cp1256")
    return name


def _agreed(named: str, marked: str | None) -> str:
    if marked is None or named == marked:
        return named
    if named.replace("-", "").startswith(marked.removesuffix("-sig").replace("-", "")):
        return marked
    raise BadFileError(
        f"begins with the mark of {marked.removesuffix('-sig')}, but `encoding` says {named}: leave the encoding out"
    )


@contextmanager
def open_text(path: Path, codec: str, *, newline: str) -> Iterator[TextIO]:
    """Open a file, compressed or not, as text; read errors inside the block become BadFileError.

    Args:
        path: The file.
        codec: The codec from `find_codec`.
        newline: As for `open`: an empty text keeps all kinds of line ends, "\
            " accepts only that one.

    Raises:
        BadFileError: The file cannot be opened or read, or has another encoding.
    """
    try:
        with _open_bytes(path) as stream, io.TextIOWrapper(stream, codec, newline=newline) as text:
            yield text
    except UnicodeError:
        raise _wrongly_encoded(path, codec) from None


@contextmanager
def _open_bytes(path: Path) -> Iterator[BinaryIO]:
    try:
        if path.is_dir():
            raise BadFileError("is a folder: name one file in it")
        if path.exists() and not path.is_file():
            raise BadFileError("is not a regular file, and a dataset is read twice: save it to a file first")
        with path.open("rb", buffering=_BUFFER_BYTES) as raw:
            packed = raw.read(2) == _GZIP
            raw.seek(0)
            if packed:
                with io.BufferedReader(_Unpacked(raw), _BUFFER_BYTES) as unpacked:
                    yield unpacked
            elif path.suffix.lower() == ".gz" and raw.read(1):
                raise BadFileError("is named .gz but is not compressed with gzip: rename it, or compress it")
            else:
                yield raw
    except FileNotFoundError:
        raise BadFileError("there is no such file: check the name and the folder") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadFileError(f"is damaged, its gzip data is broken or cut off ({error}): copy it again") from None
    except OSError as error:
        raise BadFileError(f"cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        if isinstance(error, UnicodeError) or "null byte" not in str(error):
            raise
        raise BadFileError("cannot be opened: the name holds NUL") from None


class _Unpacked(io.RawIOBase):
    """The contents of a gzip file; a decompression bomb is refused."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._gzip = gzip.GzipFile(fileobj=raw, mode="rb")
        self._size_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # typeshed's Buffer
        count = self._gzip.readinto(buffer)
        self._size_bytes += count
        if self._size_bytes > _RATIO_FREE_BYTES and self._size_bytes > _MAX_RATIO * self._raw.tell():
            raise BadFileError(f"expands more than {_MAX_RATIO}-fold, which no dataset does: unpack it and look at it")
        return count

    def close(self) -> None:
        self._gzip.close()
        super().close()


def _wrongly_encoded(path: Path, codec: str) -> BadFileError:
    """Return the error that names the first byte outside the encoding."""
    name = codec.removesuffix("-sig")
    decoder = codecs.getincrementaldecoder(name)()
    before, line = 0, 1
    with _open_bytes(path) as stream:
        while True:
            chunk = stream.read(65536)
            try:
                decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                # Bytes that the decoder kept from earlier chunks come before this one.
                start = error.start - (len(error.object) - len(chunk))
                line += chunk[: max(start, 0)].count(b"\n")
                return _encoding_error(name, error.object[error.start], before + start, line)
            except UnicodeError as error:
                return BadFileError(f"is not {name}: {error}")
            if not chunk:
                return BadFileError(f"is not {name}: save it as UTF-8, or set `encoding` {_WHERE}")
            before += len(chunk)
            line += chunk.count(b"\n")


def _encoding_error(name: str, byte: int, offset: int, line: int) -> BadFileError:
    known_line = None if name.startswith(("utf-16", "utf-32")) else line
    return BadFileError(
        f"is not {name.upper()}: byte 0x{byte:02x} at offset {offset:,}; save the file as UTF-8, or set `encoding` "
        f"{_WHERE}, e.g. cp1256 (Arabic) or cp1252 (Western European)",
        known_line,
    )
