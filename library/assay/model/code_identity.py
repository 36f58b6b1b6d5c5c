"""Which code the agent of a run was."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodeIdentity:
    """Which code the agent of a run was, as the client that created the run saw it.

    Args:
        commit: The git commit of the spec's folder, in full; empty where it is in no repository.
        dirty: Whether files that git tracks differed from the commit; None where that is not known.
        agent_sha256: Over the source files of the agent: its module or package, or the program of its command, and what
            these import from the same folder. Empty where the agent is no code on the user's side.
    """

    commit: str = ""
    dirty: bool | None = None
    agent_sha256: str = ""
