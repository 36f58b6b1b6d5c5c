"""The exit statuses of the command; `docs/runs.md` describes them."""

from __future__ import annotations

EXIT_GATE = 1
EXIT_USAGE = 2
EXIT_INFRASTRUCTURE = 3
EXIT_INTERRUPTED = 130


def with_status(line: str, status: int) -> str:
    """Return the last line of a command that decides something: a line with its verdict, and the exit status."""
    return f"{line}  exit status {status}"
