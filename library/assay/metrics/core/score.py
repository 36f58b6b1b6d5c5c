"""Inputs and outputs of a metric: rows with their evidence, and scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from assay.metrics.core.embedding import EmbeddingSettings
from assay.model.judgement import judgement_from_json, judgement_to_json
from assay.model.run import Score, ScoreStatus
from assay.statistics.thresholds import holds
from assay.text.equality import is_blank

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from assay.metrics.core.info import MetricInfo
    from assay.model.answers.agent_response import AgentResponse
    from assay.model.case import Case
    from assay.model.judgement import Judgement
    from assay.model.metric_call import MetricOutcome
    from assay.model.run import MetricSummary, RowResult

_ANY = "Any one of these is right:\n\n"
_NO_EMBEDDING = EmbeddingSettings("")
_STATUSES = {status.value: status for status in ScoreStatus}
_NO_DETAIL: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class EmbeddingEvidence:
    """The similarity of an answer to other texts, by one model.

    Args:
        answer: The answer's vector, shape (dimension,); None if no metric needs it or it is unavailable.
        cosines: The cosine of the answer with each compared text, by text, in [-1, 1]; None for a vector without a
            direction.
        others: The vectors of texts that metrics compare by a measure other than the cosine, by text.
        truncated: The texts, including the answer, that exceed the model's window.
        settings: The model, and the part of its vectors that is compared.
        revision: SHA-256 of the model's weights.
        precision: Its arithmetic, e.g. "exact"; empty if unknown.
        engine: The engine that computed the vectors; empty if unknown.
        english_only: Whether the model was trained only on English.
        error: Why there is no evidence, e.g. "embedder_unavailable"; empty if there is.
        skipped: Why no embedder was asked, e.g. "no_embedder"; empty if one was.
    """

    answer: NDArray[np.float32] | None = None
    cosines: Mapping[str, float | None] = field(default_factory=dict)
    others: Mapping[str, NDArray[np.float32]] = field(default_factory=dict)
    truncated: frozenset[str] = frozenset()
    settings: EmbeddingSettings = _NO_EMBEDDING
    revision: str = ""
    precision: str = ""
    engine: str = ""
    english_only: bool = False
    error: str = ""
    skipped: str = ""

    @property
    def origin(self) -> dict[str, Any]:
        """The source of the vectors, as a score's detail names it.

        Model and revision; precision and engine if known; dimension and windowing unless whole vectors of one window
        are compared.
        """
        known = {name: it for name, it in (("precision", self.precision), ("engine", self.engine)) if it}
        return {"model": self.settings.model, "revision": self.revision, **known, **self.settings.origin}


@dataclass(frozen=True, slots=True)
class JudgeEvidence:
    """A judge's verdict, not yet validated.

    Args:
        verdict: The JSON object in the judge's reply; None if there is none.
        text: The judge's reply if it is no object; empty otherwise.
        error: Why there is no verdict, e.g. "judge_unavailable"; empty if there is one.
        skipped: Why no judge was asked, e.g. "judge_not_configured"; empty if one was.
        scale: Lowest and highest score, if the rubric has the user's own criteria.
        message: Why there is no verdict, as a sentence, or empty.
        judgement: The judge, its reasoning and the cost; None if no judge was asked.
        jury: The verdicts of several judges, in place of all of the above; empty for a single judge.
    """

    verdict: Mapping[str, Any] | None
    text: str = ""
    error: str = ""
    skipped: str = ""
    scale: tuple[float, float] | None = None
    message: str = ""
    judgement: Judgement | None = None
    jury: tuple[JudgeEvidence, ...] = ()

    @property
    def judgements(self) -> tuple[Judgement, ...]:
        """The judgement, if there is one."""
        return () if self.judgement is None else (self.judgement,)


@dataclass(frozen=True, slots=True)
class Row:
    """One repeat of a case with everything that metrics read.

    Args:
        response: The agent's answer.
        embeddings: The evidence of embedding models, by settings.
        verdicts: The evidence of judges, by the names of verdicts; empty without a judge.
        scores: Scores of metrics computed before, by name, which composites read.
        outcomes: The results of functions on the user's side, by metric; empty if none was called.
        turns: The turns of a conversation, each a row that ends with its turn; empty if only the last answer is scored.
        turn_score: How the values of turns are combined: "mean" or "worst".
    """

    case: Case
    response: AgentResponse
    embeddings: Mapping[EmbeddingSettings, EmbeddingEvidence] = field(default_factory=dict)
    verdicts: Mapping[str, JudgeEvidence] = field(default_factory=dict)
    scores: Mapping[str, Score] = field(default_factory=dict)
    outcomes: Mapping[str, MetricOutcome] = field(default_factory=dict)
    turns: tuple[Row, ...] = ()
    turn_score: str = "mean"


class Aggregate(Protocol):
    """Folds the rows of a run into a metric's summary, in any order."""

    def add(self, row: RowResult, score: Score) -> None:
        """Add a row."""

    def result(self) -> MetricSummary:
        """Return the summary of the rows so far."""


