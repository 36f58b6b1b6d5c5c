"""Which evidence a row needs before its metrics are computed: whose vectors are asked for, and which verdicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from assay.metrics.core.score import embeds_references, has_reference
from assay.model.agent_response import AgentStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from assay.model.agent_response import AgentResponse
    from assay.model.case import Case


class Embeds(Protocol):
    """What may need vectors: a metric, or what stands for one."""

    @property
    def embedding_model(self) -> str | None:
        """The model whose vectors it needs, or None."""


def wanted_rubrics(metrics: Iterable[object], case: Case, response: AgentResponse) -> Sequence[str]:
    """Return under which names the metrics of a row look for verdicts, each once.

    None where the agent failed. An answer that says nothing is judged: what it is worth, the judge's rules say.
    """
    if response.status is AgentStatus.ERROR:
        return ()
    found: dict[str, None] = {}
    for metric in metrics:
        if rubric := getattr(metric, "rubric", None):
            found[rubric] = None
        if (of_case := getattr(metric, "rubrics", None)) is not None:
            found |= dict.fromkeys(of_case(case))
    return tuple(found)


def compared_texts(metrics: Iterable[Embeds], case: Case) -> dict[str, tuple[str, ...]]:
    """Return the texts beside references that metrics compare a row's answer with, each once, by model."""
    found: dict[str, dict[str, None]] = {}
    for metric in metrics:
        texts = _own_texts(metric, case)
        if metric.embedding_model is not None and texts:
            found.setdefault(metric.embedding_model, {}).update(dict.fromkeys(texts))
    return {model: tuple(texts) for model, texts in found.items()}


def wanted_models(metrics: Iterable[Embeds], case: Case, response: AgentResponse) -> dict[str, bool]:
    """Return the models whose vectors a row needs, and whether the references' are needed too.

    None are needed where the agent failed or said nothing: metrics know what such a row is worth without asking.
    A metric that compares with references needs none where the case has none to compare with; one that makes checks
    needs none where no check of the case compares with a text.

    Args:
        metrics: What is computed.
        case: The row's case.
        response: Its answer.
    """
    wanted: dict[str, bool] = {}
    if response.status is AgentStatus.ERROR or not response.text.strip():
        return wanted
    for metric in metrics:
        model = metric.embedding_model
        if model is None or _own_texts(metric, case) == ():
            continue
        if not embeds_references(metric):
            wanted.setdefault(model, False)
        elif has_reference(case):
            wanted[model] = True
    return wanted


def _own_texts(metric: Embeds, case: Case) -> Sequence[str] | None:
    """Return the texts of a case that a metric compares with in place of references; None for one that has none."""
    own = getattr(metric, "compared_texts", None)
    return None if own is None else tuple(own(case))
