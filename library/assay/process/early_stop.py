"""SIGTERM before a service serves."""

from __future__ import annotations

import signal
import sys
import threading


def exit_on_early_sigterm() -> None:
    """End with status 0 at a SIGTERM that comes before the event loop handles it.

    By default it ends a process by the signal, which a supervisor counts as a crash; and the first process of a
    container ignores it, so that the container waits for its grace period.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
