"""Exit statuses of the command; `docs/runs.md` describes them."""

from __future__ import annotations

EXIT_GATE = 1
EXIT_USAGE = 2
EXIT_INFRASTRUCTURE = 3
EXIT_INTERRUPTED = 130


def with_status(line: str, status: int) -> str:
    """Return a verdict's line with the exit status at its end: the last line of a command that decides something."""
    return f"{line}  exit status {status}"
