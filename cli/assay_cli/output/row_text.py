"""Text of one row: question, answer, references and the reason why it failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.metrics.core.turn_scores import scores_by_turn
from assay.model.answers.agent_response import AgentErrorKind
from assay.text.unsafe_text import clean, cut, json_text, shorten
from assay_cli.output.terminal import WIDE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.answers.agent_response import AgentResponse
    from assay.model.run import RowResult, Run, Score

_MOST_REFERENCES = 3
_NAME_CHARS = 40


def row_name(run: Run, row: RowResult, width: int) -> str:
    """Return the case id, with the repeat if there are several; cut to fit a terminal's width."""
    name = shorten(row.case_id, None if width >= WIDE else _NAME_CHARS)
    return f"{name} #{row.repeat}" if run.spec.repeats > 1 else name


def row_lines(row: RowResult, width: int) -> list[str]:
    """Return question, answer and references, one per line of at most `width` characters.

    A conversation shows its failed turns, or its last turn if no single turn failed.
    """
    if not row.turns:
        return _exchange_lines(row.input, row.response, row.references, width)
    shown = [index for index in range(len(row.turns)) if _is_failing(row, index)] or [len(row.turns) - 1]
    lines = []
    for index in shown:
        turn = row.turns[index]
        lines.append(f"turn {index + 1} of {len(row.turns)}")
        lines += _exchange_lines(turn.input, turn.response, turn.references, width)
    return lines


def _is_failing(row: RowResult, index: int) -> bool:
    response = row.turns[index].response
    if response is not None and response.is_failed:
        return True
    return any(score.passed is False for score in turn_scores(row, index))


def turn_scores(row: RowResult, index: int) -> list[Score]:
    """Return the scores of one turn by the metrics that score single turns."""
    return [part for score in row.scores for turn_index, part in scores_by_turn(score) if turn_index == index]


def _exchange_lines(question: str, response: AgentResponse | None, references: Sequence[str], width: int) -> list[str]:
    labelled = [("asked:", question)] if question else []
    if response is not None and not response.is_failed:
        labelled.append(("got:", got_text(response)))
    labelled += [("want:" if not index else "or:", text) for index, text in enumerate(references[:_MOST_REFERENCES])]
    lines = [f"{label:<6} {shorten(text, width - 7)}" for label, text in labelled]
    if (more := len(references) - _MOST_REFERENCES) > 0:
        lines.append(f"       and {more} more references")
    return lines


def got_text(response: AgentResponse) -> str:
    """Return an answer's text, untrusted; without a text, its SQL or structured output."""
    structured = response.sql or (json_text(response.output) if response.output is not None else "")
    return response.text if response.text.strip() else structured or "(empty)"


def error_text(row: RowResult) -> str:
    """Return why a row failed, untrusted; for an exception, only its message."""
    error = row.response.error if row.response is not None else None
    return error.message if error is not None and error.kind is AgentErrorKind.RAISED else row.message or "failed"


def traceback_lines(row: RowResult, width: int | None = None) -> list[str]:
    """Return the traceback lines of a Python agent's exception, or a command's log; empty without either.

    If the agent did not fail, it is the traceback of the first Python metric that raised. Code is not cut to the width
    of a narrow terminal.
    """
    error = row.response.error if row.response is not None else None
    of_metrics = (part.detail.get("traceback") for score in row.scores for _, part in scores_by_turn(score))
    text = error.traceback if error is not None else next(filter(None, of_metrics), "")
    lines = clean(str(text), keep_lines=True).split("\n") if text else []
    return lines if width is None else [cut(line, max(width, WIDE)) for line in lines]


def function_reasons(row: RowResult) -> list[str]:
    """Return the messages of Python metrics that a row did not pass, untrusted, each with the metric's name."""
    reasons: dict[str, None] = {}
    for score in row.scores:
        if score.passed or (score.value is not None and score.passed is None):
            continue
        for _, part in scores_by_turn(score):
            message = (part.message or part.detail.get("reasoning")) if "function" in part.detail else None
            if message:
                reasons.setdefault(f"{score.metric}: {message}")
    return list(reasons)
