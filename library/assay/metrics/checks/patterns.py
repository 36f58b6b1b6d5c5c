"""Regular expressions without backtracking, by RE2, in time of text times compiled pattern."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from assay.errors import SetupError
from assay.local_stack.install_hint import install_hint

MAX_TEXT_CHARS = 1_000_000
"""The most characters of a text that are searched."""
_MAX_PATTERN_CHARS = 10_000
_MAX_COMPILED_BYTES = 1024 * 1024
_WORK_PER_STEP = 3
"""If RE2 cannot build its automaton in that memory, a character costs 30 ns for each part of the pattern."""


@lru_cache(maxsize=256)
def compile_pattern(pattern: str, *, case_sensitive: bool = True) -> Any:
    """Return a compiled RE2 pattern.

    Raises:
        ValueError: RE2 rejects the pattern; the message says why.
        SetupError: RE2 is not installed.
    """
    try:
        import re2  # imported here: the library starts without it
    except ImportError:
        raise SetupError(
            f"regular expressions need google-re2, which is not installed: {install_hint('orchestrator')}",
            reason="NOT_INSTALLED",
        ) from None
    if len(pattern) > _MAX_PATTERN_CHARS:
        raise ValueError(f"is longer than {_MAX_PATTERN_CHARS} characters")
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = case_sensitive
    options.max_mem = _MAX_COMPILED_BYTES
    try:
        return re2.compile(pattern, options=options)
    except re2.error as problem:
        text = problem.args[0] if problem.args else "unknown"
        # RE2 quotes whole characters of a pattern, so its message is always UTF-8.
        message = text.decode(errors="replace") if isinstance(text, bytes) else str(text)  # pragma: no mutate
        if "too large" in message:
            raise ValueError("needs more than 1 MiB once compiled: shorten its repetitions") from None
        raise ValueError(
            f"is no pattern that RE2 takes: {message} (it knows no look-around and no back-references)"
        ) from None


def pattern_problem(pattern: str) -> str:
    """Return why a pattern cannot be used, or the empty string.

    Also empty if RE2 is not installed: a client submits the pattern to an orchestrator, which has RE2.
    """
    try:
        compile_pattern(pattern)
    except ValueError as problem:
        return str(problem)
    except SetupError:
        return ""
    return ""


def pattern_size(pattern: str) -> int:
    """Return the number of instructions of a compiled pattern.

    Raises:
        ValueError: RE2 does not take the pattern.
        SetupError: RE2 is not installed.
    """
    return int(compile_pattern(pattern).programsize)


def search_work(size: int, chars: int) -> int:
    """Return an upper bound of the work of searching a text for a pattern of this many instructions; see `row_work`."""
    return size * min(chars, MAX_TEXT_CHARS) * _WORK_PER_STEP
