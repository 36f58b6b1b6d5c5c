"""Processes that an agent forks, e.g. by multiprocessing: signals to them are not signals to the command."""

from __future__ import annotations

import os
import signal
import threading
from functools import cache

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@cache  # once in a process
def isolate_forks() -> None:
    """Give processes that this one forks from now on Python's own handling of SIGINT and SIGTERM.

    They inherit handlers that only stop the command, and the descriptor by which its event loop learns of signals:
    a pool that terminates its workers would interrupt the command, and wait for workers that ignore it.
    """
    state = threading.local()

    def hold_signals() -> None:
        # A signal between the fork and the reset would still arrive at the command.
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
