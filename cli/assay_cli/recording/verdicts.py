"""`--record-verdicts`: what the judge of a run said, as a file that takes the judge's place in another run."""

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
    from assay.model.run import CaseResult, JudgeSettings, Run
    from assay.specs.model import Spec

_OPTION = "--record-verdicts"


def check_recording(spec: Spec, info: DatasetInfo) -> None:
    """Raise where a run has no verdicts of one judge to record.

    Raises:
        InvalidInputError: It has none.
    """
    judge = spec.settings.judge
    if judge is not None and judge.recorded_file:
        raise InvalidInputError([Problem("has nothing to record: the spec's verdicts are recorded ones", _OPTION)])
    if judge is None or not spec.needs_judge(info.checks):
        message = "needs a judge: name one under `judge` in the spec, and a metric that is computed from its verdicts"
        raise InvalidInputError([Problem(message, _OPTION)])
    if judge.others:
        raise InvalidInputError([Problem("records the verdicts of one judge, and the spec names a jury", _OPTION)])


class VerdictRecording:
    """Records the valid verdicts on a run's rows, one a line.

    Args:
        run: The run; its judge is one that `check_recording` has accepted.
    """

    option = _OPTION

    def __init__(self, run: Run) -> None:
        assert run.settings.judge is not None, "check_recording refuses a run without a judge"
        self._judge, self._repeats = run.settings.judge, run.settings.repeats
        self._recorded = self._invalid = 0

    def take(self, row: CaseResult, case: Case | None, file: IO[str]) -> None:
        """Write the verdicts on a row."""
        for given in _verdicts(row, case):
            verdict = given.detail["verdict"]
            if verdict.get("status") != "valid" or "scores" not in verdict or _is_left_out(row, given.turn):
                self._invalid += 1
                continue
            file.write(json_text(_line(row, given, self._judge, repeats=self._repeats, case=case)) + "\n")
            self._recorded += 1

    def finish(self, file: IO[str]) -> None:
        """Write nothing more: each row was written as it came."""

    def summary(self, shown: Path) -> str:
        """Return how many verdicts were recorded and left out."""
        lacking = f"; {self._invalid} are not valid and left out" if self._invalid else ""
        return f"verdicts: {self._recorded} recorded in {clean(str(shown))}{lacking}"


@dataclass(frozen=True, slots=True)
class _Given:
    """A verdict of a row.

    Args:
        detail: What holds it.
        turn: The turn that it is on; None where the row's last answer alone is scored.
        criterion: That of its check; empty where it is on none.
    """

    detail: Mapping[str, Any]
    turn: int | None
    criterion: str


def _verdicts(row: CaseResult, case: Case | None) -> list[_Given]:
    """Return the verdicts of a row, each once."""
    found: dict[tuple[object, ...], _Given] = {}
    for score in row.scores:
        for turn, detail in turn_details(score.detail):
            checks = detail.get("checks")
            made = zip(case.assertions, checks, strict=False) if case is not None and isinstance(checks, list) else ()
            judged = [(criterion_of(check), part) for check, part in made if check.type in JUDGED_CHECKS]
            for criterion, part in [("", detail), *judged]:
                verdict = part.get("verdict")
                if isinstance(verdict, dict) and "rubric" in verdict:
                    found.setdefault((turn, verdict["rubric"], criterion), _Given(part, turn, criterion))
    return list(found.values())


def _is_left_out(row: CaseResult, turn: int | None) -> bool:
    """Return whether the texts of a turn are missing, because its row would not fit in a message."""
    return turn is not None and (turn >= len(row.turns) or row.turns[turn].left_out)


def _line(row: CaseResult, given: _Given, judge: JudgeSettings, *, repeats: int, case: Case | None) -> dict[str, Any]:
    """Return one verdict as the file holds it, with all that it is on."""
    verdict = given.detail["verdict"]
    own_rubric = bool(judge.rubric_yaml) and verdict["rubric"] == judge.rubric
    asked = row if given.turn is None else row.turns[given.turn]
    return {
        "case": row.case_id,
        **({"repeat": row.repeat_index} if repeats > 1 else {}),
        **({"turn": given.turn} if given.turn is not None else {}),
        "rubric": verdict["rubric"],
        **({"rubric_sha256": rubric_sha256(judge.rubric_yaml)} if own_rubric else {}),
        **({"criterion": given.criterion} if given.criterion else {}),
        "question": asked.input,
        "references": [text for text in asked.references if not is_blank(text)],
        **({"contexts": list(case.contexts)} if case is not None and case.contexts else {}),
        "answer": asked.response.text if asked.response is not None else "",
        "judge": verdict["judge"],
        "verdict": {"reasoning": given.detail.get("reasoning", ""), **verdict["scores"]},
    }
