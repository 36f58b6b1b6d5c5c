"""`--record-verdicts`: what the judge of a run said, as a file that takes the judge's place in another run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from assay.errors import InvalidInputError, Problem
from assay.judging.recorded_verdicts import rubric_sha256
from assay.metrics.checks.judged_checks import JUDGED_CHECKS, criterion_of
from assay.metrics.core.turn_scores import turn_details
from assay.reports.atomic import atomic_writer
from assay.text.equality import is_blank
from assay.text.unsafe_text import clean, json_text
from assay_cli.recording.row_cases import RowCases

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from pathlib import Path

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


async def recorded_on_the_way(
    rows: AsyncIterator[CaseResult], run: Run, cases: Iterable[Case], path: Path, shown: Path
) -> AsyncIterator[CaseResult]:
    """Yield the rows of a run; after the last one the valid verdicts on them are in a file, one a line.

    Args:
        rows: In the order of the dataset.
        run: Theirs.
        cases: The cases of the dataset, in order.
        path: The file, which is replaced.
        shown: The file as the user named it.

    Raises:
        SetupError: The file cannot be written.
    """
    judge = run.settings.judge
    assert judge is not None, "check_recording refuses a run without a judge"
    found = RowCases(cases)
    recorded = missing = 0
    with atomic_writer(path, option=_OPTION) as file:
        async for row in rows:
            case = found.of(row)
            for given in _verdicts(row, case):
                verdict = given.detail["verdict"]
                if verdict.get("status") != "valid" or "scores" not in verdict or _is_left_out(row, given.turn):
                    missing += 1
                    continue
                line = _line(row, given, judge, repeats=run.settings.repeats, case=case)
                file.write(json_text(line) + "\n")
                recorded += 1
            yield row
    lacking = f"; {missing} are not valid and left out" if missing else ""
    click.echo(f"verdicts: {recorded} recorded in {clean(str(shown))}{lacking}", err=True)


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
