"""What the agents of runs may reach, as the operator of this process allows it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class AgentAccess:
    """What an adapter may use to reach an agent.

    Args:
        hosts: Patterns of hosts that may be called.
        env: Patterns of environment variables that a spec may name.
        environ: Where the variables are; None for the environment of this process.
    """

    hosts: Sequence[str]
    env: Sequence[str]
    environ: Mapping[str, str] | None = None

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables, of which a spec may name those that `env` allows."""
        return os.environ if self.environ is None else self.environ
