"""A separate program that kills the process groups of a client that died.

Standard input has a line per event: "+ID" when a group starts, "-ID" when it has ended. The input ends with the client,
    however the client ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys


def main() -> None:
    """Read until the client has ended, then kill the remaining groups."""
    groups: set[int] = set()
    for line in sys.stdin:
        change = groups.add if line[0] == "+" else groups.discard
        change(int(line[1:]))
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # it may have ended by itself
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
