"""Outcomes of cases, over all their repeats, and of gates."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import TYPE_CHECKING, Any

from assay.metrics.core.explanations import reason_sentence
from assay.model.answers.agent_response import FAILED_STATUSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Row = Mapping[str, Any]


class Outcome(StrEnum):
    """Outcome of a row or a case; an error is an agent error, or a metric error that leaves no verdict.

    An agent that waits for a person is an error.
    """

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    NO_VERDICT = "no verdict"


@dataclass(frozen=True, slots=True)
class CaseOutcome:
    """Outcome of a case.

    Args:
        outcome: Of all its runs: a failed one is more than an error, and only a case that always passed has passed.
        row: The first run with that outcome.
        passed: How many runs passed.
        runs: How many there are.
        time_s: How long the agent took in all of them, in seconds, as far as it is known.
        shortfall: How far it missed thresholds, as a share of each, in the mean of its runs.
    """

    outcome: Outcome
    row: Row
    passed: int
    runs: int
    time_s: float
    shortfall: float

    @property
    def message(self) -> str:
        """Why the case did not pass, untrusted; for repeated cases, the number of passed repeats."""
        message = self.row.get("message") or _undecided(self.row) if self.outcome is not Outcome.PASSED else ""
        if self.runs == 1:
            return message
        return f"{self.passed} of {self.runs} runs passed" + (f": {message}" if message else "")


def shown_exchange(row: Row) -> Mapping[str, Any]:
    """Return whose question, answer and references people are shown: of a conversation the first turn that failed.

    Where none failed by itself that is the row, which has those of the last turn.
    """
    turns: Sequence[Mapping[str, Any]] = row.get("turns") or ()
    for turn in turns:
        if turn["status"] in FAILED_STATUSES or any(score["passed"] is False for score in turn["scores"].values()):
            return turn
    return row


def outcome_of_row(row: Row) -> Outcome:
    """Return the outcome of a row."""
    if row["status"] in FAILED_STATUSES:
        return Outcome.ERROR
    if row["passed"] is not None:
        return Outcome.PASSED if row["passed"] else Outcome.FAILED
    failed = any(score["status"] == "error" for score in row["scores"].values())
    return Outcome.ERROR if failed else Outcome.NO_VERDICT


def case_outcomes(rows: Iterable[Row]) -> Iterator[CaseOutcome]:
    """Yield what came of each case.

    Args:
        rows: In dataset order, so that the runs of a case follow each other.
    """
    for _, group in groupby(rows, key=lambda row: row["case_id"]):
        yield _folded(list(group))


def gate_outcome(gate: Mapping[str, Any]) -> Outcome:
    """Return the outcome of a gate, or of a threshold that decides."""
    return _GATES[gate["outcome"]]


def worst_first(cases: Iterable[CaseOutcome], count: int) -> list[CaseOutcome]:
    """Return the `count` cases that missed their thresholds most."""
    return heapq.nlargest(count, cases, key=lambda case: case.shortfall)


_GATES = {"pass": Outcome.PASSED, "fail": Outcome.FAILED, "incomplete": Outcome.ERROR}
_URGENCY = (Outcome.FAILED, Outcome.ERROR, Outcome.NO_VERDICT, Outcome.PASSED)


def _folded(rows: Sequence[Row]) -> CaseOutcome:
    outcomes = [outcome_of_row(row) for row in rows]
    outcome = min(outcomes, key=_URGENCY.index)
    return CaseOutcome(
        outcome,
        rows[outcomes.index(outcome)],
        outcomes.count(Outcome.PASSED),
        len(rows),
        sum((row["latency_ms"] or 0.0) for row in rows) / 1000,
        sum(_shortfall(row) for row in rows) / len(rows),
    )


def _shortfall(row: Row) -> float:
    """Return by how much a row missed its thresholds in total; a verdict without a threshold counts as 1."""
    return sum(_missed(score) for score in row["scores"].values() if score["passed"] is False)


def _missed(score: Mapping[str, Any]) -> float:
    threshold = (score.get("detail") or {}).get("threshold")
    if score["value"] is None or not isinstance(threshold, int | float) or not threshold:
        return 1.0
    return float(abs(score["value"] - threshold) / abs(threshold))


def _undecided(row: Row) -> str:
    reasons = [
        f"{name}: {score.get('message') or reason_sentence(score['reason'])}"
        for name, score in row["scores"].items()
        if score.get("reason")
    ]
    return "; ".join(reasons) or "no metric gave a verdict"
