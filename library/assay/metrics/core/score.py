"""What a metric looks at and what it says."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from assay.metrics.core.embedding import EmbeddingSettings
from assay.model.run import Score, ScoreStatus
from assay.statistics.thresholds import holds
from assay.text.equality import is_blank

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from assay.metrics.core.info import MetricInfo
    from assay.model.answers.agent_response import AgentResponse
    from assay.model.case import Case
    from assay.model.metric_call import MetricOutcome
    from assay.model.run import CaseResult, MetricSummary

JURY = "jury"
"""Under which name a score's detail holds what each judge said."""

_ANY = "Any one of these is right:\n\n"
_NO_EMBEDDING = EmbeddingSettings("")
_STATUSES = {status.value: status for status in ScoreStatus}


@dataclass(frozen=True, slots=True)
class EmbeddingEvidence:
    """How near an answer is to other texts, by one model.

    Args:
        answer: The answer's vector, shape (dimension,); None where no metric needs it, or it could not be had.
        cosines: The cosine of the answer with each text that metrics compare it with, by text, in [-1, 1]; None where
            a vector has no direction.
        others: The vectors of texts that metrics compare by another measure than the cosine, by text.
        truncated: Those of all these texts, the answer among them, that were longer than the model's window.
        settings: The model, and what of its vectors is compared.
        revision: SHA-256 of the model's weights.
        precision: Its arithmetic, e.g. "exact"; empty where unknown.
        engine: What computed the vectors; empty where unknown.
        english_only: Whether the model was trained on English alone.
        error: Why there is no evidence, e.g. "embedder_unavailable"; empty where there is.
        skipped: Why no embedder was asked, e.g. "no_embedder"; empty where one was.
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
        """What produced it, as a score's detail names it.

        Model and revision; precision and engine where known; dimension and windowing where not all of a vector, or more
        than a window, counts.
        """
        known = {name: it for name, it in (("precision", self.precision), ("engine", self.engine)) if it}
        return {"model": self.settings.model, "revision": self.revision, **known, **self.settings.origin}


@dataclass(frozen=True, slots=True)
class JudgeEvidence:
    """One verdict of a judge, not yet validated.

    Args:
        verdict: The JSON object that the judge gave; None where there is none.
        text: The judge's reply where it was not an object; empty otherwise.
        error: Why there is no verdict, e.g. "judge_unavailable"; empty where there is one.
        skipped: Why no judge was asked for one, e.g. "judge_not_configured"; empty where one was.
        scale: Lowest and highest score, where the verdict is by a rubric of the user's own criteria.
        detail: Which judge, its fingerprint and what it cost.
        jury: What each of several judges said, in place of all of the above; empty where one judge was asked.
    """

    verdict: Mapping[str, Any] | None
    text: str = ""
    error: str = ""
    skipped: str = ""
    scale: tuple[float, float] | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    jury: tuple[JudgeEvidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """One repeat of one case with everything that metrics look at.

    Args:
        response: The agent's answer.
        embeddings: What embedding models say of the answer, by model and what of its vectors is compared.
        verdicts: What a judge said, by rubric; empty where no judge was asked.
        scores: Scores of metrics that were computed before, by name; what composites read.
        outcomes: What functions on the user's side said, by metric; empty where none was called.
        turns: A conversation's turns, each a row that ends with it; empty where only the last answer is scored.
        turn_score: What the turns' values come to: their "mean", or the "worst" of them.
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
    """Folds the rows of a run into one metric's summary; the order of rows does not matter."""

    def add(self, row: CaseResult, score: Score) -> None:
        """Take one more row."""

    def result(self) -> MetricSummary:
        """Return the summary of the rows so far."""


