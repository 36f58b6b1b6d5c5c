"""Rows scored here and in a scorer process: the same scores, and errors that say why there are none."""

from __future__ import annotations

import asyncio
import dataclasses
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from assay.metrics.core.embedding import EmbeddingSettings
from assay.metrics.core.score import EmbeddingEvidence, JudgeEvidence, score_to_json
from assay.metrics.rows.row_scores import score_row
from assay.model.answers.agent_response import Source, ToolCall
from assay.model.answers.response_fields import UnmappedReplyError
from assay.model.case import Assertion, ExpectedTool
from assay.model.judgement import Judgement, JudgementStatus
from assay.model.run import ScoreStatus
from assay_orchestrator.scorers import row_scorer
from assay_orchestrator.scorers.jobs import ReplyEvents
from assay_orchestrator.scorers.reply_reader import ReplyReader

if TYPE_CHECKING:
    from collections.abc import Callable

    from assay.metrics.core.score import Row
    from assay_orchestrator.scorers.pool import ScorerPool
    from assay_orchestrator.scorers.row_scorer import RowScorer

METRICS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("semantic_similarity", {}),
    ("rouge", {"threshold": 0.5}),
    ("exact_match", {}),
    ("contains", {"values": ["open", "closed"], "as_words": True, "mode": "any"}),
    ("regex", {"pattern": r"\d+"}),
    ("json_schema", {"schema": {"type": "object"}}),
    ("assertions", {}),
    ("tool_calls", {}),
    ("hit_rate", {}),
    ("mrr", {}),
    ("quality", {}),
    ("judge_score", {}),
    ("latency", {}),
    ("formula", {"formula": "0.5 * semantic_similarity + latency_s"}),
)


@pytest.fixture
def full_row(row_of: Callable[..., Row]) -> Row:
    """Return a row with something for every metric."""
    row = row_of(
        "Open from 9, «مفتوح»",
        "open at 9",
        "closed",
        sources=(Source(title="Hours"),),
        tool_calls=(ToolCall("look_up", arguments_json='{"day": 1}'),),
        latency_ms=12.5,
        output={"a": [1, None]},
    )
    turn = dataclasses.replace(
        row.case.turns[0],
        expected_sources=("hours",),
        expected_tools=(ExpectedTool("look_up", {"day": 1}, "subset"),),
    )
    checks = (
        Assertion("contains", "9"),
        Assertion("similar", "x"),
        Assertion("llm-rubric", "is kind"),
        Assertion("levenshtein", "Open"),
    )
    vectors = tuple(np.asarray(vector, dtype=np.float32) for vector in ([1, 0], [0.5, 0.5], [0, 1]))
    return dataclasses.replace(
        row,
        case=dataclasses.replace(row.case, turns=(turn,), assertions=checks, thresholds={"rouge": 0.1}),
        embeddings={
            EmbeddingSettings("all-MiniLM-L6-v2"): EmbeddingEvidence(
                vectors[0], dict.fromkeys((*row.case.references, "x"), 0.5), {"x": vectors[1]}, revision="r"
            )
        },
        verdicts={
            "check:2": JudgeEvidence(
                {"score": 0.5, "reasoning": "so"}, judgement=Judgement("j", "r", JudgementStatus.VALID, reasoning="so")
            ),
            "quality": JudgeEvidence(
                {"score": 4, "reasoning": "good"}, judgement=Judgement("j", "r", JudgementStatus.VALID, reasoning="so")
            ),
            "structured": JudgeEvidence(
                {"reasoning": "so", "accuracy": 1.0, "completeness": 0.5, "relevance": 1.0, "overall_score": 0.8}
            ),
        },
    )


@pytest.fixture
def jobs_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[ScorerPool], list[object]]:
    """Return a function that gives the list of the jobs that a pool's processes are handed from then on."""

    def record(pool: ScorerPool) -> list[object]:
        jobs: list[object] = []
        hand_over = pool.do

        async def do(run_id: str, job: Any) -> Any:
            jobs.append(job)
            return await hand_over(run_id, job)

        monkeypatch.setattr(pool, "do", do)
        return jobs

    return record


