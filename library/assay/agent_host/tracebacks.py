"""Tracebacks of the user's code, without Assay's frames and of bounded size."""

from __future__ import annotations

import importlib
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from assay.model.answers.response_fields import clean_text
from assay.model.answers.response_limits import MAX_TRACEBACK_CHARS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_OWN = str(Path(__file__).resolve().parents[1]) + "/"
_MAX_FRAMES = 100
_MAX_LINE_CHARS = 1_000
_HEAD_CHARS = 2_000  # of a text that is too long; the rest is its end, where the error is


def user_traceback(problem: BaseException, redact: Callable[[str], str] = str) -> str:
    """Return an exception's traceback in Python's format, with its causes and the exceptions of a group.

    Args:
        problem: The exception.
        redact: Returns a text without secrets; called before shortening.

    Returns:
        At most 8,000 characters; empty if no frame is the user's.
    """
    try:
        captured = traceback.TracebackException(
            type(problem), problem, problem.__traceback__, limit=-_MAX_FRAMES, compact=True
        )
        parts = list(_parts(captured))
        for part in parts:
            part.stack = traceback.StackSummary.from_list([frame for frame in part.stack if not _is_own(frame)])
        if not any(part.stack for part in parts):
            return ""
        text = "".join(captured.format())
    except (Exception, SystemExit):  # noqa: BLE001 - an exception of the user's may raise whatever is read of it
        return ""
    return _cut(redact(clean_text(text)).rstrip())


def _parts(captured: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    """Yield an exception, its causes, and the exceptions of groups among them."""
    pending = [captured]
    while pending:
        part = pending.pop()
        yield part
        pending += [
            linked for linked in (part.__cause__, part.__context__, *(part.exceptions or ())) if linked is not None
        ]


def _is_own(frame: traceback.FrameSummary) -> bool:
    name = frame.filename
    return name.startswith((_OWN, "<frozen importlib")) or name == importlib.__file__


def _cut(text: str) -> str:
    lines = [line if len(line) <= _MAX_LINE_CHARS else f"{line[:_MAX_LINE_CHARS]}…" for line in text.split("\n")]
    if len(text := "\n".join(lines)) <= MAX_TRACEBACK_CHARS:
        return text
    left_out = "\n  … (lines left out)\n"
    tail = MAX_TRACEBACK_CHARS - _HEAD_CHARS - len(left_out)
    return text[:_HEAD_CHARS].rpartition("\n")[0] + left_out + text[-tail:].partition("\n")[2]
