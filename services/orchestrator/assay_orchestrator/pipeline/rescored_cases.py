"""Cases that are scored again with the stored answers of an earlier run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from assay.model.answers.agent_response import AgentErrorKind, AgentResponse, error_response

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.case import Case


def rescored_case(case: Case, run_id: str, answers: Sequence[Sequence[AgentResponse]]) -> Case:
    """Return a case with the stored answers of a run in place of those recorded in its dataset.

    A row without a stored answer gets an error: it is scored like a failed agent, never omitted.

    Args:
        case: The case in the dataset.
        run_id: The run.
        answers: By repeat, the answers to its turns; empty if the run has none.
    """
    missing = error_response(AgentErrorKind.NOT_RECORDED, f"run {run_id} has no answer for case {case.case_id}")
    rows = [tuple(row) or (missing,) for row in answers]
    earlier = tuple(row[:-1] for row in rows) if len(case.turns) > 1 and not _are_stand_ins(case, rows) else ()
    first, *others = (row[-1] for row in rows)
    return replace(case, recorded=first, recorded_repeats=tuple(others), recorded_turns=earlier)


def _are_stand_ins(case: Case, rows: Sequence[Sequence[AgentResponse]]) -> bool:
    """Return whether the answers to earlier turns are references that replay used for lack of recorded answers."""
    if case.recorded is None or case.recorded_turns:
        return False
    expected = [AgentResponse(text=next(iter(turn.references), "")) for turn in case.turns[:-1]]
    return all(answer == stand_in for row in rows for answer, stand_in in zip(row[:-1], expected, strict=False))
