"""Loading of the user's agent and metrics into the command's process, which they must not end with status 0."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

from assay_cli.exit_status import EXIT_INFRASTRUCTURE

if TYPE_CHECKING:
    from pathlib import Path

    from assay.agent_host.user_code import UserCode
    from assay.model.run import RunSettings


def load_user_code(settings: RunSettings, folder: Path) -> UserCode:
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
