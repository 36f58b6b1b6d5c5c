"""The scores of conversations: which turns count, what they come to, and what of them is kept."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from assay.metrics import METRICS
from assay.metrics.core.embedding import EmbeddingSettings
from assay.metrics.core.info import DEFAULT_MODEL
from assay.metrics.core.row_verdict import row_message
from assay.metrics.core.row_work import row_work
from assay.metrics.core.score import EmbeddingEvidence, JudgeEvidence, Row, score_from_json, score_to_json
from assay.metrics.core.similarity import cosine
from assay.metrics.core.turn_scores import TURNS, scores_turns
from assay.metrics.rows.row_scores import score_row
from assay.model.answers.agent_response import (
    AgentError,
    AgentErrorKind,
    AgentResponse,
    AgentStatus,
    Source,
    ToolCall,
    Usage,
)
from assay.model.case import Case, ExpectedTool, Turn
from assay.model.judgement import Judgement, JudgementCall, JudgementStatus
from assay.model.run import RowResult, ScoreStatus
from assay_orchestrator.pipeline.conversations import scored_row, scored_turns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.metrics.core.score import Metric
    from assay.model.run import Score

FAILED = AgentResponse(status=AgentStatus.ERROR, error=AgentError(AgentErrorKind.RAISED, "no"))


def turn(reference: str = "", **expected: Any) -> Turn:
    """Return a turn."""
    return Turn("q", references=(reference,) if reference else (), **expected)


def said(text: str, **fields: Any) -> AgentResponse:
    """Return an answer."""
    return AgentResponse(text=text, **fields)


def talk(
    turns: Sequence[Turn], answers: Sequence[AgentResponse], *metrics: Metric, how: str = "mean", **case: Any
) -> Row:
    """Return the row of a conversation; an answer's vector is that of its first letter."""
    asked = Case("talk", tuple(turns), **case)
    scored = scored_turns(asked, answers, metrics, how)

    def vector(text: str) -> Any:
        return np.asarray([1, 0] if text.startswith("a") else [0, 1], dtype=np.float32)

    evidence = [
        (
            {
                settings: EmbeddingEvidence(
                    vector(each.response.text),
                    {text: cosine(vector(each.response.text), vector(text)) for text in each.case.references},
                    settings=settings,
                    revision="r",
                )
                for settings in each.embeddings
            },
            {rubric: JudgeEvidence({"reasoning": "r", "score": len(each.response.text)}) for rubric in each.rubrics},
        )
        for each in scored
    ]
    return scored_row(asked, answers, scored, evidence, how, [{} for _ in scored])


def values(score: Score) -> list[tuple[int, float | None]]:
    """Return the turns of a score with their values."""
    return [(each["turn_index"], each.get("value")) for each in score.detail[TURNS]]


def result(row: Row, scores: Sequence[Score]) -> RowResult:
    """Return the stored result of a row."""
    return RowResult("talk", 0, 1, "", row.response.status, None, scores, row.response.latency_ms, "")


def test_which_metrics_look_at_every_turn(metric: Callable[..., Metric]) -> None:
    """Metrics that use references, sources or tool calls score every turn; others do not."""
    names = {name for name in METRICS if scores_turns(metric(name, **METRICS[name].info.example))}
    assert names == {
        "combined_score", "exact_match", "hit_rate", "judge_score", "mrr", "python", "quality", "rouge",
        "satisfaction", "semantic_similarity", "tool_calls",
    }  # fmt: skip


@pytest.mark.parametrize(("how", "value"), [("mean", 0.5), ("worst", 0.0)])
def test_the_mean_or_the_worst_of_the_turns(metric: Callable[..., Metric], how: str, value: float) -> None:
    """Each turn with a reference counts; a wrong one fails the row, and its reason names it."""
    exact = metric("exact_match")
    row = talk([turn("a"), turn("b"), turn()], [said("x"), said("b"), said("c")], exact, how=how)
    (score,) = scores = score_row([exact], row)
    assert (score.value, score.passed) == (value, False)
    assert values(score) == [(0, 0.0), (1, 1.0)]
    assert score.detail["version"] == "1"
    assert row_message(row.response, scores) == 'exact_match: the answer is "x", the reference "a" (turn 1)'


def test_only_the_last_answer_counts_where_the_spec_says_so(metric: Callable[..., Metric]) -> None:
    """`turns: last` is the row of the last turn, in the shape of a single question."""
    exact = metric("exact_match")
    row = talk([turn("a"), turn("b")], [said("x"), said("b")], exact, how="last")
    (score,) = score_row([exact], row)
    assert (score.value, score.detail) == (1.0, {"version": "1"})