async def test_a_scorer_gives_the_scores_that_the_orchestrator_gives(
    make_pool: Callable[..., ScorerPool],
    scorer_of: Callable[..., RowScorer],
    jobs_of: Callable[[ScorerPool], list[object]],
    full_row: Row,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wherever a row is scored, its scores are the same to the last bit, details included."""
    pool = make_pool()
    scorer, jobs = scorer_of(pool, *METRICS), jobs_of(pool)
    here = await scorer.score(full_row)
    monkeypatch.setattr(row_scorer, "WORK_AT_ONCE", 0)
    in_turn = await scorer.score(full_row)
    assert not jobs
    monkeypatch.setattr(row_scorer, "WORK_HERE", 0)
    away = await scorer.score(full_row)
    assert len(jobs) == 1
    assert [score_to_json(score) for score in away] == [score_to_json(score) for score in here]
    assert in_turn == here
    assert {score.status for score in here} == {ScoreStatus.SCORED}


async def test_a_conversation_is_one_job_of_a_scorer(
    make_pool: Callable[..., ScorerPool],
    scorer_of: Callable[..., RowScorer],
    jobs_of: Callable[[ScorerPool], list[object]],
    full_row: Row,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its turns share the limits of a row, and its scores are those that the orchestrator gives."""
    pool = make_pool()
    scorer, jobs = scorer_of(pool, *METRICS), jobs_of(pool)
    talk = dataclasses.replace(full_row, turns=(full_row,) * 3)
    monkeypatch.setattr(row_scorer, "WORK_HERE", 0)
    monkeypatch.setattr(row_scorer, "WORK_AT_ONCE", 0)
    away = await scorer.score(talk)
    assert len(jobs) == 1
    monkeypatch.setattr(row_scorer, "WORK_AT_ONCE", math.inf)
    here = await scorer.score(talk)
    assert len(jobs) == 1
    assert [score_to_json(score) for score in away] == [score_to_json(score) for score in here]
    assert len(here[0].detail["turns"]) == 3


async def test_a_row_over_the_limit_is_an_error_of_each_metric(
    make_pool: Callable[..., ScorerPool], scorer_of: Callable[..., RowScorer], row_of: Callable[..., Row]
) -> None:
    """No metric has a value, 0 least of all, and the detail says whose limit it was."""
    schema = {"contains": {"anyOf": [{"const": f"x{index}"} for index in range(1000)]}}
    pool = make_pool(timeout_s=0.2)
    scorer = scorer_of(pool, ("json_schema", {"schema": schema}), ("exact_match", {}))
    scores = await scorer.score(row_of("1", "1", output=list(range(20_000))))
    assert [(score.status, score.value, score.passed, score.reason) for score in scores] == [
        (ScoreStatus.ERROR, None, None, "scoring_timeout")
    ] * 2
    assert "--scoring-timeout-s" in scores[0].message


async def test_rows_of_some_work_take_turns(
    make_pool: Callable[..., ScorerPool], scorer_of: Callable[..., RowScorer], row_of: Callable[..., Row]
) -> None:
    """Of rows that take some milliseconds, the event loop scores one a round: what else waits is not kept for all."""
    scorer = scorer_of(make_pool(), ("rouge", {}))
    row = row_of("word " * 400, "word " * 400)
    assert row_scorer.WORK_AT_ONCE < scorer._work(row) <= row_scorer.WORK_HERE
    rounds = 0

    async def count_rounds() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_rounds())
    await asyncio.gather(*(scorer.score(row) for _ in range(20)))
    counting.cancel()
    assert rounds >= 20


