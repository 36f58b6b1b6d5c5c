"""The evidence that a row needs before its metrics are computed: texts to embed, and verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from assay.metrics.core.score import embeds_references, keeps_vector, usable_references
from assay.text.equality import is_blank

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from assay.metrics.core.embedding import EmbeddingSettings
    from assay.model.answers.agent_response import AgentResponse
    from assay.model.case import Case


class Embeds(Protocol):
    """A metric, or its stand-in, that may need vectors."""

    @property
    def embedding(self) -> EmbeddingSettings | None:
        """The settings of the vectors that it needs, or None."""


@dataclass(frozen=True, slots=True)
class WantedTexts:
    """The texts that a row needs embedded by one model.

    Args:
        compared: Texts whose cosine with the answer is needed, without duplicates.
        measured: Texts whose vectors are needed along with the answer's, without duplicates.
        keeps_answer: Whether the answer's vector is needed.
    """

    compared: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    keeps_answer: bool = False

    def joined(self, other: WantedTexts) -> WantedTexts:
        """Return the union of two needs of one model."""
        return WantedTexts(
            tuple(dict.fromkeys((*self.compared, *other.compared))),
            tuple(dict.fromkeys((*self.measured, *other.measured))),
            self.keeps_answer or other.keeps_answer,
        )


def wanted_rubrics(metrics: Iterable[object], case: Case, response: AgentResponse) -> Sequence[str]:
    """Return the names of the verdicts that the metrics of a row need, without duplicates.

    A failed agent needs none. An empty answer is judged, since the judge's rules define its grade.
    """
    if response.is_failed:
        return ()
    rubrics: dict[str, None] = {}
    for metric in metrics:
        if rubric := getattr(metric, "rubric", None):
            rubrics[rubric] = None
        if (of_case := getattr(metric, "rubrics", None)) is not None:
            rubrics |= dict.fromkeys(of_case(case))
    return tuple(rubrics)


def wanted_texts(
    metrics: Iterable[Embeds], case: Case, response: AgentResponse
) -> dict[EmbeddingSettings, WantedTexts]:
    """Return the texts that a row needs embedded, by embedding settings; settings without texts are left out.

    A failed agent or an empty answer needs no vectors: metrics score such a row without them. A metric that compares
    with references needs none if the case has no usable reference, and a metric of checks needs none if no check of
    the case compares texts.

    Args:
        metrics: The metrics to compute.
        case: The row's case.
        response: The row's answer.
    """
    if response.is_failed or is_blank(response.text):
        return {}
    return wanted_of_case(metrics, case)


def wanted_of_case(metrics: Iterable[Embeds], case: Case) -> dict[EmbeddingSettings, WantedTexts]:
    """Return the texts that a case needs embedded if the answer is not empty, by embedding settings."""
    by_settings: dict[EmbeddingSettings, WantedTexts] = {}
    for metric in metrics:
        if metric.embedding is not None and (wanted := _wanted_of(metric, case)) != WantedTexts():
            by_settings[metric.embedding] = by_settings.get(metric.embedding, WantedTexts()).joined(wanted)
    return by_settings


def _wanted_of(metric: Embeds, case: Case) -> WantedTexts:
    references = usable_references(case) if embeds_references(metric) else ()
    own, measured = (getattr(metric, name, None) for name in ("compared_texts", "measured_texts"))
    compared = (*references, *(own(case) if own is not None else ()))
    return WantedTexts(
        tuple(dict.fromkeys(compared)),
        tuple(dict.fromkeys(measured(case) if measured is not None else ())),
        keeps_vector(metric),
    )
