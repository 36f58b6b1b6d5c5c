"""The options `lifespan` and `lifespan_per` of an agent in this process: resources open while it answers."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.errors import Problem
from assay.model.frameworks import OBJECT_TARGET

if TYPE_CHECKING:
    from assay.model.run_spec import AgentSpec

LIFESPAN_KEYS = ("lifespan", "lifespan_per")
"""The option names in a spec."""

_PER = ("run", "case")


@dataclass(frozen=True, slots=True)
class LifespanSettings:
    """A resource that is opened before an agent is asked and closed afterwards.

    Args:
        target: The function that opens it, as MODULE:FUNCTION or FILE.py:FUNCTION.
        per: `run` to open it once for all questions, `case` for each case and repeat.
    """

    target: str
    per: str = "run"

    def problems(self) -> list[Problem]:
        """Return the problems of the settings."""
        problems = []
        if not isinstance(self.target, str) or not OBJECT_TARGET.fullmatch(self.target):
            message = f"must be MODULE:FUNCTION or FILE.py:FUNCTION of a context manager, not {self.target!r}"
            problems.append(Problem(message, "agent.lifespan"))
        if self.per not in _PER:
            problems.append(Problem(f"must be {' or '.join(_PER)}, not {self.per!r}", "agent.lifespan_per"))
        return problems


def without_lifespan(agent: AgentSpec) -> tuple[AgentSpec, LifespanSettings | None]:
    """Split an agent's settings into those without lifespan options, and the lifespan settings or None."""
    values = {name: agent.options[name] for name in LIFESPAN_KEYS if name in agent.options}
    if not values:
        return agent, None
    options = {name: item for name, item in agent.options.items() if name not in LIFESPAN_KEYS}
    settings = LifespanSettings(values.get("lifespan", ""), values.get("lifespan_per", "run"))
    return dataclasses.replace(agent, options=options), settings
