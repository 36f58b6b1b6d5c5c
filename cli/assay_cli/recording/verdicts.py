"""`--record-verdicts`: the verdicts of a run's judge as a file that replaces the judge in another run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.errors import InvalidInputError, Problem
from assay.judging.recorded_verdicts import rubric_sha256
from assay.metrics.checks.judged_checks import JUDGED_CHECKS, criterion_of
from assay.metrics.core.turn_scores import turn_details
from assay.text.equality import is_blank
from assay.text.unsafe_text import clean, json_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import IO

    from assay.datasets import DatasetInfo
    from assay.model.case import Case
    from assay.model.run import RowResult, Run
    from assay.specs.model import Spec

_OPTION = "--record-verdicts"


def check_recording(spec: Spec, info: DatasetInfo) -> None:
    """Check that a run has verdicts of a single judge to record.

    Raises:
        InvalidInputError: The run has no judge, a jury, or recorded verdicts.
    """
    judges = spec.settings.judges
    if any(judge.recorded_file for judge in judges):
        raise InvalidInputError([Problem("has nothing to record: the spec's verdicts are recorded ones", _OPTION)])
    if not spec.needs_judge(info.checks):
        message = "needs a judge: name one under `judge` in the spec, and a metric that is computed from its verdicts"
        raise InvalidInputError([Problem(message, _OPTION)])
    if len(judges) > 1 or judges[0].is_jury:
        several = "several judges" if len(judges) > 1 else "a jury"
        raise InvalidInputError([Problem(f"records the verdicts of one judge, and the spec names {several}", _OPTION)])


class VerdictRecording:
    """Records the valid verdicts on a run's rows, one per line.

    Args:
        run: The recorded run; `check_recording` has accepted its judge.
    """

    option = _OPTION

    def __init__(self, run: Run) -> None:
        self._rubrics = {metric.rubric: metric.rubric_yaml for metric in run.spec.metrics}
        self._repeats = run.spec.repeats
        self._recorded = self._invalid = 0

    def take(self, row: RowResult, case: Case | None, file: IO[str]) -> None:
        """Write the verdicts on a row."""
        for entry in _verdicts(row, case):
            verdict = entry.detail["verdict"]
            if verdict.get("status") != "valid" or "scores" not in verdict or _is_left_out(row, entry.turn):
                self._invalid += 1
                continue
            file.write(json_text(_line(row, entry, self._rubrics, repeats=self._repeats, case=case)) + "\n")
            self._recorded += 1

    def finish(self, file: IO[str]) -> None:
        """Do nothing: `take` writes each row's verdicts at once."""

    def summary(self, shown: Path) -> str:
        """Return how many verdicts were recorded and left out."""
        lacking = f"; {self._invalid} are not valid and left out" if self._invalid else ""
        return f"verdicts: {self._recorded} recorded in {clean(str(shown))}{lacking}"


@dataclass(frozen=True, slots=True)
class _RowVerdict:
    """A verdict on a row.

    Args:
        detail: Score or check detail that contains the verdict.
        turn: Index of the judged turn; None if only the row's last answer is scored.
        criterion: Criterion of the judged check; empty for a metric's verdict.
    """

    detail: Mapping[str, Any]
    turn: int | None
    criterion: str


def _verdicts(row: RowResult, case: Case | None) -> list[_RowVerdict]:
    """Return the verdicts on a row without duplicates."""
    entries: dict[tuple[object, ...], _RowVerdict] = {}
    for score in row.scores:
        for turn, detail in turn_details(score.detail):
            checks = detail.get("checks")
            pairs = zip(case.assertions, checks, strict=False) if case is not None and isinstance(checks, list) else ()
            judged = [(criterion_of(check), part) for check, part in pairs if check.type in JUDGED_CHECKS]
            for criterion, part in [("", detail), *judged]:
                verdict = part.get("verdict")
                if isinstance(verdict, dict) and "rubric" in verdict:
                    entries.setdefault((turn, verdict["rubric"], criterion), _RowVerdict(part, turn, criterion))
    return list(entries.values())


def _is_left_out(row: RowResult, turn: int | None) -> bool:
    """Return whether the texts of a turn are missing because the row was too large for a message."""
    return turn is not None and (turn >= len(row.turns) or row.turns[turn].left_out)


def _line(
    row: RowResult, entry: _RowVerdict, rubrics: Mapping[str, str], *, repeats: int, case: Case | None
) -> dict[str, Any]:
    """Return the record of one verdict, with the texts that it judges; `rubrics` has the run's own ones by name."""
    verdict = entry.detail["verdict"]
    own_rubric = rubrics.get(verdict["rubric"], "")
    exchange = row if entry.turn is None else row.turns[entry.turn]
    return {
        "case": row.case_id,
        **({"repeat": row.repeat} if repeats > 1 else {}),
        **({"turn": entry.turn} if entry.turn is not None else {}),
        "rubric": verdict["rubric"],
        **({"rubric_sha256": rubric_sha256(own_rubric)} if own_rubric else {}),
        **({"criterion": entry.criterion} if entry.criterion else {}),
        "question": exchange.input,
        "references": [text for text in exchange.references if not is_blank(text)],
        **({"contexts": list(case.contexts)} if case is not None and case.contexts else {}),
        "answer": exchange.response.text if exchange.response is not None else "",
        "judge": verdict["judge"],
        "verdict": {"reasoning": entry.detail.get("reasoning", ""), **verdict["scores"]},
    }
