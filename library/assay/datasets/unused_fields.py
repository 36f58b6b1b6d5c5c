"""Optional fields of cases that only some metrics use: counted, with a warning if the run has no such metric."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assay.errors import Problem
from assay.parsing.names import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from assay.datasets.records import Record
    from assay.model.case import Case
    from assay.model.run import MetricSpec

_MAX_NAMES = 200
_TURNS = "turns"
_FOR_BOTH = ("semantic_similarity", "assertions")


@dataclass(frozen=True, slots=True)
class OptionalField:
    """A field of cases that only some metrics use.

    Args:
        field: The field: "assertions", "threshold", "thresholds.NAME", or "turns" for expectations of earlier turns
            without recorded answers.
        metrics: The metrics that use it, any of which is enough; empty for "turns".
        case_count: Number of cases with the field.
        record: Number of the first record with it, from 1.
        line: Its line, if it has one.
    """

    field: str
    metrics: tuple[str, ...]
    case_count: int
    record: int
    line: int | None


@dataclass(slots=True)
class OptionalFields:
    """Collects the optional fields of a dataset's cases, and counts checks by type.

    Args:
        checks: Number of checks in all cases, by type without "not-".
    """

    _found: dict[str, OptionalField] = field(default_factory=dict)
    checks: dict[str, int] = field(default_factory=dict)

    def take(self, case: Case, record: Record) -> None:
        """Count the optional fields of a case."""
        expects = (turn.references or turn.expected_sources or turn.expected_tools for turn in case.turns[:-1])
        if not case.has_recorded_turns and any(expects):
            self._add(_TURNS, (), record)
        if case.assertions:
            self._add("assertions", ("assertions",), record)
            for check in case.assertions:
                self.checks[check.type] = self.checks.get(check.type, 0) + 1
        own = case.thresholds
        if not own:
            return
        names = list(own)
        if own.keys() >= set(_FOR_BOTH) and own[_FOR_BOTH[0]] == own[_FOR_BOTH[1]]:
            self._add("threshold", _FOR_BOTH, record)
            names = [name for name in names if name not in _FOR_BOTH]
        for name in names:
            self._add(f"thresholds.{name}", (name,), record)

    def _add(self, field: str, metrics: tuple[str, ...], record: Record) -> None:
        before = self._found.get(field)
        if before is None and len(self._found) >= _MAX_NAMES:
            return
        first = (record.number, record.line) if before is None else (before.record, before.line)
        count = 1 if before is None else before.case_count + 1
        self._found[field] = OptionalField(field, metrics, count, *first)

    def found(self) -> tuple[OptionalField, ...]:
        """Return the optional fields, one entry per field."""
        return tuple(self._found.values())


def unused_fields(fields: Iterable[OptionalField], metrics: Sequence[MetricSpec], file: str) -> tuple[Problem, ...]:
    """Return a warning about each optional field that no metric of the run uses.

    Args:
        fields: The optional fields of the cases.
        metrics: The run's metrics.
        file: The dataset's display name.
    """
    # A case names its thresholds' metrics as the run does; its checks go to any metric that makes checks.
    names = {metric.name for metric in metrics} | {metric.kind for metric in metrics if metric.kind == "assertions"}
    return tuple(
        Problem(_sentence(optional, names), f"record {optional.record}, {optional.field}", file, optional.line)
        for optional in fields
        if optional.field != _TURNS and names.isdisjoint(optional.metrics)
    )


def unscored_turns(fields: Iterable[OptionalField], file: str) -> tuple[Problem, ...]:
    """Return a warning about expectations of earlier turns when only recorded answers are scored.

    Args:
        fields: The optional fields of the cases.
        file: The dataset's display name.
    """
    return tuple(
        Problem(
            "expects something of earlier turns that is not scored, because the case records its last answer alone: "
            "record every turn (`assay run --record`), or make each turn a case with its `history`"
            + ("" if optional.case_count == 1 else f" (and {optional.case_count - 1:,} more)"),
            f"record {optional.record}, {_TURNS}",
            file,
            optional.line,
        )
        for optional in fields
        if optional.field == _TURNS
    )


def _sentence(optional: OptionalField, names: set[str]) -> str:
    more = "" if optional.case_count == 1 else f" (and {optional.case_count - 1:,} more)"
    listed = " nor ".join(optional.metrics)
    computed = f"{'neither ' if len(optional.metrics) > 1 else 'no '}{listed}"
    noun = "checks" if optional.field == "assertions" else "a threshold"
    close = nearest(optional.metrics[0], names) if len(optional.metrics) == 1 else None
    hint = f"; did you mean {close!r}?" if close is not None else ": add the metric, or leave the field out"
    return f"holds {noun} that nothing is compared with, because the run computes {computed}{hint}{more}"
