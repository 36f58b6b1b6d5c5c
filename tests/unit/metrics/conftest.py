"""Rows and metrics for the tests of metric arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from assay.metrics import build_metric, complete_parameters
from assay.metrics.core.embedding import EmbeddingSettings
from assay.metrics.core.info import DEFAULT_MODEL
from assay.metrics.core.row_verdict import row_message, row_verdict
from assay.metrics.core.score import EmbeddingEvidence, Metric, Row
from assay.metrics.core.similarity import cosine
from assay.model.answers.agent_response import AgentError, AgentErrorKind, AgentResponse, AgentStatus, Source
from assay.model.case import Case, Turn
from assay.model.run import MetricSpec, RowResult


@pytest.fixture
def metric() -> Callable[..., Metric]:
    """A metric by name, with the parameters given and its defaults."""

    def build(name: str, **parameters: Any) -> Metric:
        return build_metric(MetricSpec(name, complete_parameters(name, parameters, where="metrics[0]")))

    return build


def _cosines(answer: Any, references: Sequence[str], vectors: Sequence[Any]) -> dict[str, float | None]:
    usable = [text for text in references if text.strip()]
    return {text: cosine(answer, vector) for text, vector in zip(usable, vectors, strict=False)}


@pytest.fixture
def row() -> Callable[..., Row]:
    """A row of a case and an answer; `vectors` are those of the answer and of each reference."""

    def build(
        text: str = "",
        references: Sequence[str] = (),
        *,
        events: int | None = None,
        latency_ms: float | None = None,
        failed: bool = False,
        vectors: Sequence[Sequence[float]] = (),
        **evidence: Any,
    ) -> Row:
        response = AgentResponse(
            status=AgentStatus.ERROR if failed else AgentStatus.SUCCESS,
            text=text,
            error=AgentError(AgentErrorKind.TIMEOUT, "no answer within 30 s") if failed else None,
            retrieved=None if events is None else (Source(title="Event"),) * events,
            latency_ms=latency_ms,
        )
        arrays = [np.asarray(vector, dtype=np.float32) for vector in vectors]
        embeddings, settings = {}, EmbeddingSettings(DEFAULT_MODEL)
        if arrays or evidence:
            details = {"settings": settings, "revision": "abc", **evidence}
            answer = arrays[0] if arrays else None
            cosines = {} if answer is None else _cosines(answer, references, arrays[1:])
            embeddings[settings] = EmbeddingEvidence(answer, cosines, **details)
        return Row(Case("case", (Turn("question", references=tuple(references)),)), response, embeddings)

    return build


@pytest.fixture
def result() -> Callable[..., RowResult]:
    """The stored result of a row by some metrics."""

    def build(row: Row, metrics: Sequence[Metric], index: int = 0) -> RowResult:
        scores = tuple(metric.score(row) for metric in metrics)
        return RowResult(
            case_id=f"case-{index}",
            case_index=index,
            repeat=1,
            category="",
            status=row.response.status,
            passed=row_verdict(row.response.status, scores),
            scores=scores,
            latency_ms=row.response.latency_ms,
            message=row_message(row.response, scores),
        )

    return build


@pytest.fixture
def fold(result: Callable[..., RowResult]) -> Callable[..., Any]:
    """The summary of one metric over some rows."""

    def build(metric: Metric, rows: Sequence[Row]) -> Any:
        aggregate = metric.aggregate()
        for row in rows:
            stored = result(row, [metric])
            aggregate.add(stored, stored.scores[0])
        return aggregate.result()

    return build
