"""Which texts are embedded: never those that no metric would look at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from assay.metrics.core.embedding import EmbeddingSettings
from assay.metrics.core.evidence import WantedTexts, wanted_texts
from assay.metrics.core.score import Metric, Row
from assay.model.answers.agent_response import AgentError, AgentErrorKind, AgentResponse, AgentStatus
from assay.model.case import Case, Turn
from assay.model.run import ScoreStatus

DEFAULT, OTHER = EmbeddingSettings("all-MiniLM-L6-v2"), EmbeddingSettings("other")
REFERENCE, ANSWER = WantedTexts(compared=("r",)), WantedTexts(keeps_answer=True)
BOTH = WantedTexts(compared=("r",), keeps_answer=True)
FAILED = AgentResponse(
    status=AgentStatus.ERROR, text="said before", error=AgentError(AgentErrorKind.TIMEOUT, "no answer within 30 s")
)


@pytest.mark.parametrize(
    ("kinds", "references", "response", "expected"),
    [
        ([], ("r",), AgentResponse(text="a"), {}),
        (["exact_match"], ("r",), AgentResponse(text="a"), {}),
        (["semantic_similarity"], ("r", "r"), AgentResponse(text="a"), {DEFAULT: REFERENCE}),
        (["satisfaction"], ("", " ", "r"), AgentResponse(text="a"), {DEFAULT: REFERENCE}),
        (["semantic_similarity"], (), AgentResponse(text="a"), {}),
        (["semantic_similarity"], (" \n",), AgentResponse(text="a"), {}),
        (["semantic_similarity"], ("r",), AgentResponse(text=" \n"), {}),
        (["semantic_similarity", "consistency"], ("r",), FAILED, {}),
        (["consistency"], ("r",), AgentResponse(text="a"), {DEFAULT: ANSWER}),
        (["consistency"], (), AgentResponse(text="a"), {DEFAULT: ANSWER}),
        (["consistency"], (), AgentResponse(text=""), {}),
        (["consistency", "semantic_similarity"], ("r",), AgentResponse(text="a"), {DEFAULT: BOTH}),
        (["semantic_similarity", "consistency"], ("r",), AgentResponse(text="a"), {DEFAULT: BOTH}),
        (["semantic_similarity", "consistency"], (), AgentResponse(text="a"), {DEFAULT: ANSWER}),
    ],
)
def test_models_that_a_row_needs(
    metric: Callable[..., Metric],
    kinds: list[str],
    references: tuple[str, ...],
    response: AgentResponse,
    expected: dict[EmbeddingSettings, WantedTexts],
) -> None:
    """Each reference is compared once, where a metric reads it; a vector is asked for only where one reads that."""
    case = Case("case", (Turn("q", references=references),))
    metrics = [metric(kind) for kind in kinds]
    assert wanted_texts(metrics, case, response) == expected
    if not expected:
        # Whatever is not asked for is not missed.
        scores = [one.score(Row(case, response)) for one in metrics]
        assert all(score.status is not ScoreStatus.ERROR or score.reason == "agent_error" for score in scores)


def test_each_model_is_asked_for_what_its_own_metrics_need(metric: Callable[..., Metric]) -> None:
    """With two models, each gets the texts of its own metrics alone."""
    metrics = [metric("consistency", model=OTHER.model), metric("semantic_similarity")]
    case = Case("case", (Turn("q", references=("r",)),))
    assert wanted_texts(metrics, case, AgentResponse(text="a")) == {OTHER: ANSWER, DEFAULT: REFERENCE}


def test_other_vectors_of_one_model_are_asked_for_apart(metric: Callable[..., Metric]) -> None:
    """A dimension, and windows, make other vectors: metrics that agree in all share them."""
    kinds: list[dict[str, Any]] = [
        {},
        {"windowed": True},
        {"dimension": 64},
        {"dimension": 64, "windowed": True},
        {"dimension": 64},
    ]
    metrics = [metric("semantic_similarity", **given) for given in kinds]
    case = Case("case", (Turn("q", references=("r",)),))
    assert list(wanted_texts(metrics, case, AgentResponse(text="a"))) == [
        DEFAULT,
        DEFAULT._replace(windowed=True),
        DEFAULT._replace(dimension=64),
        DEFAULT._replace(dimension=64, windowed=True),
    ]
