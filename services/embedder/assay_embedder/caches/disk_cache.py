"""A bounded file of vectors that outlives the process."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import queue
import sqlite3
import struct
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.errors import SetupError, UnavailableError
from assay.local_stack.home import VECTORS_FILE
from assay_embedder.caches.scope_prefix import scope_prefix
from assay_embedder.queues.jobs import Computed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

logger = logging.getLogger(__name__)

_HEADER = struct.Struct("<III")  # word pieces, windows, whether truncated
_CHECK_BYTES = 16
_AT_ONCE = 256
_MOST_WAITING = 64  # lists of entries
_LOOK_S = 0.1
_OPENINGS, _PAUSE_S = 10, 0.1
_RETRIED_AFTER_S = 60.0
_PASSING = {
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
}
_PAGE_BYTES = 16_384  # which eight entries of the default model fill
_SCHEMA = """
CREATE TABLE IF NOT EXISTS vectors (
    number INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB NOT NULL UNIQUE, value BLOB NOT NULL
)
"""


class DiskCache:
    """A SQLite file of vectors. What cannot be read is a miss, and what cannot be written is not kept.

    Each entry has a checksum over key and value, so that a damaged one is never a vector; a file that SQLite cannot
    read is deleted and begun anew. Safe for threads, and for several processes that share the folder.

    Args:
        folder: Where it lies; made where it is missing, for its own user alone.
        limit_bytes: How large the file may become; the oldest entries make room.

    Raises:
        SetupError: The folder cannot be written.
    """

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._file = folder / VECTORS_FILE
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._tried_at = 0.0
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._file, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            message = f"{folder} cannot be written ({error.strerror}): give --cache-dir another folder."
            raise SetupError(message, reason="CACHE_NOT_WRITABLE") from error
        with self._lock:
            self._connect()
        # Entries to write; an event to set once all before it are written; None at the end.
        self._waiting: queue.Queue[list[tuple[bytes, Computed]] | threading.Event | None] = queue.Queue(_MOST_WAITING)
        self._thread = threading.Thread(target=self._write, name="embedder-disk-cache", daemon=True)
        self._thread.start()

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Computed]:
        """Return the vectors stored under these keys."""
        rows: list[Any] = []
        with self._lock:
            for at in range(0, len(keys), _AT_ONCE):
                some = keys[at : at + _AT_ONCE]
                marks = ",".join("?" * len(some))
                rows += self._run(f"SELECT key, value FROM vectors WHERE key IN ({marks})", some)  # noqa: S608 - marks
        vectors = {key: computed for key, value in rows if (computed := _unpacked(key, value)) is not None}
        if len(vectors) < len(rows):
            logger.warning(
                "damaged entries in the vector cache: file=%s count=%d", self._file, len(rows) - len(vectors)
            )
        return vectors

    def store(self, entries: list[tuple[bytes, Computed]]) -> None:
        """Queue vectors for the writing thread; vectors beyond what it can write are dropped."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(entries)

    def delete_scope(self, scope: str) -> tuple[int, int]:
        """Delete the vectors of a scope, those too that wait to be written; return how many, and how many are left.

        Deleted bytes are overwritten in the file, and its log is emptied.

        Raises:
            UnavailableError: The file cannot be written.
        """
        prefix = scope_prefix(scope)
        own = (prefix, prefix + b"\xff" * 32)
        count = "SELECT count(*) FROM vectors WHERE key BETWEEN ? AND ?"
        self._drain()
        with self._lock:
            before, _, after = (
                self._run(query, own) for query in (count, "DELETE FROM vectors WHERE key BETWEEN ? AND ?", count)
            )
            self._run_alone("PRAGMA wal_checkpoint(TRUNCATE)")
        if not before or not after:
            raise UnavailableError(
                "the vector cache on disk cannot be read or written: its log says why", reason="CACHE_NOT_WRITABLE"
            )
        return before[0][0] - after[0][0], after[0][0]

    def _drain(self) -> None:
        """Wait until all queued vectors are written, so that none of a scope is still on its way into the file."""
        drained = threading.Event()
        self._waiting.put(drained)
        while self._thread.is_alive() and not drained.wait(_LOOK_S):
            pass

    def _run_alone(self, statement: str) -> None:
        """Run a statement outside any transaction; SQLite does later what it cannot do now."""
        with contextlib.suppress(sqlite3.Error):
            if self._connection is not None:
                self._connection.execute(statement).fetchall()

    def close(self) -> None:
        """Write the queued vectors and close the file."""
        self._waiting.put(None)
        self._thread.join()
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def _write(self) -> None:
        while (entries := self._waiting.get()) is not None:
            if isinstance(entries, threading.Event):
                entries.set()
                continue
            rows = [(key, _packed(key, computed)) for key, computed in entries]
            with self._lock:
                self._run("INSERT OR REPLACE INTO vectors (key, value) VALUES (?, ?)", rows, many=True)
                self._make_room()

    def _make_room(self) -> None:
        """Delete the oldest entries while the file is too large, as long as it lets them be deleted."""
        oldest = "SELECT number FROM vectors ORDER BY number LIMIT ?"
        delete = f"DELETE FROM vectors WHERE number IN ({oldest}) RETURNING number"  # noqa: S608 - constant
        while self._used_bytes() > self._limit_bytes and self._run(delete, (_AT_ONCE,)):
            pass

    def _used_bytes(self) -> int:
        """Return the size of the file's entries in bytes; 0 if it is unknown."""
        counts = [self._run(f"PRAGMA {name}", ()) for name in ("page_count", "freelist_count")]
        if not all(counts):
            return 0
        pages, free = (rows[0][0] for rows in counts)
        return int(pages - free) * _PAGE_BYTES

    def _run(self, query: str, values: Sequence[Any], *, many: bool = False) -> list[Any]:
        """Run a query in a transaction of its own; return no rows where the file cannot be used."""
        if self._connection is None and time.monotonic() - self._tried_at > _RETRIED_AFTER_S:
            self._connect()
        if self._connection is None:
            return []
        try:
            with self._connection:
                if many:
                    self._connection.executemany(query, values)
                    return []
                return self._connection.execute(query, tuple(values)).fetchall()
        except sqlite3.DatabaseError as error:
            if _passes(error):
                logger.warning("vector cache on disk not used: file=%s error=%s", self._file, error)
                return []
            logger.warning("vector cache on disk is damaged, starting anew: file=%s error=%s", self._file, error)
            self._connection.close()
            self._delete()
            self._connect()
        return []

    def _connect(self, openings: int = 2) -> None:
        """Open the file; delete a damaged one first.

        Args:
            openings: How often to try. A file that cannot be opened now, as on a full disk, is tried again in a minute.
        """
        self._connection, self._tried_at = None, time.monotonic()
        for opening in range(openings):
            if opening:
                time.sleep(_PAUSE_S)
            try:
                self._connection = self._opened()
                return
            except sqlite3.Error as error:
                logger.warning("vector cache on disk cannot be opened: file=%s error=%s", self._file, error)
                if not _passes(error):
                    self._delete()

    def _opened(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._file, timeout=5.0, check_same_thread=False)
        try:
            connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            connection.execute("PRAGMA journal_mode = WAL").fetchall()  # it counts as a write until its answer is read
            connection.execute("PRAGMA secure_delete = ON")  # of a deleted scope nothing stays in the file
            connection.execute("PRAGMA synchronous = OFF")  # a lost entry is computed again
            connection.execute(_SCHEMA)
            connection.commit()
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _delete(self) -> None:
        """Delete a file that cannot be read: its vectors can be computed again, and it counts towards no limit."""
        for suffix in ("", "-wal", "-shm"):
            file = self._file.with_name(self._file.name + suffix)
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                logger.warning("vector cache on disk cannot be deleted: file=%s error=%s", file, error.strerror)


def _passes(error: sqlite3.Error) -> bool:
    """Return whether an error is about the moment and not the file's contents: another process's lock, a full disk."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _PASSING


def _packed(key: bytes, computed: Computed) -> bytes:
    header = _HEADER.pack(computed.token_count, computed.window_count, computed.truncated)
    content = header + computed.vector.astype("<f4").tobytes()
    return _check(key, content) + content


def _unpacked(key: bytes, value: object) -> Computed | None:
    if not isinstance(value, bytes):  # damage that SQLite did not notice
        return None
    check, content = value[:_CHECK_BYTES], value[_CHECK_BYTES:]
    if len(content) < _HEADER.size or check != _check(key, content):
        return None
    token_count, window_count, truncated = _HEADER.unpack_from(content)
    vector = np.frombuffer(content, dtype="<f4", offset=_HEADER.size).astype("<f4")
    vector.flags.writeable = False
    return Computed(vector, token_count, window_count, bool(truncated))


def _check(key: bytes, content: bytes) -> bytes:
    return hashlib.blake2b(content, key=key, digest_size=_CHECK_BYTES).digest()
