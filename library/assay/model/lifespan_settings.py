"""The options `lifespan` and `lifespan_per` of an agent in this process: what is open while it is asked."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.errors import Problem
from assay.model.frameworks import OBJECT_TARGET

if TYPE_CHECKING:
    from assay.model.run_settings import AgentSettings

LIFESPAN_KEYS = ("lifespan", "lifespan_per")
"""The options, as a spec has them."""

_PER = ("run", "case")


@dataclass(frozen=True, slots=True)
class LifespanSettings:
    """What is opened before an agent is asked, and closed afterwards.

    Args:
        target: The function that opens it, as MODULE:FUNCTION or FILE.py:FUNCTION.
        per: `run`, once for all questions, or `case`, for each case and repeat.
    """

    target: str
    per: str = "run"

    def problems(self) -> list[Problem]:
        """Return what is wrong with the settings."""
        found = []
        if not isinstance(self.target, str) or not OBJECT_TARGET.fullmatch(self.target):
            message = f"must be MODULE:FUNCTION or FILE.py:FUNCTION of a context manager, not {self.target!r}"
            found.append(Problem(message, "agent.lifespan"))
        if self.per not in _PER:
            found.append(Problem(f"must be {' or '.join(_PER)}, not {self.per!r}", "agent.lifespan_per"))
        return found


def without_lifespan(agent: AgentSettings) -> tuple[AgentSettings, LifespanSettings | None]:
    """Return the settings of an agent without the options of its lifespan, and those; None where there are none."""
    given = {name: agent.options[name] for name in LIFESPAN_KEYS if name in agent.options}
    if not given:
        return agent, None
    options = {name: item for name, item in agent.options.items() if name not in LIFESPAN_KEYS}
    settings = LifespanSettings(given.get("lifespan", ""), given.get("lifespan_per", "run"))
    return dataclasses.replace(agent, options=options), settings
