"""Standard streams of the command: unencodable text is escaped, and a full disk causes no traceback."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import Any

_OUTPUT_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


def replace_closed() -> None:
    """Open the null device for a closed stdout or stderr, so that no later file gets its descriptor."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))


def keep_stdout() -> None:
    """Reserve stdout for results: descriptor 1, which an agent's children and C code write to, becomes stderr."""
    if not isinstance(sys.stdout, io.TextIOWrapper) or sys.stdout.fileno() != 1:
        return  # a program that runs the command in its own process has replaced the stream
    sys.stdout.flush()
    descriptor = os.dup(1)
    os.dup2(2, 1)
    sys.stdout = os.fdopen(descriptor, "w", encoding=sys.stdout.encoding, errors=sys.stdout.errors)


def pass_stdout_on() -> None:
    """Undo `keep_stdout` before this process executes another program."""
    os.dup2(sys.stdout.fileno(), 1)


def agent_stdout() -> contextlib.redirect_stdout[_AgentStdout]:
    """Return a context that sends the agent's output to stderr: stdout is for results."""
    return contextlib.redirect_stdout(_AgentStdout())


class _AgentStdout(io.TextIOBase):
    """A stream that writes to stderr and ignores `close`."""

    def __init__(self) -> None:
        self._stderr = sys.stderr

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stderr, name)

    @property
    def encoding(self) -> str:  # type: ignore[override]  # an attribute that is None in the base class
        return self._stderr.encoding

    def write(self, text: str) -> int:
        return self._stderr.write(text)

    def flush(self) -> None:
        self._stderr.flush()

    def fileno(self) -> int:
        return self._stderr.fileno()

    def isatty(self) -> bool:
        return self._stderr.isatty()

    def close(self) -> None:
        self.flush()


def escape_unencodable() -> None:
    """Write characters outside the encoding of stdout or stderr as escapes, e.g. \\u0639."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def is_output_error(error: OSError) -> bool:
    """Return whether an error comes from writing to an open stream."""
    return error.errno in _OUTPUT_ERRORS and error.filename is None


def discard_unwritten() -> None:
    """Drop buffered output that cannot be written; Python would fail on it again at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