class Metric(Protocol):
    """One metric with its parameters.

    A kind of metric may be computed several times under names of the spec's own. More members are optional:
    `check(parameters)`, a static method that returns (parameter, problem) pairs for what `info` cannot say;
    `inputs`, the names of other metrics of the run whose scores it reads; `embeds_references`, False where
    only the answer's vector is needed; `keeps_vector`, True where the aggregate is computed from vectors;
    `of_conversation`, True where a conversation is scored as a whole although the metric reads what turns expect;
    `expects_itself`, True where it says itself what `info.needs` names; `lacks(missing)`, whether it has no value
    without the scores of these metrics, where `inputs` may be missing;
    `rubric`, under which name it finds the verdict that it needs; `explain(row, score)`, the sentence on a row that
    fails, with what was expected and what came; `work(row)`, how much work a row is at most where
    that is more than reading its texts once (see `row_work`). One that makes the checks of cases says of each case what
    these need: `compared_texts(case)`, the texts whose cosine with the answer it reads, `measured_texts(case)`, those
    whose vectors it needs, and `rubrics(case)`, the names of the verdicts.

    Args:
        name: The metric's name in this run.
        parameters: Complete, as `complete_parameters` returns them.
    """

    info: MetricInfo
    """What it says about itself."""
    version: str
    """Changes when the same row may get another score."""
    name: str
    """Its name in this run."""
    embedding: EmbeddingSettings | None
    """The vectors that it needs, or None."""

    def __init__(self, name: str, parameters: Mapping[str, Any]) -> None: ...

    def score(self, row: Row) -> Score:
        """Return the row's score; never raises on any row."""

    def aggregate(self) -> Aggregate:
        """Return an empty fold."""


def scored(metric: str, value: float, **details: Any) -> Score:
    """Return a score with a value; one that is not finite becomes an error."""
    if not math.isfinite(value):
        return Score(metric, ScoreStatus.ERROR, reason="not_finite", detail=details.get("detail", {}))
    return Score(metric, ScoreStatus.SCORED, value=float(value), **details)


def scored_by_threshold(
    metric: Metric, value: float, threshold: float | None, *, reason: str = "", detail: Mapping[str, Any]
) -> Score:
    """Return a score that passes where its value stands to the threshold as the metric's rule demands.

    Without a threshold it has no verdict.
    """
    if threshold is None:
        return scored(metric.name, value, reason=reason, detail=detail)
    passed = holds(value, metric.info.rule, threshold)
    return scored(metric.name, value, passed=passed, reason=reason, detail={**detail, "threshold": threshold})


def not_computed(metric: str, reason: str, *, decides: bool, **detail: Any) -> Score:
    """Return the score of a row on which a metric failed.

    Args:
        reason: A stable word.
        decides: Whether the metric gives rows verdicts; the failure of one that does not is marked
            advisory and leaves the row to the other metrics.
        detail: What else is known.
    """
    marks = {} if decides else {"advisory": True}
    return Score(metric, ScoreStatus.ERROR, reason=reason, detail={**detail, **marks})


def made_advisory(scores: Sequence[Score], optional: Container[str]) -> tuple[Score, ...]:
    """Return scores of which those of optional metrics that failed leave the row to the other metrics.

    Args:
        scores: The scores of a row.
        optional: Names of the metrics that the run may end without.
    """
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
    """Return the references that are not blank as a judge is shown them; empty for none."""
    usable = [text for text in references if not is_blank(text)]
    return usable[0] if len(usable) == 1 else _ANY + "\n\n".join(usable) if usable else ""


def has_reference(case: Case) -> bool:
    """Return whether the case has a reference to compare with."""
    return not all(map(is_blank, case.references))


def embeds_references(metric: object) -> bool:
    """Return whether a metric, or what stands for one, that needs vectors needs those of the references too."""
    return getattr(metric, "embeds_references", True)


def keeps_vector(metric: object) -> bool:
    """Return whether a metric, or what stands for one, computes its aggregate from the answers' vectors."""
    return getattr(metric, "keeps_vector", False)


def score_to_json(score: Score) -> dict[str, Any]:
    """Return the score as a JSON object that leaves out what is absent."""
    data: dict[str, Any] = {"metric": score.metric, "status": score.status.value}
    if score.value is not None:
        data["value"] = score.value
    if score.passed is not None:
        data["passed"] = score.passed
    if score.reason:
        data["reason"] = score.reason
    if score.detail:
        data["detail"] = dict(score.detail)
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
    )