def test_a_metric_is_skipped_only_if_no_turn_has_what_it_reads(metric: Callable[..., Metric]) -> None:
    """The expectation of one turn is enough; without any, the reason is that of a single question."""
    metrics = [metric("tool_calls"), metric("hit_rate"), metric("mrr"), metric("rouge")]
    turns = [turn(expected_tools=(ExpectedTool("look"),), expected_sources=("S",)), turn()]
    answers = [said("", tool_calls=(ToolCall("look"),), sources=(Source(title="T"), Source(title="S"))), said("a")]
    tools, hit, mrr, rouge = score_row(metrics, talk(turns, answers, *metrics))
    assert [(score.value, score.passed) for score in (tools, hit, mrr)] == [(1.0, True), (1.0, True), (0.5, None)]
    assert (rouge.status, rouge.reason, rouge.detail) == (ScoreStatus.SKIPPED, "no_reference", {})


@pytest.mark.parametrize(("threshold", "passed"), [(0.5, True), (0.6, False), (None, None)])
def test_a_threshold_is_held_against_the_value_of_the_row(
    metric: Callable[..., Metric], threshold: float | None, passed: bool | None
) -> None:
    """Similarities of 1 and 0 give the row 0.5, which the threshold decides, not the turns' verdicts."""
    similar = metric("semantic_similarity", threshold=threshold)
    row = talk([turn("a"), turn("a")], [said("a"), said("b")], similar)
    (score,) = scores = score_row([similar], row)
    assert (score.value, score.passed) == (0.5, passed)
    reason = row_message(row.response, scores)
    missed = "semantic_similarity: mean of 2 turns: 0.5 is below the threshold of 0.6 (turn 2)"
    assert reason == ("" if passed is not False else missed)


def test_a_threshold_of_the_case_is_held_against_the_value_of_the_row(metric: Callable[..., Metric]) -> None:
    """A case's threshold replaces the metric's, or the rule that every turn must be right."""
    exact = metric("exact_match")
    row = talk([turn("a"), turn("b")], [said("a"), said("x")], exact, thresholds={"exact_match": 0.5})
    assert score_row([exact], row)[0].passed is True
    row = dataclasses.replace(row, turn_score="worst")
    assert score_row([exact], row)[0].passed is False


def test_a_failed_call_counts_for_its_turn_and_those_after_it(metric: Callable[..., Metric]) -> None:
    """Turns that were not asked are failed calls, too: they neither pass nor vanish, and the row is an agent error."""
    metrics = [metric("exact_match"), metric("semantic_similarity"), metric("quality"), metric("latency")]
    row = talk([turn("a"), turn(), turn("c")], [said("a", latency_ms=5.0), FAILED], *metrics)
    exact, similar, quality, latency = score_row(metrics, row)
    assert (row.response, exact.value, exact.passed) == (FAILED, 0.5, False)
    assert values(exact) == [(0, 1.0), (2, 0.0)]
    for score in (similar, quality):
        assert (score.status, score.passed, score.reason) == (ScoreStatus.ERROR, False, "agent_error")
    assert (latency.status, latency.reason) == (ScoreStatus.ERROR, "agent_error")


def test_a_turn_that_cannot_be_scored_is_an_error_of_the_row(metric: Callable[..., Metric]) -> None:
    """The mean of the others would hide it."""
    similar = metric("semantic_similarity")
    row = talk([turn("a"), turn("a")], [said("a"), said("a")], similar)
    broken = dataclasses.replace(
        row.turns[0], embeddings={EmbeddingSettings(DEFAULT_MODEL): EmbeddingEvidence(None, error="embedder_down")}
    )
    (score,) = scores = score_row([similar], dataclasses.replace(row, turns=(broken, row.turns[1])))
    assert (score.status, score.passed, score.reason) == (ScoreStatus.ERROR, None, "embedder_down")
    assert row_message(row.response, scores) == "semantic_similarity could not be computed: embedder down"


def test_a_formula_reads_the_values_of_the_row_and_a_composite_those_of_the_turn(
    metric: Callable[..., Metric],
) -> None:
    """combined_score is computed turn by turn from what it reads there; a formula once."""
    metrics = [
        metric("combined_score", judge="exact_match"),
        metric("formula", formula="exact_match * 10 + total_tokens"),
        metric("exact_match"),
    ]
    used = Usage(total_tokens=1000)
    sources = (Source(title="S"),)
    turns = [turn("a", expected_sources=("S",)), turn("b", expected_sources=("S",))]
    answers = [said("a", usage=used, sources=sources), said("x", usage=used, sources=sources)]
    row = talk(turns, answers, *metrics)
    combined, formula, _ = scores = score_row(metrics, row)
    assert values(combined) == [(0, 1.0), (1, 0.0)]
    assert formula.value == 0.5 * 10 + 2000
    fold = metrics[0].aggregate()
    fold.add(result(row, scores), combined)
    detail = fold.result().detail
    assert (detail["avg_judge_score"], detail["avg_num_tokens"], detail["total_tokens"]) == (0.5, 1000.0, 2000)


