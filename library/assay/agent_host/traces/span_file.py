"""A file that spans are appended to while the agent runs."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from typing import TYPE_CHECKING

from assay.agent_host.traces.json_spans import spans_from_json
from assay.agent_host.traces.span import MalformedSpanError
from assay.agent_host.traces.trace import TraceBook

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_RECORD_BYTES = 16 * 1024 * 1024
_READ_BYTES = 1024 * 1024

_log = logging.getLogger(__name__)


class SpanFile:
    """Reads what is appended to a file from now on: JSON, one object per line or indented over several lines.

    A file that is created later, replaces the old one or is truncated is read from its beginning.

    Args:
        path: The file.

    Attributes:
        traces: Receives the spans; those of unknown traces are dropped.
    """

    def __init__(self, path: Path) -> None:
        self.traces = TraceBook()
        self._path = path
        self._lock = threading.Lock()
        self._offset, self._inode = self._end()
        self._rest = bytearray()
        self._spread = bytearray()
        self._has_warned = False

    async def read(self) -> None:
        """Read the data appended since the last call."""
        await asyncio.to_thread(self._read)

    def _end(self) -> tuple[int, int]:
        try:
            status = self._path.stat()
        except OSError:
            return 0, 0
        return status.st_size, status.st_ino

    def _read(self) -> None:
        with self._lock:
            size, inode = self._end()
            if inode != self._inode or size < self._offset:
                self._offset, self._inode = 0, inode
                self._rest.clear()
                self._spread.clear()
            if size <= self._offset:
                return
            try:
                with self._path.open("rb") as file:
                    file.seek(self._offset)
                    while data := file.read(_READ_BYTES):
                        self._offset += len(data)
                        self._take(data)
            except OSError as problem:
                self._warn(problem.strerror or str(problem))

    def _take(self, data: bytes) -> None:
        self._rest += data
        *lines, rest = self._rest.split(b"\n")
        self._rest = rest
        if len(self._rest) > MAX_RECORD_BYTES:
            self._rest.clear()
            self._warn(f"a line is longer than {MAX_RECORD_BYTES // 1024**2} MiB")
        for record in self._records(lines):
            try:
                spans, malformed = spans_from_json(json.loads(record))
            except MalformedSpanError as problem:
                self._warn(f"a record is not a span: {problem}")
            except (ValueError, RecursionError):
                self._warn("a record is not JSON")
            else:
                self.traces.add(spans)
                if malformed:
                    self._warn("a record has malformed spans")

    def _records(self, lines: list[bytearray]) -> Iterator[bytes]:
        """Yield the objects in lines: one per line, or one from a line `{` to a line `}`."""
        for line in lines:
            text = line.rstrip()
            if text == b"{" or self._spread:
                self._spread += text
                if text == b"}" or len(self._spread) > MAX_RECORD_BYTES:
                    yield bytes(self._spread)
                    self._spread.clear()
            elif text:
                yield bytes(text)

    def _warn(self, problem: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning("leaving out spans of a file: file=%s problem=%s", self._path, problem)
