"""Full text view of one row, nothing cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.metrics.core.turn_scores import TURNS
from assay.model.answers.interrupts import interrupt_text
from assay.model.judgement import judgement_to_json
from assay.reports.words.expected_text import expected_parts
from assay.reports.words.judging_text import judge_reasons
from assay.reports.words.metric_text import seconds_text
from assay.text.unsafe_text import clean, json_text, shorten
from assay_cli.output.row_blocks import score_rows, verdict_word
from assay_cli.output.row_text import got_text, traceback_lines, turn_scores
from assay_cli.output.terminal import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.model.answers.agent_response import AgentResponse, Attempt, Source, Usage
    from assay.model.run import RowAttempt, RowResult, Run, Score


_MADE_BY = ("version", "function", "model", "revision", "precision", "engine", "vectors", "prompt_hash")
"""Entries of a score's detail that name its producer; they share the last line of a score."""


def case_view(run: Run, row: RowResult, earlier: Sequence[RowAttempt]) -> str:
    """Return one row as text.

    Args:
        row: The row with its answer.
        earlier: Earlier attempts that were replaced or interrupted, oldest first.
    """
    repeat = f"  repeat {row.repeat} of {run.spec.repeats}" if run.spec.repeats > 1 else ""
    category = f"  category {shorten(row.category, None)}" if row.category else ""
    tags = f"  tags {shorten(', '.join(row.tags), None)}" if row.tags else ""
    lines = [
        f"{shorten(row.case_id, None)}{repeat}{category}{tags}  {verdict_word(row)}",
        *_part("message", row.message),
    ]
    for index, turn in enumerate(row.turns):
        exchange = _exchange(turn.input, turn.response, turn.references, turn.expected)
        if turn.left_out:
            exchange.append("answer and references are missing: the row is too large for a message")
        elif turn.response is None:
            exchange.append("not asked")
        scores = _block("scores", _scores(run, turn_scores(row, index)))
        lines += _block(f"turn {index + 1} of {len(row.turns)}", [*exchange, *scores])
    if row.turns:
        of_case = {name: value for name, value in row.expected.items() if name not in row.turns[-1].expected}
        lines += _expected(of_case)
    else:
        lines += _exchange(row.input, row.response, row.references, row.expected)
    lines += _block("scores", _scores(run, row.scores))
    lines += _block("judge", [shorten(reason, None) for reason in judge_reasons(row)])
    lines += _part("time", _time(row))
    lines += _block("traceback", traceback_lines(row))
    lines += _block("earlier attempts", [_attempt(attempt) for attempt in earlier])
    return "\n".join(lines)


def _exchange(
    question: str, response: AgentResponse | None, references: Sequence[str], expected: Mapping[str, Any]
) -> list[str]:
    """Return the lines of question, answer, references, other expectations and the rest of the answer."""
    lines = _part("asked", question)
    if response is not None and (not response.is_failed or response.text):
        lines += _part("got", got_text(response))
    for reference in references:
        lines += _part("want", reference)
    lines += _expected(expected)
    return lines + ([line for part in _answer(response) for line in part] if response is not None else [])


def _expected(expected: Mapping[str, Any]) -> list[str]:
    return [
        line
        for label, text in expected_parts(expected)
        for line in _block(shorten(label, None), [shorten(part, None) for part in text.split("\n")])
    ]


def _part(label: str, text: str) -> list[str]:
    """Return a label and a text with its further lines aligned below; nothing without a text."""
    if not text:
        return []
    first, *more = clean(text, keep_lines=True).split("\n")
    return [f"{label + ':':<7} {first}", *(f"{'':<7} {line}".rstrip() for line in more)]


def _block(label: str, lines: Sequence[str]) -> list[str]:
    return [f"{label}:", *(f"  {line}".rstrip() for line in lines)] if lines else []


def _scores(run: Run, scores: Sequence[Score]) -> list[str]:
    """Return each metric's value, verdict and details; scores of turns are printed with their turns."""
    lines = []
    for score, line in zip(scores, table(score_rows(run, scores)).split("\n") if scores else (), strict=True):
        lines.append(line)
        detail = {name: _value(value) for name, value in score.detail.items() if name != TURNS and value is not None}
        lines += [f"  {shorten(name, None)}: {value}" for name, value in detail.items() if name not in _MADE_BY]
        made_by = ", ".join(f"{name} {detail[name]}" for name in _MADE_BY if name in detail)
        lines += [f"  made by: {made_by}"] if made_by else []
        for judgement in score.judgements if TURNS not in score.detail else ():
            lines += [f"  reasoning: {shorten(judgement.reasoning, None)}"] if judgement.reasoning else []
            verdict = {name: value for name, value in judgement_to_json(judgement).items() if name != "reasoning"}
            lines.append(f"  verdict: {json_text(verdict)}")
    return lines


def _value(value: object) -> str:
    return shorten(value, None) if isinstance(value, str) else json_text(value)


def _time(row: RowResult) -> str:
    parts = [f"agent {seconds_text(row.latency_ms / 1000)}"] if row.latency_ms is not None else []
    if row.response is not None and row.response.cold:
        parts.append("(first call, cold)")
    if row.duration_ms is not None:
        parts.append(f"whole row {seconds_text(row.duration_ms / 1000)}")
    if row.started_at:
        parts.append(f"started {row.started_at}")
    return "  ".join(parts)


def _answer(response: AgentResponse) -> Iterator[list[str]]:
    """Yield the rest of an answer: structured output, sources, tool calls, tokens, failed attempts."""
    yield _part("thoughts", shorten(response.thoughts, None))
    yield _part("sql", response.sql or "")
    if response.output is not None:
        yield _part("output", json_text(response.output))
    yield _block("sources", [_source(number, source) for number, source in enumerate(response.sources, 1)])
    yield _block("retrieved", [_source(number, item) for number, item in enumerate(response.retrieved or (), 1)])
    calls = [
        shorten(
            f"{number}. {call.name}({call.arguments_json})"
            f"{' failed' if call.is_error else ''}{f' -> {call.result_json}' if call.result_json else ''}",
            None,
        )
        for number, call in enumerate(response.tool_calls or (), 1)
    ]
    yield _block("tool calls", calls)
    yield _block("interrupts", [shorten(interrupt_text(interrupt), None) for interrupt in response.interrupts])
    yield _part("model", shorten(response.model, None))
    if response.usage is not None:
        yield _part("usage", _usage(response.usage))
    yield _block("attempts that failed before", [_failed_attempt(attempt) for attempt in response.attempts])
    if response.metadata:
        yield _part("metadata", json_text(response.metadata))


def _failed_attempt(attempt: Attempt) -> str:
    error = shorten(f"{attempt.error.kind.value}: {attempt.error.message}", None)
    return f"{seconds_text(attempt.latency_ms / 1000)}  {error}"


def _source(number: int, source: Source) -> str:
    score = f"  score {source.score:.4g}" if source.score is not None else ""
    names = "  ".join(shorten(text, None) for text in (source.title, source.id, source.uri, source.content) if text)
    return f"{number}. {names}{score}"


def _usage(usage: Usage) -> str:
    counts = {name: getattr(usage, name) for name in usage.__slots__}
    return "  ".join(f"{name} {value:,}" for name, value in counts.items() if value is not None)


def _attempt(attempt: RowAttempt) -> str:
    result = attempt.result
    outcome = f"  {result.status.value}  {shorten(result.message, None)}" if result is not None else ""
    return f"{attempt.outcome.value}  {attempt.at}{outcome}".rstrip()
