"""Gates: conditions on a run's summary that decide the exit code.

gate = name [ "." stat ] op number
name = "pass_rate" | a metric of the run
op   = ">=" | ">" | "<=" | "<" | "=="
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.errors import SpecError
from assay.names import unknown_name
from assay.results import GateOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Gate", "decide", "parse_gate"]

_TOLERANCE = 1e-9
_PATTERN = re.compile(r"\s*([A-Za-z_]\w*)(?:\.([A-Za-z_]\w*))?\s*(>=|<=|==|>|<)\s*(\S+)\s*", re.ASCII)
_STATS = {"latency": ("value", "pass_rate", "mean", "p50", "p95", "max")}
_PLAIN_STATS = ("value", "pass_rate")


@dataclass(frozen=True, slots=True)
class Gate:
    """One condition: `name.stat op bound`; `stat` is "value" for a metric's own aggregate."""

    expression: str
    name: str
    stat: str
    op: str
    bound: float


def parse_gate(text: str, *, metrics: Sequence[str]) -> Gate:
    """Return the gate that a text describes.

    Args:
        text: E.g. "pass_rate >= 0.85" or "latency.p95 < 4".
        metrics: The run's metrics, the only ones that can be gated.

    Raises:
        SpecError: The text is no gate, or names something that the run does not compute.
    """
    found = _PATTERN.fullmatch(text) if len(text) <= 200 else None
    if found is None:
        raise SpecError(f"{text[:80]!r} is not a gate: write NAME >= NUMBER, e.g. 'pass_rate >= 0.85'")
    name, stat, op, number = found.groups()
    if name != "pass_rate" and name not in metrics:
        raise SpecError(unknown_name("name in a gate", name, ["pass_rate", *metrics]))
    stats = ("value",) if name == "pass_rate" else _STATS.get(name, _PLAIN_STATS)
    if (stat or "value") not in stats:
        raise SpecError(unknown_name(f"statistic of {name}", stat, stats))
    try:
        bound = float(number)
    except ValueError:
        bound = math.nan
    if not math.isfinite(bound):
        raise SpecError(f"{number!r} is not a number that a gate can compare with")
    return Gate(text.strip(), name, stat or "value", op, bound)


def decide(gate: Gate, actual: float | None) -> GateOutcome:
    """Return whether a gate holds; without a value it is incomplete, never passed."""
    if actual is None:
        return GateOutcome.INCOMPLETE
    close = abs(actual - gate.bound) <= _TOLERANCE
    holds = {
        ">=": actual >= gate.bound or close,
        "<=": actual <= gate.bound or close,
        "==": close,
        ">": actual > gate.bound and not close,
        "<": actual < gate.bound and not close,
    }[gate.op]
    return GateOutcome.PASS if holds else GateOutcome.FAIL
