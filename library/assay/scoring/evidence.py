"""What scoring one row takes beside the metric itself: scores that it reads, vectors, verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from assay.errors import SpecError
from assay.metrics import METRICS, build_metric, complete_parameters
from assay.metrics.core.embedding import EMBEDDING
from assay.metrics.core.evidence import wanted_texts
from assay.metrics.core.score import (
    EmbeddingEvidence,
    JudgeEvidence,
    embeds_references,
    keeps_vector,
    not_computed,
    scored,
)
from assay.metrics.core.similarity import cosine
from assay.model.run import MetricSettings, Score, ScoreStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.metrics.core.embedding import EmbeddingSettings
    from assay.metrics.core.evidence import WantedTexts
    from assay.metrics.core.score import Metric, Row
    from assay.model.answers.agent_response import AgentResponse
    from assay.model.case import Case
    from assay.scoring.vectors import Embedded


class _Input:
    """A score that a composite reads: the one that a row brings along in `scores`, else the metric's own."""

    version = "1"

    def __init__(self, name: str, metric: Metric | None) -> None:
        self.name = name
        self.embedding = metric.embedding if metric is not None else None
        self.embeds_references = metric is not None and embeds_references(metric)
        self.inputs: tuple[str, ...] = tuple(getattr(metric, "inputs", ()))
        self.keeps_vector = keeps_vector(metric)
        self.compared_texts: Callable[[Case], Sequence[str]] | None = getattr(metric, "compared_texts", None)
        self.measured_texts: Callable[[Case], Sequence[str]] | None = getattr(metric, "measured_texts", None)
        self._metric = metric

    def score(self, row: Row) -> Score:
        """Return the row's score."""
        brought = row.case.metadata.get("scores")
        value = brought.get(self.name) if isinstance(brought, Mapping) else None
        if value is None:
            if self._metric is not None:
                return self._metric.score(row)
            return Score(self.name, ScoreStatus.SKIPPED, reason="no_score")
        if isinstance(value, bool) or not isinstance(value, int | float):
            return not_computed(self.name, "invalid_score", decides=False)
        return scored(self.name, value)


def with_inputs(metric: Metric, given: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the metric, and behind it those whose scores it reads, directly or through others.

    Args:
        metric: What is computed.
        given: Its parameters as they are given, of which those of vectors are those of the others too.
    """
    found: dict[str, Any] = {metric.name: metric}
    pending = list(getattr(metric, "inputs", ()))
    while pending:
        name = pending.pop()
        if name in found:
            continue
        found[name] = _Input(name, _default_metric(name, given))
        pending += found[name].inputs
    return tuple(found.values())


def _default_metric(name: str, given: Mapping[str, Any]) -> Metric | None:
    if name not in METRICS:
        return None
    of_vectors = {each.name for each in EMBEDDING} if METRICS[name].info.needs_embedder else set()
    shared = {key: value for key, value in given.items() if key in of_vectors and value is not None}
    try:
        return build_metric(MetricSettings(name, complete_parameters(name, shared, where=name)))
    except SpecError:  # it has parameters without defaults: only a row can bring its score along
        return None


def evidence_of(
    metrics: Iterable[Any], case: Case, response: AgentResponse, found: Mapping[tuple[EmbeddingSettings, str], Embedded]
) -> dict[EmbeddingSettings, EmbeddingEvidence]:
    """Return what a row needs of embedding models, by model.

    Args:
        metrics: What is computed.
        case: The row's case.
        response: Its answer.
        found: The vectors of every text that is needed, by model and text.
    """
    return {
        settings: _evidence(
            settings, wanted, response.text, {text: found[settings, text] for text in texts_of(wanted, response)}
        )
        for settings, wanted in wanted_texts(metrics, case, response).items()
    }


def texts_of(wanted: WantedTexts, response: AgentResponse) -> tuple[str, ...]:
    """Return the texts whose vectors give a row what it needs of one model, the answer first."""
    return (response.text, *wanted.compared, *wanted.measured)


def _evidence(
    settings: EmbeddingSettings, wanted: WantedTexts, answer: str, found: Mapping[str, Embedded]
) -> EmbeddingEvidence:
    own = found[answer]
    return EmbeddingEvidence(
        answer=own.vector,
        cosines={text: cosine(own.vector, found[text].vector) for text in wanted.compared},
        others={text: found[text].vector for text in wanted.measured},
        truncated=frozenset(text for text, embedded in found.items() if embedded.truncated),
        settings=settings._replace(model=own.model),
        revision=own.revision,
        precision=own.precision,
        engine=own.engine,
        english_only=own.english_only,
    )


def verdicts_of(case: Case) -> dict[str, JudgeEvidence]:
    """Return the verdicts that a row brings along, by rubric."""
    brought = case.metadata.get("verdicts")
    if not isinstance(brought, Mapping):
        return {}
    return {
        str(rubric): JudgeEvidence(verdict) if isinstance(verdict, Mapping) else JudgeEvidence(None, text=str(verdict))
        for rubric, verdict in brought.items()
    }
