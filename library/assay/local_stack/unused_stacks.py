"""How long a local stack outlives its last use.

After a command its services wait idle for the next one. A Python process keeps the stack between its calls of
`evaluate` and `score`: it holds a share of the lease until it ends, and does not count as a user meanwhile, so that
other commands may replace idle services.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from assay.errors import SetupError
from assay.local_stack.lease import Lease, is_leased

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from assay.local_stack.home import Home

_STOP_TIMEOUT_S = 15.0
_IDLE_S = 60.0
_MOST_IDLE_S = 86_400.0

_kept: dict[Path, Lease] = {}
_children: list[subprocess.Popen[bytes]] = []


def idle_seconds(environment: Mapping[str, str]) -> float:
    """Return how long the services of a command wait idle for the next one, in seconds: ASSAY_IDLE_S, else a minute
    where a person uses a terminal, else 0.

    Raises:
        SetupError: ASSAY_IDLE_S is not such a number.
    """
    if text := environment.get("ASSAY_IDLE_S", ""):
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not 0.0 <= seconds <= _MOST_IDLE_S:
            raise SetupError(f"ASSAY_IDLE_S must be a number of seconds from 0 to {_MOST_IDLE_S:,.0f}, not {text!r}")
        return seconds
    is_watched = any(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))
    return _IDLE_S if is_watched and not environment.get("CI") else 0.0


def keeps_stacks(environment: Mapping[str, str]) -> bool:
    """Return whether a Python process keeps its stack: unless ASSAY_IDLE_S is 0."""
    try:
        return float(environment.get("ASSAY_IDLE_S") or 1) > 0
    except ValueError:
        return True


def keep_stack(home: Home, lease: Lease, children: Iterable[subprocess.Popen[bytes]]) -> None:
    """Keep a stack until this process ends.

    Args:
        home: The state directory.
        lease: The share of the call that ends; closed if the process holds one already.
        children: The services that the call started and that end with the lease.
    """
    if not _kept:
        atexit.register(_release)
    if _kept.setdefault(home.sockets, lease) is not lease:
        lease.close()
    _children.extend(children)
    for child in list(_children):
        if child.poll() is not None:
            with suppress(ValueError):  # another thread has removed it
                _children.remove(child)


def _release() -> None:
    """Release the leases; wait until the services have stopped, unless they wait idle or others hold a share."""
    leases = [sockets / "lease" for sockets in _kept]
    for lease in _kept.values():
        lease.close()
    _kept.clear()
    end = time.monotonic() + _STOP_TIMEOUT_S
    while any(child.poll() is None for child in _children):
        if idle_seconds(os.environ) or any(map(is_leased, leases)):
            break
        if time.monotonic() > end:
            for child in _children:
                child.terminate()
            break
        time.sleep(0.01)
    _forget()


def _forget() -> None:
    for child in _children:
        child.returncode = child.returncode or 0  # not to be waited for: it outlives this process, or is not its child
    _children.clear()
    _kept.clear()


os.register_at_fork(after_in_child=_forget)
