"""The command's standard streams: what a terminal cannot show is escaped, and a full disk is no traceback."""

from __future__ import annotations

import errno
import io
import os
import sys

_OUTPUT_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


def replace_closed() -> None:
    """Open the null device in place of a closed stdout or stderr: no file that is opened later gets its number."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))


def escape_unencodable() -> None:
    """Write characters that the encoding of stdout or stderr lacks as escapes, e.g. \\u0639."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def is_output_error(error: OSError) -> bool:
    """Return whether an error comes from writing to a stream that is open already."""
    return error.errno in _OUTPUT_ERRORS and error.filename is None


def discard_unwritten() -> None:
    """Drop what a stream still holds and cannot write: Python would fail with it again at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
