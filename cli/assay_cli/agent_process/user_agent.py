"""The user's agent and metrics, loaded into the command's own process, which they must not end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from assay.agent_host.user_code import UserCode
    from assay.model.run import RunSettings


def load_user_code(settings: RunSettings, folder: Path) -> UserCode:
    """Return what of a run is code on this side, found from a folder.

    Raises:
        InvalidInputError: It cannot be loaded.
    """
    from assay.agent_host.user_code import open_user_code
    from assay_cli.agent_process.os_exit import guard_exit

    if settings.functions or (settings.agent.is_hosted and settings.agent.adapter != "command"):
        guard_exit()
    return open_user_code(settings, folder)
