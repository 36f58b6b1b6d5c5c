"""The identity of an agent's code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodeIdentity:
    """The identity of an agent's code when its run was created, as the client determined it.

    Args:
        commit: The full git commit of the spec's folder; empty outside a repository.
        dirty: Whether tracked files differed from the commit; None if unknown.
        agent_sha256: A hash of the agent's source files: its module or package, or the program of its command, and
            their imports from the same folder. Empty if the agent is not code on the user's side.
    """

    commit: str = ""
    dirty: bool | None = None
    agent_sha256: str = ""
