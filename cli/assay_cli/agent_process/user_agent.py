"""The user's agent, loaded into the command's own process, which it must not end."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from assay.agent_host.caller import AgentCaller


def load_caller(target: str, folder: Path) -> AgentCaller:
    """Return the agent `module:function` that is found from a folder.

    Raises:
        InvalidInputError: It cannot be loaded.
    """
    from assay.agent_host.caller import AgentCaller
    from assay.agent_host.loader import load_agent
    from assay_cli.agent_process.os_exit import guard_exit

    guard_exit()
    return AgentCaller(load_agent(target, folder))
