"""Signal handling of processes that an agent forks, e.g. through multiprocessing."""

from __future__ import annotations

import os
import signal
import threading
from functools import cache

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@cache  # once per process
def isolate_forks() -> None:
    """Reset SIGINT and SIGTERM to Python's defaults in every process forked from now on.

    A forked process inherits handlers that only stop the command, and the wake-up descriptor of the command's event
    loop. Without the reset, a pool that terminates its workers would interrupt the command and then wait for workers
    that ignore the signal.
    """
    state = threading.local()

    def hold_signals() -> None:
        # A signal between the fork and the reset would still reach the command's event loop.
        state.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)

    def release_signals() -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, state.mask)

    def reset_signals() -> None:
        signal.set_wakeup_fd(-1)
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        release_signals()

    os.register_at_fork(before=hold_signals, after_in_parent=release_signals, after_in_child=reset_signals)
