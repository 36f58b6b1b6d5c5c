"""Which texts are embedded: never those that no metric would look at."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from assay.metrics.core.evidence import WantedTexts, wanted_texts
from assay.metrics.core.score import Metric, Row
from assay.model.agent_response import AgentError, AgentErrorKind, AgentResponse, AgentStatus
from assay.model.case import Case, Turn
from assay.model.run import ScoreStatus

DEFAULT, OTHER = "all-MiniLM-L6-v2", "other"
REFERENCE, ANSWER = WantedTexts(compared=("r",)), WantedTexts(keeps_answer=True)
BOTH = WantedTexts(compared=("r",), keeps_answer=True)
FAILED = AgentResponse(
    status=AgentStatus.ERROR, text="said before", error=AgentError(AgentErrorKind.TIMEOUT, "no answer within 30 s")
)


@pytest.mark.parametrize(
    ("kinds", "references", "response", "wanted"),
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
    wanted: dict[str, WantedTexts],
) -> None:
    """Each reference is compared once, where a metric reads it; a vector is asked for only where one reads that."""
    case = Case("case", (Turn("q", references=references),))
    metrics = [metric(kind) for kind in kinds]
    assert wanted_texts(metrics, case, response) == wanted
    if not wanted:
        # Whatever is not asked for is not missed.
        scores = [one.score(Row(case, response)) for one in metrics]
        assert all(score.status is not ScoreStatus.ERROR or score.reason == "agent_error" for score in scores)


def test_each_model_is_asked_for_what_its_own_metrics_need(metric: Callable[..., Metric]) -> None:
    """Two models, one of them for the answers alone."""
    metrics = [metric("consistency", model=OTHER), metric("semantic_similarity")]
    case = Case("case", (Turn("q", references=("r",)),))
    assert wanted_texts(metrics, case, AgentResponse(text="a")) == {OTHER: ANSWER, DEFAULT: REFERENCE}