async def test_what_a_scorer_sends_is_checked(
    make_pool: Callable[..., ScorerPool],
    scorer_of: Callable[..., RowScorer],
    row_of: Callable[..., Row],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Scores of other metrics, or no scores at all, are those of a scorer that was taken over or broke."""
    pool = make_pool()
    scorer = scorer_of(pool, ("exact_match", {}))
    row = row_of("a" * 300_000, "a")
    for sent in ([], [{"metric": "other", "status": "scored", "value": 1.0}], [{"metric": "exact_match"}], "x", [3]):

        async def do(run_id: str, job: object, sent: object = sent) -> object:
            return sent

        monkeypatch.setattr(pool, "do", do)
        (score,) = await scorer.score(row)
        assert (score.status, score.reason) == (ScoreStatus.ERROR, "scoring_crashed")


@pytest.mark.parametrize(
    ("failure", "expression", "advice"),
    [
        ("scoring_memory", "bytearray(10**15)", "shorten the answer or simplify the metric's schema or pattern"),
        ("scoring_failed", "1 / 0", "orchestrator's log"),
    ],
)
async def test_a_row_without_scores_says_what_to_do(
    failure: str,
    expression: str,
    advice: str,
    make_pool: Callable[..., ScorerPool],
    scorer_of: Callable[..., RowScorer],
    row_of: Callable[..., Row],
    effect: type[Any],
) -> None:
    """An error of a scorer process is an error of each metric, and the detail says what is wrong and what to do."""
    scorer = scorer_of(make_pool(), ("exact_match", {}))
    row = dataclasses.replace(row_of("a" * 300_000, "a"), embeddings={EmbeddingSettings("m"): effect(expression)})
    (score,) = await scorer.score(row)
    assert (score.status, score.value, score.reason) == (ScoreStatus.ERROR, None, failure)
    assert advice in score.message


async def test_replies_are_the_same_answers_wherever_they_are_read(
    make_pool: Callable[..., ScorerPool], jobs_of: Callable[[ScorerPool], list[object]]
) -> None:
    """An HTTP agent's reply that is much work to read is read elsewhere, with the same outcome."""
    pool = make_pool()
    jobs = jobs_of(pool)
    expressions = {"text": "a", "output": "sort_by(items, &n)[*].n", "sources": "s"}
    body = b'{"a": "hi", "items": [%s], "s": ["x", {"title": "y", "score": 0.5, "k": 1}]}' % b",".join(
        b'{"n": %d}' % index for index in range(3000)
    )
    elsewhere = ReplyReader(expressions, pool)
    assert elsewhere._mapping.work(body) > row_scorer.WORK_HERE
    await elsewhere.read(b'{"a": "hi", "items": [{"n": 1}]}', "run")
    assert not jobs
    answer = await elsewhere.read(body, "run")
    assert len(jobs) == 1
    assert answer == await ReplyReader(expressions, None).read(body, "run")
    assert answer.output[-1] == 2999


async def test_streams_are_the_same_answers_wherever_they_are_read(
    make_pool: Callable[..., ScorerPool], jobs_of: Callable[[ScorerPool], list[object]]
) -> None:
    """The events of a stream that is much work to read are read elsewhere, with the same outcome, failed or not."""
    pool = make_pool()
    jobs = jobs_of(pool)
    reader = {"delta": "t", "output": "sort_by([?n], &n)[*].n"}
    events = ReplyEvents(tuple(b'{"t": "a", "n": %d}' % index for index in range(1, 3000)), tuple(range(2999)))
    elsewhere, here = ReplyReader(reader, pool), ReplyReader(reader, None)
    answer = await elsewhere.read(events, "run")
    assert len(jobs) == 1
    assert answer == await here.read(events, "run")
    assert (len(answer.text), answer.time_to_first_token_ms) == (2999, 0)
    wrong = ReplyEvents((b'{"t": 1}',) * 3000, tuple(range(3000)))
    problems = []
    for one in (elsewhere, here):
        with pytest.raises(UnmappedReplyError, match="must find a text") as caught:
            await one.read(wrong, "run")
        problems.append(str(caught.value))
    assert (len(jobs), problems[0]) == (2, problems[1])


def test_the_bound_of_ordinary_rows_is_small(full_row: Row, scorer_of: Callable[..., RowScorer]) -> None:
    """An ordinary row by nearly every metric there is, is scored on the event loop."""
    scorer = scorer_of(None, *METRICS)
    assert scorer._work(full_row) <= row_scorer.WORK_HERE
    assert score_row(scorer._metrics, full_row)
