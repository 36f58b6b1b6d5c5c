"""`--record-verdicts`: the verdicts of a run's judge as a file that replaces the judge in another run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.errors import InvalidInputError, Problem
from assay.judging.recorded_verdicts import rubric_sha256
from assay.metrics.checks.judged_checks import criterion_of
from assay.text.equality import is_blank
from assay.text.unsafe_text import clean, json_text

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import IO

    from assay.datasets import DatasetInfo
    from assay.model.case import Case
    from assay.model.judgement import Judgement
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
        for judgement, criterion in _judgements(row, case):
            if not judgement.is_valid or _is_left_out(row, judgement.turn_index):
                self._invalid += 1
                continue
            file.write(
                json_text(_line(row, judgement, criterion, self._rubrics, repeats=self._repeats, case=case)) + "\n"
            )
            self._recorded += 1

    def finish(self, file: IO[str]) -> None:
        """Do nothing: `take` writes each row's verdicts at once."""

    def summary(self, shown: Path) -> str:
        """Return how many verdicts were recorded and left out."""
        lacking = f"; {self._invalid} are not valid and left out" if self._invalid else ""
        return f"verdicts: {self._recorded} recorded in {clean(str(shown))}{lacking}"


def _judgements(row: RowResult, case: Case | None) -> list[tuple[Judgement, str]]:
    """Return the verdicts on a row without duplicates, each with the criterion of its check, empty for a metric's."""
    judgements: dict[tuple[object, ...], tuple[Judgement, str]] = {}
    for score in row.scores:
        for judgement in score.judgements:
            criterion = ""
            if judgement.check_index is not None:
                if case is None:
                    continue
                criterion = criterion_of(case.assertions[judgement.check_index])
            place = judgement.turn_index, judgement.rubric, criterion
            judgements.setdefault(place, (judgement, criterion))
    return list(judgements.values())


def _is_left_out(row: RowResult, turn: int | None) -> bool:
    """Return whether the texts of a turn are missing because the row was too large for a message."""
    return turn is not None and (turn >= len(row.turns) or row.turns[turn].left_out)


def _line(
    row: RowResult,
    judgement: Judgement,
    criterion: str,
    rubrics: Mapping[str, str],
    *,
    repeats: int,
    case: Case | None,
) -> dict[str, Any]:
    """Return the record of one verdict, with the texts that it judges; `rubrics` has the run's own ones by name."""
    own_rubric = rubrics.get(judgement.rubric, "")
    exchange = row if judgement.turn_index is None else row.turns[judgement.turn_index]
    return {
        "case": row.case_id,
        **({"repeat": row.repeat} if repeats > 1 else {}),
        **({"turn": judgement.turn_index} if judgement.turn_index is not None else {}),
        "rubric": judgement.rubric,
        **({"rubric_sha256": rubric_sha256(own_rubric)} if own_rubric else {}),
        **({"criterion": criterion} if criterion else {}),
        "question": exchange.input,
        "references": [text for text in exchange.references if not is_blank(text)],
        **({"contexts": list(case.contexts)} if case is not None and case.contexts else {}),
        "answer": exchange.response.text if exchange.response is not None else "",
        "judge": judgement.judge,
        "verdict": {"reasoning": judgement.reasoning, **judgement.scores},
    }
