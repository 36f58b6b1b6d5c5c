"""The option `traces` of an agent: the source of its spans."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.errors import Problem
from assay.parsing.fields import Fields

if TYPE_CHECKING:
    from assay.model.run_spec import AgentSpec

TRACES_KEY = "traces"
"""The option's name in a spec."""

OTLP = "otlp"
_KEYS = ("file", "wait")
_WAIT_S = 2.0
_MAX_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """The source of an agent's spans.

    Args:
        file: The file that they are appended to, relative to the spec; empty for a receiver on loopback.
        wait_s: How long an answer waits for its spans, in seconds, 0 to 60.
    """

    file: str = ""
    wait_s: float = _WAIT_S

    @classmethod
    def from_option(cls, value: object, problems: list[Problem]) -> TraceSettings:
        """Return the settings of a spec; append problems to `problems`."""
        if value == OTLP:
            return cls()
        if not isinstance(value, dict):
            message = f"must be otlp, or a mapping such as {{file: spans.jsonl, wait: 2s}}, not {value!r}"
            problems.append(Problem(message, "agent.traces"))
            return cls()
        fields = Fields(value, lambda name, message: problems.append(Problem(message, f"agent.traces.{name}")))
        fields.unknown(_KEYS, "field of agent.traces")
        file = fields.text("file")
        if isinstance(value.get("file"), str) and (not file.strip() or "\0" in file):
            problems.append(Problem(f"must be the name of a file, not {value['file']!r}", "agent.traces.file"))
        return cls(file, fields.duration_s("wait", _WAIT_S, 0, _MAX_WAIT_S, "a duration from 0s to 1m, e.g. 2s"))


def without_traces(agent: AgentSpec) -> tuple[AgentSpec, Any]:
    """Return an agent's settings without the option `traces`, and the option's value or None."""
    value = agent.options.get(TRACES_KEY)
    options = {name: item for name, item in agent.options.items() if name != TRACES_KEY}
    return dataclasses.replace(agent, options=options), value
