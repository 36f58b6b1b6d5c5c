"""The caller of a run's agent, where that is code on the user's side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.agent_host.caller import AgentCaller
from assay.agent_host.loader import load_agent
from assay.model.command_options import CommandOptions

if TYPE_CHECKING:
    from pathlib import Path

    from assay.agent_host.protocol import Caller
    from assay.model.run import AgentSettings


def open_caller(agent: AgentSettings, folder: Path) -> Caller | None:
    """Return what asks an agent; None where the orchestrator does. Nothing is started before the first question.

    Args:
        agent: Checked settings.
        folder: The spec's folder, from which code and programs are found.

    Raises:
        AgentImportError: The user's module raised.
        InvalidInputError: There is no such code or program.
    """
    if agent.adapter == "python":
        return AgentCaller(load_agent(agent.target, folder))
    if agent.adapter != "command":
        return None
    # Imported here: most agents are functions.
    from assay.agent_host.command.launcher import Launcher, find_command
    from assay.agent_host.command.per_question import PerQuestionCaller
    from assay.agent_host.command.stream import StreamCaller

    launcher = Launcher(find_command(agent.target, folder), folder)
    options = CommandOptions.from_options(agent.options, [])
    if options.mode == "per_question":
        return PerQuestionCaller(launcher)
    return StreamCaller(launcher, options.processes)
