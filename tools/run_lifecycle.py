"""Print the states of a run as a Mermaid diagram: `python -m tools.run_lifecycle`. docs/runs.md contains a copy."""

from __future__ import annotations

from collections import defaultdict
from itertools import product

from assay_orchestrator.store.runs.lifecycle import TRANSITIONS, Phase


def state_diagram() -> str:
    """Return the transitions between different phases, one line per pair of phases."""
    commands: dict[tuple[Phase, Phase], list[str]] = defaultdict(list)
    for (phase, command), transition in TRANSITIONS.items():
        if transition.phase is not phase:
            commands[phase, transition.phase].append(command.value)
    lines = ["stateDiagram-v2", f"    [*] --> {_name(Phase.PENDING)}"]
    lines += [f'    state "{phase.value}" as {_name(phase)}' for phase in Phase if " " in phase.value]
    lines += [
        f"    {_name(source)} --> {_name(target)}: {', '.join(commands[source, target])}"
        for source, target in product(Phase, Phase)
        if target is not Phase.DELETED and (source, target) in commands
    ]
    lines += [f"    {_name(source)} --> [*]: delete" for source in Phase if commands.get((source, Phase.DELETED))]
    return "\n".join(lines) + "\n"


def _name(phase: Phase) -> str:
    return phase.value.replace(" ", "_")


if __name__ == "__main__":
    print(state_diagram(), end="")
