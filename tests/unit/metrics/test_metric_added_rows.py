"""What one more row may do to a summary: a row without what is needed only counts, a failed one never helps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.metrics import build_metric, complete_parameters
from assay.metrics.core.row_verdict import row_verdict
from assay.metrics.core.score import Row
from assay.metrics.rows.row_scores import score_row
from assay.model.answers.agent_response import AgentError, AgentErrorKind, AgentResponse, AgentStatus, Source, Usage
from assay.model.case import Case, Turn
from assay.model.run import MetricSpec, MetricSummary, RowResult, Score, ScoreStatus

JUDGED = {"judge_score": Score("judge_score", ScoreStatus.SCORED, value=0.5)}
FULL_CASE = Case(
    "full",
    (Turn("question", references=("the cat sat",), expected_sources=("X",)),),
    category="count",
    expected={"expected_table": "t"},
)
BARE_CASE = Case("bare", (Turn("question"),))
FAILED = AgentResponse(status=AgentStatus.ERROR, error=AgentError(AgentErrorKind.TIMEOUT, "no answer within 30 s"))
ANSWERS = st.builds(
    AgentResponse,
    text=st.sampled_from(["", "the cat", "the dog sat 7", "the cat sat"]),
    sql=st.sampled_from([None, "SELECT 1 FROM t", "SELECT 1 FROM u"]),
    data_rows=st.sampled_from([None, 0, 3]),
    sources=st.sampled_from([(), (Source(title="Y"), Source(title="X")), (Source(title="Z"),)]),
    usage=st.sampled_from([None, Usage(total_tokens=500), Usage(total_tokens=4000)]),
)
LOOSE: dict[str, dict[str, Any]] = {
    "generation_fidelity": {"script": "latin", "min_chars": 5},
    "rouge": {"threshold": 0.7},
}


def summarised(kind: str, rows: Sequence[tuple[Case, AgentResponse]]) -> MetricSummary:
    """The summary of one metric over some rows, scored as a run scores them."""
    parameters = complete_parameters(kind, LOOSE.get(kind, {}), where="metrics[0]")
    metric = build_metric(MetricSpec(kind, parameters))
    aggregate = metric.aggregate()
    for case, response in rows:
        scores = (metric.score(Row(case, response, scores=JUDGED)),)
        verdict = row_verdict(response.status, scores)
        aggregate.add(RowResult(case.case_id, 0, 1, "", response.status, verdict, scores, None, ""), scores[0])
    return aggregate.result()


def pass_rate(summary: MetricSummary) -> float:
    """Rows that passed by all that passed or failed."""
    return summary.passed_count / max(1, summary.passed_count + summary.failed_count)


def without_counts(summary: MetricSummary) -> dict[str, Any]:
    """Everything in a summary but the number of skipped rows."""
    return {name: getattr(summary, name) for name in summary.__slots__ if name != "skipped_count"}


@pytest.mark.parametrize("kind", ["rouge", "hit_rate", "mrr", "combined_score"])
@given(answers=st.lists(ANSWERS, max_size=5))
def test_a_row_without_what_is_needed_changes_only_a_count(kind: str, answers: list[AgentResponse]) -> None:
    """A case without references or sources is skipped and leaves value, verdicts and details alone."""
    rows = [(FULL_CASE, answer) for answer in answers]
    before, after = summarised(kind, rows), summarised(kind, [*rows, (BARE_CASE, AgentResponse(text="the cat"))])
    assert after.skipped_count == before.skipped_count + 1
    assert without_counts(after) == without_counts(before)


@pytest.mark.parametrize("kind", ["retrieval_accuracy", "generation_fidelity", "rouge", "hit_rate", "mrr"])
@given(answers=st.lists(ANSWERS, max_size=5))
def test_a_failed_agent_never_helps(kind: str, answers: list[AgentResponse]) -> None:
    """An agent error raises neither the pass rate nor, where it is scored, the mean."""
    rows = [(FULL_CASE, answer) for answer in answers]
    before, after = summarised(kind, rows), summarised(kind, [*rows, (FULL_CASE, FAILED)])
    assert pass_rate(after) <= pass_rate(before)
    if before.value is not None:
        assert after.value is not None
        assert after.value <= before.value


@pytest.mark.parametrize(
    "kind", ["retrieval_accuracy", "generation_fidelity", "rouge", "hit_rate", "mrr", "combined_score"]
)
@given(answers=st.lists(ANSWERS, max_size=6), seed=st.randoms())
def test_the_order_of_rows_does_not_matter(kind: str, answers: list[AgentResponse], seed: Any) -> None:
    """A shuffled run has the same summary to the last bit."""
    rows = [(FULL_CASE, answer) for answer in answers]
    shuffled = rows.copy()
    seed.shuffle(shuffled)
    assert summarised(kind, shuffled) == summarised(kind, rows)


def test_the_judge_is_computed_before_what_reads_it() -> None:
    """A metric that reads another's score finds it, wherever the spec names it."""
    combined = build_metric(
        MetricSpec("combined_score", complete_parameters("combined_score", {"judge": "hits"}, where="metrics[0]"))
    )
    judge = build_metric(MetricSpec("hits", complete_parameters("hit_rate", {}, where="metrics[1]"), "hit_rate"))
    answer = AgentResponse(sources=(Source(title="X"),), usage=Usage(total_tokens=1000))
    scores = score_row([combined, judge], Row(FULL_CASE, answer))
    assert [(score.metric, score.value) for score in scores] == [("combined_score", 1.0), ("hits", 1.0)]
