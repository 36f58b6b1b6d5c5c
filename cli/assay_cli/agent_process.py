"""The user's agent in the command's own process: loading, exits and forked processes."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from assay_cli.exit_status import EXIT_INFRASTRUCTURE

if TYPE_CHECKING:
    from pathlib import Path

    from assay.agent_host.user_code import UserCode
    from assay.model.run import RunSpec

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def load_user_code(settings: RunSpec, folder: Path) -> UserCode:
    """Load the user's own code in a run: the agent and Python metrics, resolved from a folder.

    Raises:
        InvalidInputError: The code cannot be loaded.
    """
    from assay.agent_host.user_code import open_user_code

    if settings.functions or (settings.agent.is_hosted and settings.agent.adapter != "command"):
        _guard_exit()
    return open_user_code(settings, folder)


@cache  # once per process
def _guard_exit() -> None:
    """Replace `os._exit`, which only the agent's code calls here: print an error and exit with status 3."""
    end, owner = os._exit, os.getpid()

    def end_for_agent(status: int) -> None:
        if os.getpid() != owner:  # a process that the agent forked exits as it likes
            end(status)
        sentence = (
            f"\nerror: the agent ended this process with os._exit({status}); finished rows are stored: `assay runs "
            "list` names the run, and `assay run SPEC --resume RUN` continues it\n"
        )
        with suppress(OSError):
            os.write(2, sentence.encode())
        end(EXIT_INFRASTRUCTURE)

    os._exit = end_for_agent  # type: ignore[assignment]  # it does not return either


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
