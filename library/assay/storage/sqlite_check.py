"""Checks a SQLite file that its last process did not close, before it is changed.

SQLite reads its write-ahead log up to the first frame with a wrong checksum. Later commits are lost without an error;
they are counted here. The format is that of https://www.sqlite.org/fileformat2.html#walformat,
and of https://www.sqlite.org/walformat.html for the index beside it.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import struct
from typing import TYPE_CHECKING

from assay.errors import StorageError

if TYPE_CHECKING:
    from pathlib import Path

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">4I")
_FRAME_BYTES = 24
_MAGIC_LITTLE, _MAGIC_BIG = 0x377F0682, 0x377F0683
_INDEX_VERSION = 3007000
_LAST_FRAME_AT = 16
_MASK = 0xFFFFFFFF

_logger = logging.getLogger(__name__)


def log_of(path: Path) -> Path:
    """Return the path of a file's write-ahead log."""
    return path.with_name(path.name + "-wal")


def check_after_a_kill(path: Path) -> None:
    """Raise if a file or its log is damaged; a properly closed file has no log and is not checked.

    Args:
        path: The file, which no process may be writing.

    Raises:
        StorageError: It is damaged; nothing was changed.
        sqlite3.DatabaseError: It cannot be read at all.
        OSError: Likewise.
    """
    log = log_of(path)
    if not log.exists() or not log.stat().st_size:
        return
    # Read-only: a connection that may write would bring the log's readable part into the file and remove the rest.
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
        lost = _count_lost_commits(path, log, page_bytes)
    if verdict != "ok":
        raise StorageError(
            f"{path} is damaged ({verdict}): restore it from a backup, or move it away to start without it"
        )
    if lost:
        raise StorageError(
            f"{log} is damaged: {lost} stored transactions after the damage cannot be read. Restore {path} and "
            f"{log.name} from a backup, or move {log.name} away to continue without what it holds"
        )


def _count_lost_commits(path: Path, log: Path, page_bytes: int) -> int:
    """Return how many durable transactions a log contains after the part that SQLite reads."""
    index = path.with_name(path.name + "-shm").read_bytes()
    if struct.unpack_from("=I", index)[0] != _INDEX_VERSION:
        return 0  # a later SQLite: it may keep its index in another way
    (last_frame,) = struct.unpack_from("=I", index, _LAST_FRAME_AT)
    with log.open("rb") as file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size or not any(head):
            return 0
        salts, lost = (_HEADER.unpack(head)[4:6] if _is_header(head) else None), 0
        is_header = salts is not None
        file.seek(last_frame * (_FRAME_BYTES + page_bytes), 1)
        while len(frame := file.read(_FRAME_BYTES)) == _FRAME_BYTES:
            _, pages_after, *own = _FRAME.unpack_from(frame)
            salts = salts or tuple(own)
            lost += bool(pages_after) and tuple(own) == salts  # others are of an earlier turn of the log
            file.seek(page_bytes, 1)
    if lost == 1 and is_header:
        # A power failure leaves the last transaction, which was not durable yet, in this way too.
        _logger.warning("last transaction is incomplete, as after a power failure: file=%s", log)
        return 0
    return lost


def _is_header(head: bytes) -> bool:
    """Return whether a log's header is intact, by the checksum of its first six words."""
    magic, *_, first, second = _HEADER.unpack(head)
    words = struct.unpack_from("<6I" if magic == _MAGIC_LITTLE else ">6I", head)
    sums = [0, 0]
    for word, other in zip(words[::2], words[1::2], strict=True):
        sums[0] = (sums[0] + word + sums[1]) & _MASK
        sums[1] = (sums[1] + other + sums[0]) & _MASK
    return magic in (_MAGIC_LITTLE, _MAGIC_BIG) and sums == [first, second]
