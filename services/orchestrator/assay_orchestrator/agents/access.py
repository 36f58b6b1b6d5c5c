"""What the agents of runs may reach, as the operator of this process allows it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from assay.http.egress import EVERYWHERE, Egress
from assay.records import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True, slots=True)
class AgentAccess:
    """What an adapter may use to reach an agent.

    Args:
        hosts: Patterns of hosts that may be called.
        env: Patterns of environment variables that a spec may name.
        environ: Where the variables are; None for the environment of this process.
        egress: Which addresses hosts may have, and the proxy that connections are made through.
    """

    hosts: Sequence[str]
    env: Sequence[str]
    environ: Mapping[str, str] | None = None
    egress: Egress = EVERYWHERE

    @property
    def variables(self) -> Mapping[str, str]:
        """The variables, of which a spec may name those that `env` allows."""
        return os.environ if self.environ is None else self.environ
