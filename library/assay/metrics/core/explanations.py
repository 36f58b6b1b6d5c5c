"""Sentences that explain why a score fails, with expected and actual values.

A metric may implement `explain(row, score)` to return the sentence for a failed row; otherwise the value and its
threshold make the sentence. The score's `message` has it, beside the stable word `reason`. Quoted texts are
short and clean: reports, `results.json` and `assay runs show --case` have them in full.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from assay.model.run import ScoreStatus
from assay.statistics.thresholds import TOLERANCE, text_apart
from assay.text.unsafe_text import shorten

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from assay.metrics.core.score import Metric, Row
    from assay.model.answers.agent_response import Source
    from assay.model.run import Score

MAX_MESSAGE_CHARS = 600
_TEXT_CHARS = 80
_BEFORE_CHARS = 20  # shown of the common beginning of two long texts
_MOST_NAMED = 5
_MOST_REASONING_CHARS = 300

_SENTENCES: Mapping[str, str] = {
    "agent_error": "the agent failed, so there is no answer to score",
    "aggregate_only": "the metric has a value for the run and none for a row",
    "calls_not_reported": "the answer does not report its tool calls",
    "cold_call": "the first, cold call is left out",
    "embedder_unavailable": "the embedder was not available",
    "embedding_missing": "the embedder returned no vector for the answer or the reference",
    "empty_output": "the answer is empty",
    "invalid_cost": "the cost that the answer reports is negative or too large",
    "invalid_latency": "the measured latency is negative or not finite",
    "invalid_tokens": "the answer reports more tokens than are possible",
    "invalid_vector": "the embedder returned a vector without a direction",
    "invalid_verdict": "the judge's reply is not a valid verdict",
    "metric_failed": "the metric raised an error; the log of the orchestrator has the traceback",
    "missing_input": "the row lacks a number that the formula reads",
    "no_assertions": "the case has no checks",
    "no_embedder": "no embedder was asked",
    "no_expected_sources": "the case names no expected sources",
    "no_expected_tools": "the case names no expected tools",
    "no_function_value": "no client computed the function",
    "no_latency": "no latency was measured",
    "no_price": "the answer reports no cost, and the metric has no prices",
    "no_reference": "the case has no reference",
    "no_tokens": "the answer does not report its tokens",
    "no_verdict": "the row has no verdict of a judge",
    "not_applicable": "the function returned no value for this row",
    "not_finite": "the value is not finite",
    "scoring_memory": "scoring the row needs more memory than it may have",
    "several_verdicts": "the judge's reply holds several verdicts",
    "texts_too_long": "answer and reference are too long to compare",
    "too_few_judges": "fewer than two judges gave a valid verdict",
    "unanswerable": "the question cannot be answered",
}


def explained(metric: Metric, row: Row, score: Score) -> Score:
    """Return the score, a failed one with its explanation."""
    fails = score.passed is False or (score.status is ScoreStatus.SCORED and score.reason)
    if not fails or score.message or row.response.is_failed:
        return score
    explain = getattr(metric, "explain", None)
    sentence = explain(row, score) if explain is not None else ""
    sentence = sentence or threshold_sentence(score, metric.info.unit)
    return dataclasses.replace(score, message=sentence[:MAX_MESSAGE_CHARS]) if sentence else score


def score_message(score: Score) -> str:
    """Return the untrusted sentence on why a score fails or has no value; empty if there is no complaint."""
    if score.message or score.reason:
        return score.message or reason_sentence(score.reason)
    return "" if score.passed is not False else threshold_sentence(score)


def reason_sentence(reason: str) -> str:
    """Return the standard sentence for the reason of a score; empty without one."""
    return _SENTENCES.get(reason) or reason.replace("_", " ")


def threshold_sentence(score: Score, unit: str = "") -> str:
    """Return how a value misses its threshold; empty without either."""
    value, threshold = score.value, score.detail.get("threshold")
    if value is None or threshold is None:
        return ""
    what = f" {unit}" if unit in ("s", "tokens", "USD") else ""
    if abs(value - threshold) <= TOLERANCE:
        return f"{value:g}{what} is not more than {threshold:g}{what}"
    side = "below" if value < threshold else "above"
    return f"{text_apart(value, [threshold], 3)}{what} is {side} the threshold of {threshold:g}{what}"


def with_reasoning(score: Score, sentence: str) -> str:
    """Return a sentence on a score with the reasoning of its judge or function."""
    texts = (judgement.reasoning for judgement in score.judgements)
    text = next(filter(None, texts), "") or str(score.detail.get("reasoning") or "")
    reasoning = shorten(text[:MAX_MESSAGE_CHARS], _MOST_REASONING_CHARS)
    return ": ".join(filter(None, (sentence, reasoning)))


def quoted(text: str, most: int = _TEXT_CHARS) -> str:
    """Return a text in quotes, cut and clean."""
    return f'"{shorten(text[: 4 * most], most)}"' if text.strip() else "(empty)"


def differing(answer: str, expected: str) -> tuple[str, str]:
    """Return two quoted texts; long texts begin shortly before their first difference."""
    pairs = enumerate(zip(answer, expected, strict=False))
    common = next((place for place, (char, other) in pairs if char != other), min(len(answer), len(expected)))
    if common <= _TEXT_CHARS // 2:
        return quoted(answer), quoted(expected)
    start = common - _BEFORE_CHARS
    return quoted(f"…{answer[start:]}"), quoted(f"…{expected[start:]}")


def answer_sentence(answer: str, references: Sequence[str]) -> str:
    """Return the sentence for an answer that matches no reference, with the texts."""
    if not answer.strip():
        return f"the answer is empty; the reference is {quoted(references[0])}"
    shown, expected = differing(answer, references[0])
    if len(references) == 1:
        return f"the answer is {shown}, the reference {expected}"
    others = ", ".join(map(quoted, references[:_MOST_NAMED]))
    return f"the answer {quoted(answer)} is none of the {len(references):,} references: {others}"


def count_of(count: float, noun: str) -> str:
    """Return a count with its noun, e.g. "1 time" or "3 times"."""
    return f"{count:,.15g} {noun}{'' if count == 1 else 's'}"


def listed(names: Iterable[str]) -> str:
    """Return at most five names, separated by commas."""
    all_names = list(names)
    shown = [shorten(name[: 4 * _TEXT_CHARS], _TEXT_CHARS) for name in all_names[:_MOST_NAMED]]
    more = len(all_names) - _MOST_NAMED
    return ", ".join(shown) + (f" and {more:,} more" if more > 0 else "")


def retrieved_sentence(expected: Iterable[str], sources: tuple[Source, ...], k: int | None) -> str:
    """Return the sentence for retrieved sources without an expected one, with the names of both."""
    due = f"none of the expected sources ({listed(expected)})"
    if not sources:
        return f"nothing was retrieved, so {due} is there"
    counted = sources[:k]
    first = f"first {len(counted):,} of {len(sources):,}" if len(counted) < len(sources) else f"{len(sources):,}"
    return f"{due} is among the {first} retrieved ({listed(map(source_name, counted))})"


def source_name(source: Source) -> str:
    """Return the name of a source: its title, else its address, else its id."""
    return source.title or source.uri or source.id or "without a name"
