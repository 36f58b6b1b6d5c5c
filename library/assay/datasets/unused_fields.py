"""Optional fields of cases that only some metrics read: counted, with a warning where no such metric is computed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assay.errors import Problem
from assay.parsing.names import nearest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from assay.datasets.records import Record
    from assay.model.case import Case
    from assay.model.run import MetricSettings

_MAX_NAMES = 200
_TURNS = "turns"
_FOR_BOTH = ("semantic_similarity", "assertions")


@dataclass(frozen=True, slots=True)
class OptionalField:
    """A field of cases that only some metrics read.

    Args:
        field: The field: "assertions", "threshold", "thresholds.NAME", or "turns" for what earlier turns expect where
            their answers are not recorded.
        metrics: The metrics that read it, any of which is enough; empty for "turns".
        case_count: Cases that have it.
        record: Number of the first record that has it, from 1.
        line: Its line, where it has one.
    """

    field: str
    metrics: tuple[str, ...]
    case_count: int
    record: int
    line: int | None


@dataclass(slots=True)
class OptionalFields:
    """Collects the optional fields of a dataset's cases, one entry a field, and counts checks by type.

    Args:
        checks: Checks of all cases, by type; "not-" is no part of it.
    """

    _found: dict[str, OptionalField] = field(default_factory=dict)
    checks: dict[str, int] = field(default_factory=dict)

    def take(self, case: Case, record: Record) -> None:
        """Count the optional fields of a case."""
        expects = (turn.references or turn.expected_sources or turn.expected_tools for turn in case.turns[:-1])
        if not case.recorded_turns and any(expects):
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
        """Return one entry for each field."""
        return tuple(self._found.values())


def unused_fields(fields: Iterable[OptionalField], metrics: Sequence[MetricSettings], file: str) -> tuple[Problem, ...]:
    """Return a warning about each optional field that no metric of a run reads.

    Args:
        fields: The optional fields of the cases.
        metrics: The run's metrics.
        file: The dataset, for people.
    """
    # A case names the metrics of its thresholds as the run does; its checks go to whatever metric makes checks.
    names = {metric.name for metric in metrics} | {metric.kind for metric in metrics if metric.kind == "assertions"}
    return tuple(
        Problem(_sentence(each, names), f"record {each.record}, {each.field}", file, each.line)
        for each in fields
        if each.field != _TURNS and names.isdisjoint(each.metrics)
    )


def unscored_turns(fields: Iterable[OptionalField], file: str) -> tuple[Problem, ...]:
    """Return a warning about earlier turns of conversations that expect something, where only recorded answers count.

    Args:
        fields: The optional fields of the cases.
        file: The dataset, for people.
    """
    return tuple(
        Problem(
            "expects something of earlier turns that is not scored, because the case records its last answer alone: "
            "record every turn (`assay run --record`), or make each turn a case with its `history`"
            + ("" if each.case_count == 1 else f" (and {each.case_count - 1:,} more)"),
            f"record {each.record}, {_TURNS}",
            file,
            each.line,
        )
        for each in fields
        if each.field == _TURNS
    )


def _sentence(each: OptionalField, names: set[str]) -> str:
    more = "" if each.case_count == 1 else f" (and {each.case_count - 1:,} more)"
    wanted = " nor ".join(each.metrics)
    computed = f"{'neither ' if len(each.metrics) > 1 else 'no '}{wanted}"
    what = "checks" if each.field == "assertions" else "a threshold"
    close = nearest(each.metrics[0], names) if len(each.metrics) == 1 else None
    hint = f"; did you mean {close!r}?" if close is not None else ": add the metric, or leave the field out"
    return f"holds {what} that nothing is compared with, because the run computes {computed}{hint}{more}"
