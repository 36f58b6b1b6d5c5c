"""The score of a conversation, combined from a metric's scores of its turns.

A turn counts if it has what the metric compares with; a conversation is skipped only if no turn counts. The value is
the mean of the turns' values, or the worst of them. If a threshold decides, the value is compared with it; otherwise
the row passes if every turn does. A turn that could not be scored is an error of the row: a mean over the others would
hide it.

`detail.turns` has the score of each turn; the score has the judgements of all turns. The rest of the detail is that of
the worst turn; or, with the mean, the means of the parts of the value and the words that are equal in all turns.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from assay.metrics.core.explanations import threshold_sentence
from assay.metrics.core.score import score_from_json, score_to_json
from assay.model.judgement import judgement_to_json
from assay.model.run import Score, ScoreStatus
from assay.statistics.exact_sum import exact_mean
from assay.statistics.thresholds import holds

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from assay.metrics.core.score import Metric
    from assay.model.judgement import Judgement

TURNS = "turns"
"""The field of a score's detail with the scores of turns."""

_MOST_DETAIL_CHARS = 500_000
_LONGEST_TEXT_CHARS = 100
_OF_A_TURN = frozenset({"references", "expected_sources", "expected_tools"})
_AGENT_ERROR = "agent_error"


def scores_turns(metric: Metric) -> bool:
    """Return whether a metric compares an answer with what its turn expects."""
    return not _OF_A_TURN.isdisjoint(metric.info.reads) and not getattr(metric, "of_conversation", False)


def turn_details(detail: Mapping[str, Any]) -> Iterator[tuple[int | None, Mapping[str, Any]]]:
    """Yield the details of a conversation's turns, each with its turn; for any other row, its detail."""
    turns = detail.get(TURNS)
    if not isinstance(turns, list):
        yield None, detail
        return
    for turn in turns:
        yield turn["turn_index"], turn.get("detail", {})


def conversation_score(metric: Metric, scores: Sequence[Score], turn_score: str) -> Score:
    """Return the score of a conversation.

    Args:
        metric: The metric.
        scores: Its scores of all turns, in order.
        turn_score: "mean" or "worst".
    """
    counted = [(index, score) for index, score in enumerate(scores) if score.status is not ScoreStatus.SKIPPED]
    unknown = next((score for score in scores if score.detail.get("undecided")), None)
    if not counted:
        return unknown or scores[-1]
    detail = {TURNS: _documents(counted)}
    judgements = tuple(
        replace(judgement, turn_index=index) for index, score in counted for judgement in score.judgements
    )
    errors = [score for _, score in counted if score.status is ScoreStatus.ERROR]
    if errors:
        first = next((score for score in errors if score.reason == _AGENT_ERROR), errors[0])
        passed = False if any(score.passed is False for score in errors) else None
        return Score(
            metric.name,
            ScoreStatus.ERROR,
            passed=passed,
            reason=first.reason,
            detail={**first.detail, **detail},
            message=first.message,
            judgements=judgements,
        )
    scored = replace(_scored(metric, [score for _, score in counted], turn_score, detail), judgements=judgements)
    if unknown is None or scored.passed is False:
        return scored
    # The verdicts of other turns do not decide the row.
    detail = {**scored.detail, "undecided": unknown.detail["undecided"]}
    return replace(scored, passed=None, reason=unknown.reason, detail=detail, message=unknown.message)


def _scored(metric: Metric, scores: Sequence[Score], turn_score: str, turns: Mapping[str, Any]) -> Score:
    values = [score.value for score in scores if score.value is not None]
    lowest = values.index(max(values) if metric.info.rule == "at_most" else min(values))
    if turn_score == "worst":
        value, detail = values[lowest], scores[lowest].detail
    else:
        value, detail = exact_mean(values), _means([score.detail for score in scores])
    passed = _passed(metric, value, scores)
    failures = [score.reason for score in scores if score.passed is False and score.reason]
    reason = scores[lowest].reason if passed is None else "" if passed or not failures else failures[0]
    message = next((score.message for score in scores if not score.passed and score.message), "")
    if passed is False:
        own = threshold_sentence(Score(metric.name, ScoreStatus.SCORED, value, passed, detail=detail), metric.info.unit)
        if own and len(scores) > 1:  # the value decides, not single turns
            message = f"{turn_score} of {len(scores)} turns: {own}"
    shown = message if passed is False else ""
    return Score(metric.name, ScoreStatus.SCORED, value, passed, reason, {**detail, **turns}, shown)


def _passed(metric: Metric, value: float, scores: Sequence[Score]) -> bool | None:
    if all(score.passed is None for score in scores):
        return None
    thresholds = [score.detail["threshold"] for score in scores if "threshold" in score.detail]
    if len(thresholds) < len(scores):
        return all(score.passed is not False for score in scores)
    return holds(value, metric.info.rule, thresholds[0])


def _means(details: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the means of numbers that all details have, and the words that are equal; counts belong to one turn."""
    means: dict[str, Any] = {}
    for name, first in details[0].items():
        values: list[Any] = [detail.get(name) for detail in details]
        if name != "threshold" and all(isinstance(value, float) for value in values):
            means[name] = exact_mean(values)
        elif all(isinstance(value, dict) for value in values):
            means[name] = _means(values)
        elif (name == "threshold" or isinstance(first, str | bool)) and all(value == first for value in values):
            means[name] = first
    return means


def _documents(counted: Sequence[tuple[int, Score]]) -> list[dict[str, Any]]:
    documents = [{"turn_index": index, **score_to_json(replace(score, judgements=()))} for index, score in counted]
    for document in documents:
        del document["metric"]
    return documents


def scores_by_turn(score: Score) -> Iterator[tuple[int | None, Score]]:
    """Yield the scores of a conversation's turns, each with its turn; for any other row, the score itself."""
    if TURNS not in score.detail:
        yield None, score
        return
    for document in score.detail[TURNS]:
        index = document["turn_index"]
        judgements = tuple(judgement for judgement in score.judgements if judgement.turn_index == index)
        yield index, replace(score_from_json({**document, "metric": score.metric}), judgements=judgements)


def fitting(scores: Mapping[str, Score]) -> Mapping[str, Score]:
    """Return a conversation's scores by metric, without the texts of very long turn details and judgements.

    With these texts, the row would not fit in a message.
    """
    documents = [document for score in scores.values() for document in score.detail.get(TURNS, ())]
    judgements = [judgement_to_json(judgement) for score in scores.values() for judgement in score.judgements]
    if len(json.dumps([documents, judgements], ensure_ascii=False)) <= _MOST_DETAIL_CHARS:
        return scores
    for document in documents:
        document["detail"] = _without_texts(document.get("detail", {}))
    return {
        name: replace(score, judgements=tuple(map(_without_reasoning, score.judgements)))
        for name, score in scores.items()
    }


def _without_reasoning(judgement: Judgement) -> Judgement:
    reasoning = judgement.reasoning if len(judgement.reasoning) <= _LONGEST_TEXT_CHARS else ""
    return replace(judgement, reasoning=reasoning, calls=())


def _without_texts(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {name: _without_texts(part) for name, part in value.items()}
        return {name: part for name, part in kept.items() if part is not None}
    if isinstance(value, list | tuple):
        return [part for part in map(_without_texts, value) if isinstance(part, dict)]
    return None if isinstance(value, str) and len(value) > _LONGEST_TEXT_CHARS else value
