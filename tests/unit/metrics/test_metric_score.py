"""What a score may be, how it is stored, and which rows need vectors."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from assay.metrics import METRICS, complete_parameters
from assay.metrics.core.score import Metric, Row, score_from_json, score_to_json, scored
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import Score, ScoreStatus


@pytest.mark.parametrize(
    ("status", "value"),
    [
        (ScoreStatus.SCORED, None),
        (ScoreStatus.SCORED, float("nan")),
        (ScoreStatus.SCORED, float("inf")),
        (ScoreStatus.SKIPPED, 0.0),
        (ScoreStatus.ERROR, 0.0),
        (ScoreStatus.ERROR, float("nan")),
    ],
)
def test_a_score_that_contradicts_itself_cannot_be_made(status: ScoreStatus, value: float | None) -> None:
    """A value is finite and goes with "scored", and only with it."""
    with pytest.raises(ValueError, match="my_metric"):
        Score("my_metric", status, value=value)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_value_that_is_not_finite_becomes_an_error(value: float) -> None:
    """A metric that computes NaN or infinity yields an error row without a verdict."""
    score = scored("my_metric", value, passed=True, detail={"version": "1"})
    assert score == Score("my_metric", ScoreStatus.ERROR, reason="not_finite", detail={"version": "1"})


@pytest.mark.parametrize(
    "score",
    [
        Score("m", ScoreStatus.SCORED, value=-0.0806, passed=False, detail={"version": "1", "warnings": ["w"]}),
        Score("m", ScoreStatus.SCORED, value=0.0),
        Score("m", ScoreStatus.SKIPPED, reason="no_reference"),
        Score("m", ScoreStatus.ERROR, passed=False, reason="agent_error"),
    ],
)
def test_a_score_survives_storage(score: Score) -> None:
    """JSON keeps every field, the difference between 0 and absent included."""
    text = json.dumps(score_to_json(score), allow_nan=False)
    assert score_from_json(json.loads(text)) == score


def test_absent_fields_take_no_room() -> None:
    """The stored form of a bare score holds nothing but metric and status."""
    assert score_to_json(Score("m", ScoreStatus.SKIPPED)) == {"metric": "m", "status": "skipped"}


@pytest.mark.parametrize("kind", sorted(METRICS))
def test_every_metric_can_be_built(metric: Callable[..., Metric], kind: str) -> None:
    """Every metric that a spec may ask for is built from its example, and says whether it needs an embedder."""
    info = METRICS[kind].info
    built = metric(kind, **info.example)
    assert (built.name, built.info) == (kind, info)
    assert built.version
    assert (built.embedding is not None) is info.needs_embedder
    assert METRICS[kind].__module__ == f"assay.metrics.{kind}"


def test_completed_parameters_can_be_completed_again() -> None:
    """What a client has completed, the server accepts unchanged; another model comes without threshold."""
    complete = complete_parameters("semantic_similarity", {"model": "other"}, where="metrics[0]")
    assert complete == {"model": "other", "dimension": 0, "windowed": False, "threshold": None}
    assert complete_parameters("semantic_similarity", complete, where="metrics[0]") == complete


@pytest.mark.parametrize("name", sorted(METRICS))
def test_no_metric_raises_on_a_row_without_anything(metric: Callable[..., Metric], name: str) -> None:
    """A row with nothing in it gets a score from every metric, never an exception."""
    built = metric(name, **METRICS[name].info.example)
    case = Row(case=_bare_case(), response=AgentResponse())
    assert built.score(case).metric == name
    summary = built.aggregate().result()
    assert (summary.value, summary.meets_threshold, summary.scored_count) == (None, None, 0)
    json.dumps(summary.detail, allow_nan=False)


def _bare_case() -> Case:
    return Case("bare", (Turn(""),))
