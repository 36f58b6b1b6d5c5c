"""A run's stored events and rows, as its watchers and readers see them."""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

from assay.errors import NotFoundError
from assay.model.run import TurnResult
from assay.wire.pages import MAX_PAGE_BYTES, first_page
from assay.wire.run import result_to_wire, turn_to_wire
from assay_orchestrator.store.rows import attempts, found_rows, results
from assay_orchestrator.store.runs import datasets, runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    import sqlalchemy as sa

    from assay.model.answers.agent_response import AgentResponse
    from assay.model.run import RowAttempt, RowResult, StateChanged
    from assay.model.scope import Scope
    from assay.v1 import row_pb2 as pb
    from assay_orchestrator.store.rows.found_rows import Position, RowQuery
    from assay_orchestrator.store.runs.datasets import AskedTurn, Questions

_CUT_CHARS = 200


def read_events(
    connection: sa.Connection, scope: Scope, run_id: str, after: int, count: int, *, with_answers: bool
) -> list[StateChanged | RowResult]:
    """Return up to `count` current events after a sequence number, in order and without gaps.

    Raises:
        NotFoundError: The scope cannot reach the run, or it was deleted.
    """
    runs.require_run(connection, scope, run_id)
    rows: Sequence[RowResult] = results.read_sequence(connection, run_id, after, count)
    changes = runs.read_state_changes(connection, run_id, after, count)
    if with_answers:
        rows = _complete(connection, run_id, rows)
    events: list[StateChanged | RowResult] = [*rows, *changes]
    events.sort(key=lambda event: event.sequence)
    return events[:count]


def read_page(
    connection: sa.Connection,
    scope: Scope,
    run_id: str,
    query: RowQuery,
    after: Position | None,
    count: int,
    *,
    with_answers: bool = True,
) -> tuple[list[pb.RowResult], Position | None]:
    """Return the messages of up to `count` rows of a query, and the position of the last if more follow.

    A page may end early to fit in one message.

    Args:
        connection: The store.
        scope: The scope of the reader.
        run_id: The run.
        query: Which rows, in which order.
        after: The position of the row before the first; None for the beginning.
        count: Maximum number of rows.
        with_answers: Whether the rows include answers, inputs and references.

    Raises:
        NotFoundError: The scope cannot reach the run, or it was deleted; its rows may still exist.
    """
    positioned = found_rows.find_rows(connection, scope, run_id, query, after, count + 1)
    rows = [row for row, _ in positioned[:count]]
    page = first_page(map(result_to_wire, _complete(connection, run_id, rows) if with_answers else rows))
    return page, positioned[len(page) - 1][1] if len(positioned) > len(page) else None


def find_case(connection: sa.Connection, scope: Scope, run_id: str, case_id: str) -> int:
    """Return the position of a case in a run's dataset.

    Raises:
        NotFoundError: The scope cannot reach the run, or the run's dataset lacks the case.
    """
    runs.require_run(connection, scope, run_id)
    case_index = datasets.find_case(connection, run_id, case_id)
    if case_index is None:
        raise NotFoundError(f"run {run_id} has no case {case_id!r}", reason="CASE_NOT_FOUND")
    return case_index


def read_attempts(connection: sa.Connection, scope: Scope, run_id: str, case_id: str) -> list[RowAttempt]:
    """Return every attempt at the rows of a case, by repeat, oldest first, the current attempt last.

    Raises:
        NotFoundError: The scope cannot reach the run, or the run's dataset lacks the case.
    """
    return attempts.read_attempts(connection, run_id, find_case(connection, scope, run_id, case_id))


def _complete(connection: sa.Connection, run_id: str, rows: Sequence[RowResult]) -> list[RowResult]:
    """Return the rows with their answers, inputs and references."""
    if not rows:
        return []
    indexes = sorted({row.case_index for row in rows})
    questions = datasets.read_questions(connection, run_id, indexes)
    answers = results.read_answers(connection, run_id, indexes)
    return [_completed(row, questions[row.case_index], answers.get((row.case_index, row.repeat), ())) for row in rows]


def _completed(row: RowResult, questions: Questions, answers: Sequence[AgentResponse]) -> RowResult:
    last_turn = questions.turns[-1]
    row = dataclasses.replace(
        row,
        response=answers[-1] if answers else None,
        input=last_turn.input,
        references=last_turn.references,
        place=questions.place,
        expected=questions.expected,
    )
    return row if len(questions.turns) == 1 else dataclasses.replace(row, turns=_turns(row, questions.turns, answers))


def _turns(row: RowResult, questions: Sequence[AskedTurn], answers: Sequence[AgentResponse]) -> list[TurnResult]:
    """Return the turns of a conversation; turns that no longer fit in the row's message lose their texts."""
    room = MAX_PAGE_BYTES - result_to_wire(row).ByteSize()
    turns = []
    for question, answer in itertools.zip_longest(questions, answers[: len(questions)]):
        turn = TurnResult(question.input, question.references, answer, expected=question.expected)
        size = turn_to_wire(turn).ByteSize()
        if size > room:
            turn = TurnResult(question.input[:_CUT_CHARS], left_out=True)
            size = turn_to_wire(turn).ByteSize()
        room -= size
        turns.append(turn)
    return turns
