"""The evidence for scoring one row: other metrics' scores, vectors, verdicts."""

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
from assay.model.judgement import Judgement, JudgementStatus
from assay.model.run import MetricSpec, Score, ScoreStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assay.metrics.core.embedding import EmbeddingSettings
    from assay.metrics.core.evidence import WantedTexts
    from assay.metrics.core.score import Metric, Row
    from assay.model.answers.agent_response import AgentResponse
    from assay.model.case import Case
    from assay.scoring.vectors import Embedded


class _Input:
    """A score that a composite reads: the row's own in `scores`, or else the metric's."""

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
    """Return the metric, followed by those whose scores it reads, directly or indirectly.

    Args:
        metric: What is computed.
        given: Its parameters as they are given, of which those of vectors are those of the others too.
    """
    metrics_by_name: dict[str, Any] = {metric.name: metric}
    pending = list(getattr(metric, "inputs", ()))
    while pending:
        name = pending.pop()
        if name in metrics_by_name:
            continue
        metrics_by_name[name] = _Input(name, _default_metric(name, given))
        pending += metrics_by_name[name].inputs
    return tuple(metrics_by_name.values())


def _default_metric(name: str, given: Mapping[str, Any]) -> Metric | None:
    if name not in METRICS:
        return None
    of_vectors = {parameter.name for parameter in EMBEDDING} if METRICS[name].info.needs_embedder else set()
    shared = {key: value for key, value in given.items() if key in of_vectors and value is not None}
    try:
        return build_metric(MetricSpec(name, complete_parameters(name, shared, where=name)))
    except SpecError:  # it has parameters without defaults: only a row can bring its score along
        return None


def evidence_of(
    metrics: Iterable[Any],
    case: Case,
    response: AgentResponse,
    embedded: Mapping[tuple[EmbeddingSettings, str], Embedded],
) -> dict[EmbeddingSettings, EmbeddingEvidence]:
    """Return the texts that a row needs embedded, by model.

    Args:
        metrics: What is computed.
        case: The row's case.
        response: Its answer.
        found: The vectors of every text that is needed, by model and text.
    """
    return {
        settings: _evidence(
            settings, wanted, response.text, {text: embedded[settings, text] for text in texts_of(wanted, response)}
        )
        for settings, wanted in wanted_texts(metrics, case, response).items()
    }


def texts_of(wanted: WantedTexts, response: AgentResponse) -> tuple[str, ...]:
    """Return the texts that a row needs embedded by one model, the answer first."""
    return (response.text, *wanted.compared, *wanted.measured)


def _evidence(
    settings: EmbeddingSettings, wanted: WantedTexts, answer: str, embedded: Mapping[str, Embedded]
) -> EmbeddingEvidence:
    own = embedded[answer]
    return EmbeddingEvidence(
        answer=own.vector,
        cosines={text: cosine(own.vector, embedded[text].vector) for text in wanted.compared},
        others={text: embedded[text].vector for text in wanted.measured},
        truncated=frozenset(text for text, vector in embedded.items() if vector.truncated),
        settings=settings._replace(model=own.model),
        revision=own.revision,
        precision=own.precision,
        engine=own.engine,
        english_only=own.english_only,
    )


def verdicts_of(case: Case) -> dict[str, JudgeEvidence]:
    """Return the verdicts in a row, by rubric."""
    brought = case.metadata.get("verdicts")
    if not isinstance(brought, Mapping):
        return {}
    return {str(rubric): _verdict_of(str(rubric), verdict) for rubric, verdict in brought.items()}


def _verdict_of(rubric: str, verdict: object) -> JudgeEvidence:
    if not isinstance(verdict, Mapping):
        return JudgeEvidence(None, text=str(verdict))
    reasoning = verdict.get("reasoning")
    judgement = Judgement("", rubric, JudgementStatus.VALID, reasoning=reasoning if isinstance(reasoning, str) else "")
    return JudgeEvidence(verdict, judgement=judgement)
