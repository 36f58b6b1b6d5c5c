"""Handling of SIGTERM before a service serves."""

from __future__ import annotations

import signal
import sys
import threading


def exit_on_early_sigterm() -> None:
    """Exit with status 0 at a SIGTERM that arrives before the event loop handles signals.

    By default the signal kills the process, which a supervisor counts as a crash. The first process of a container
    would ignore it, so the container would wait for its whole grace period.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
