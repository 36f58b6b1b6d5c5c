"""An agent that ends the command's process with `os._exit`: no exit status that looks like success."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache

from assay_cli.exit_status import EXIT_INFRASTRUCTURE


@cache  # once in a process
def guard_exit() -> None:
    """Let `os._exit` in this process, which only the agent's code calls, end it with a sentence and status 3."""
    end, owner = os._exit, os.getpid()

    def end_for_agent(status: int) -> None:
        if os.getpid() != owner:  # a process that the agent has forked ends as it wants to
            end(status)
        sentence = (
            f"\nerror: the agent ended this process with os._exit({status}); what is done is stored: `assay runs list` "
            "names the run, and `assay run SPEC --resume RUN` continues it\n"
        )
        with suppress(OSError):
            os.write(2, sentence.encode())
        end(EXIT_INFRASTRUCTURE)

    os._exit = end_for_agent  # type: ignore[assignment]  # it does not return either
