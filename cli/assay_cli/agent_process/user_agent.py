"""The user's agent, loaded into the command's own process, which it must not end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from assay.agent_host.protocol import Caller
    from assay.model.run import AgentSettings


def load_caller(agent: AgentSettings, folder: Path) -> Caller | None:
    """Return what asks an agent whose code is found from a folder; None where it is no code on this side.

    Raises:
        InvalidInputError: It cannot be loaded.
    """
    from assay.agent_host.opening import open_caller
    from assay_cli.agent_process.os_exit import guard_exit

    if agent.adapter == "python":
        guard_exit()
    return open_caller(agent, folder)
