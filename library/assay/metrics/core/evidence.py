"""Which evidence a row needs before its metrics are computed: which texts models compare, and which verdicts."""

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
    """What may need vectors: a metric, or what stands for one."""

    @property
    def embedding(self) -> EmbeddingSettings | None:
        """The vectors that it needs, or None."""


@dataclass(frozen=True, slots=True)
class WantedTexts:
    """What a row needs of an embedding model.

    Args:
        compared: Texts whose cosine with the answer is needed, each once.
        measured: Texts whose vectors are needed, each once; the answer's is needed with them.
        keeps_answer: Whether the answer's vector is needed.
    """

    compared: tuple[str, ...] = ()
    measured: tuple[str, ...] = ()
    keeps_answer: bool = False

    def joined(self, other: WantedTexts) -> WantedTexts:
        """Return what is needed of one model for both."""
        return WantedTexts(
            tuple(dict.fromkeys((*self.compared, *other.compared))),
            tuple(dict.fromkeys((*self.measured, *other.measured))),
            self.keeps_answer or other.keeps_answer,
        )


def wanted_rubrics(metrics: Iterable[object], case: Case, response: AgentResponse) -> Sequence[str]:
    """Return under which names the metrics of a row look for verdicts, each once.

    None where the agent failed. An answer that says nothing is judged: what it is worth, the judge's rules say.
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
    """Return what a row needs of each embedding model; models of which it needs nothing are left out.

    Nothing is needed where the agent failed or said nothing: metrics know what such a row is worth without asking.
    A metric that compares with references needs nothing where the case has none to compare with; one that makes checks
    needs nothing where no check of the case compares with a text.

    Args:
        metrics: What is computed.
        case: The row's case.
        response: Its answer.
    """
    if response.is_failed or is_blank(response.text):
        return {}
    return wanted_of_case(metrics, case)


def wanted_of_case(metrics: Iterable[Embeds], case: Case) -> dict[EmbeddingSettings, WantedTexts]:
    """Return what a row of a case needs of each embedding model where the agent says something."""
    by_settings: dict[EmbeddingSettings, WantedTexts] = {}
    for metric in metrics:
        wanted = _wanted_of(metric, case)
        if metric.embedding is not None and wanted != WantedTexts():
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