class Metric(Protocol):
    """A metric with its parameters.

    A spec may compute a kind of metric several times, under different names. Further members are optional:

    * `check(parameters)`, a static method, returns (parameter, problem) pairs that `info` cannot express.
    * `inputs`: the names of other metrics of the run whose scores it reads.
    * `lacks(missing)`: whether it has no value without the scores of these `inputs`.
    * `embeds_references`: False if it needs only the answer's vector.
    * `keeps_vector`: True if its aggregate is computed from vectors.
    * `of_conversation`: True if it scores a conversation as a whole although it reads what turns expect.
    * `expects_itself`: True if its parameters provide what `info.needs` names.
    * `rubric`: the name of the verdict that it needs.
    * `use_judge(spec)`: chooses the judge and the rubric of its verdicts.
    * `explain(row, score)`: the sentence on a failed row, with the expected beside the actual.
    * `work(row)`: an upper bound of its work, if that exceeds reading the row's texts once (see `row_work`).

    A metric of the checks of cases also has `compared_texts(case)`, the texts whose cosine with the answer it reads;
    `measured_texts(case)`, the texts whose vectors it needs; and `rubrics(case)`, the names of the verdicts it needs.

    Args:
        name: The metric's name in this run.
        parameters: Complete, as `complete_parameters` returns them.
    """

    info: MetricInfo
    """The description of the metric."""
    version: str
    """Changes when the same row may get another score."""
    name: str
    """Its name in this run."""
    embedding: EmbeddingSettings | None
    """The settings of the vectors that it needs, or None."""

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None: ...

    def score(self, row: Row) -> Score:
        """Return the row's score; never raises on any row."""

    def aggregate(self) -> Aggregate:
        """Return an empty fold."""


def scored(metric: str, value: float, **details: Any) -> Score:
    """Return a score with a value; a value that is not finite becomes an error."""
    if not math.isfinite(value):
        kept = {name: part for name, part in details.items() if name in ("detail", "judgements")}
        return Score(metric, ScoreStatus.ERROR, reason="not_finite", **kept)
    return Score(metric, ScoreStatus.SCORED, value=float(value), **details)


def scored_by_threshold(
    metric: Metric,
    value: float,
    threshold: float | None,
    *,
    reason: str = "",
    detail: Mapping[str, Any],
    judgements: tuple[Judgement, ...] = (),
) -> Score:
    """Return a score that passes if its value meets the threshold by the metric's rule.

    Without a threshold it has no verdict.
    """
    if threshold is None:
        return scored(metric.name, value, reason=reason, detail=detail, judgements=judgements)
    passed = holds(value, metric.info.rule, threshold)
    detail = {**detail, "threshold": threshold}
    return scored(metric.name, value, passed=passed, reason=reason, detail=detail, judgements=judgements)


def not_computed(
    metric: str,
    reason: str,
    *,
    decides: bool,
    detail: Mapping[str, Any] = _NO_DETAIL,
    message: str = "",
    judgements: tuple[Judgement, ...] = (),
) -> Score:
    """Return the score of a row that a metric failed to compute.

    Args:
        reason: A stable word.
        decides: Whether the metric gives rows verdicts; otherwise its failure is marked advisory and leaves the
            verdict to the other metrics.
        detail: The detail.
        message: Why, as a sentence; empty for the standard sentence.
        judgements: The verdicts behind the failure.
    """
    marks = {} if decides else {"advisory": True}
    detail = {**detail, **marks}
    return Score(metric, ScoreStatus.ERROR, reason=reason, detail=detail, message=message, judgements=judgements)


def made_advisory(scores: Sequence[Score], optional: Collection[str]) -> Sequence[Score]:
    """Return scores in which failures of optional metrics are advisory: they leave the verdict to the other metrics.

    Args:
        scores: The scores of a row.
        optional: Names of the metrics without which the run may end.
    """
    if not optional:
        return scores
    return tuple(
        replace(score, detail={**score.detail, "advisory": True})
        if score.metric in optional and score.status is ScoreStatus.ERROR and score.passed is None
        else score
        for score in scores
    )


def usable_references(case: Case) -> tuple[str, ...]:
    """Return the references that are not blank."""
    return tuple(text for text in case.references if not is_blank(text))


def reference_text(references: Sequence[str]) -> str:
    """Return the references that are not blank as a judge sees them; empty if there are none."""
    usable = [text for text in references if not is_blank(text)]
    return usable[0] if len(usable) == 1 else _ANY + "\n\n".join(usable) if usable else ""


def has_reference(case: Case) -> bool:
    """Return whether the case has a reference that is not blank."""
    return not all(map(is_blank, case.references))


def embeds_references(metric: object) -> bool:
    """Return whether a metric, or its stand-in, needs the vectors of references beside the answer's."""
    return getattr(metric, "embeds_references", True)


def keeps_vector(metric: object) -> bool:
    """Return whether a metric, or its stand-in, computes its aggregate from the answers' vectors."""
    return getattr(metric, "keeps_vector", False)


def score_to_json(score: Score) -> dict[str, Any]:
    """Return the score as a JSON object without absent fields."""
    data: dict[str, Any] = {"metric": score.metric, "status": score.status.value}
    if score.value is not None:
        data["value"] = score.value
    if score.passed is not None:
        data["passed"] = score.passed
    if score.reason:
        data["reason"] = score.reason
    if score.message:
        data["message"] = score.message
    if score.detail:
        data["detail"] = dict(score.detail)
    if score.judgements:
        data["judgements"] = [judgement_to_json(judgement) for judgement in score.judgements]
    return data


def score_from_json(data: dict[str, Any]) -> Score:
    """Return the score that `score_to_json` wrote."""
    return Score(
        metric=data["metric"],
        status=_STATUSES[data["status"]],
        value=data.get("value"),
        passed=data.get("passed"),
        reason=data.get("reason", ""),
        detail=data.get("detail", {}),
        message=data.get("message", ""),
        judgements=tuple(map(judgement_from_json, data.get("judgements", ()))),
    )
