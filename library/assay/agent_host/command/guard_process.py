"""Run as a program of its own: kills the process groups that a client leaves behind when it dies.

Standard input has a line for each group: "+ID" when it begins, "-ID" when it has ended. The input ends with the client,
however that ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys


def main() -> None:
    """Read until the client has ended; kill what it has left."""
    groups: set[int] = set()
    for line in sys.stdin:
        change = groups.add if line[0] == "+" else groups.discard
        change(int(line[1:]))
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # one that reads its input has ended by itself
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    main()