@pytest.mark.parametrize(("how", "latency_s"), [("mean", 2.0), ("worst", 3.0)])
def test_tokens_and_cost_are_sums_and_latency_is_not(metric: Callable[..., Metric], how: str, latency_s: float) -> None:
    """Sums cover the whole conversation; one unknown count makes the sum unknown."""
    metrics = [metric("tokens"), metric("cost"), metric("latency")]
    used = Usage(input_tokens=10, output_tokens=5, cost_usd=0.5)
    answers = [
        said("a", usage=used, latency_ms=1000.0, time_to_first_token_ms=100.0),
        said("b", usage=used, latency_ms=3000.0, time_to_first_token_ms=300.0),
    ]
    row = talk([turn(), turn()], answers, *metrics, how=how)
    tokens, cost, latency = score_row(metrics, row)
    assert (tokens.value, tokens.detail["input_tokens"], cost.value, latency.value) == (30.0, 20, 1.0, latency_s)
    assert row.response.time_to_first_token_ms == latency_s * 100
    unknown = [said("a"), answers[1]]
    assert [score.status for score in score_row(metrics, talk([turn(), turn()], unknown, *metrics, how=how))] == (
        [ScoreStatus.SKIPPED] * 3
    )


def test_a_cost_that_cannot_be_is_not_hidden_in_the_sum_of_the_turns(metric: Callable[..., Metric]) -> None:
    """A conversation's cost is an error where one turn's is, whatever the other turns cost."""
    answers = [said("a", usage=Usage(cost_usd=-0.5)), said("b", usage=Usage(cost_usd=2.0))]
    metrics = [metric("cost")]
    (score,) = score_row(metrics, talk([turn(), turn()], answers, *metrics))
    assert score.reason == "invalid_cost"


def test_a_judge_sees_the_turns_with_a_reference_and_the_last(metric: Callable[..., Metric]) -> None:
    """The judge sees each such turn's own case, and no earlier turn if the row fails anyway."""
    quality = metric("quality")
    turns, answers = [turn("a"), turn(), turn()], [said("12345"), said("1"), said("123")]
    asked = Case("talk", tuple(turns))
    assert [len(scored_turn.rubrics) for scored_turn in scored_turns(asked, answers, [quality], "mean")] == [1, 0, 1]
    assert [
        len(scored_turn.rubrics) for scored_turn in scored_turns(asked, [answers[0], FAILED], [quality], "mean")
    ] == [0, 0, 0]
    row = talk(turns, answers, quality)
    (score,) = score_row([quality], row)
    assert (score.value, score.passed, values(score)) == (4.0, True, [(0, 5.0), (2, 3.0)])


def test_summaries_read_the_turns(metric: Callable[..., Metric]) -> None:
    """Aggregates beside the value are those of the values: means of parts, marks of any turn, no false interval."""
    metrics = [metric("rouge"), metric("exact_match"), metric("semantic_similarity")]
    row = talk([turn("a b"), turn("a b")], [said("a b"), said("a x")], *metrics)
    scores = [score_from_json(json.loads(json.dumps(score_to_json(score)))) for score in score_row(metrics, row)]
    folds = [each.aggregate() for each in metrics]
    for fold, score in zip(folds, scores, strict=True):
        fold.add(result(row, scores), score)
    rouge, exact, similar = [fold.result() for fold in folds]
    assert (rouge.value, rouge.detail["rougeL"], rouge.detail["recall"]["rouge1"]) == (0.75, 0.75, 0.75)
    assert (exact.value, exact.detail["correct"], exact.detail["total"]) == (0.5, 0, 1)
    assert similar.detail["models"] == [{"model": DEFAULT_MODEL, "revision": "r"}]


def test_very_long_details_of_turns_lose_their_texts(metric: Callable[..., Metric]) -> None:
    """A row must fit in a message: judging costs stay, the judge's texts go."""
    judge = metric("judge_score")
    turns, answers = [turn("a")] * 100, [said("a")] * 100
    row = talk(turns, answers)
    verdict = {"reasoning": "word " * 2000, "accuracy": 1, "completeness": 1, "relevance": 1}
    judgement = Judgement("j", "r", JudgementStatus.VALID, key="k", reasoning="word " * 2000, cost_usd=0.1)
    calls = (JudgementCall("replied"),) * 2
    evidence = JudgeEvidence(verdict, judgement=dataclasses.replace(judgement, calls=calls))
    judged = tuple(dataclasses.replace(each, verdicts={"structured": evidence}) for each in row.turns)
    (score,) = score_row([judge], dataclasses.replace(row, turns=judged))
    assert (score.value, len(score.detail[TURNS])) == (1.0, 100)
    assert len(json.dumps(score_to_json(score))) < 50_000
    assert score.judgements[99] == dataclasses.replace(judgement, turn_index=99, reasoning="")


def test_the_work_of_a_conversation_is_that_of_its_turns(metric: Callable[..., Metric]) -> None:
    """The bound decides where a row is scored: many small turns are as much work as one long."""
    rouge = metric("rouge")
    one = talk([turn("a" * 1000)], [said("a" * 1000)], rouge)
    many = talk([turn("a" * 1000)] * 10, [said("a" * 1000)] * 10, rouge)
    assert row_work([rouge], many) >= 10 * row_work([rouge], one)
