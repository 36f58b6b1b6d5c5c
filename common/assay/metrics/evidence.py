"""Which evidence a row needs before its metrics are computed: the one place that says whose vectors are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from assay.answers import AgentStatus
from assay.metrics.score import embeds_references, has_reference

if TYPE_CHECKING:
    from collections.abc import Iterable

    from assay.answers import AgentResponse
    from assay.cases import Case

__all__ = ["Embeds", "wanted_models"]


class Embeds(Protocol):
    """What may need vectors: a metric, or what stands for one."""

    @property
    def embedding_model(self) -> str | None:
        """The model whose vectors it needs, or None."""


def wanted_models(metrics: Iterable[Embeds], case: Case, response: AgentResponse) -> dict[str, bool]:
    """Return the models whose vectors a row needs, and whether the references' are needed too.

    None are needed where the agent failed or said nothing: metrics know what such a row is worth without asking.
    A metric that compares with references needs none where the case has none to compare with.

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
        if model is None:
            continue
        if not embeds_references(metric):
            wanted.setdefault(model, False)
        elif has_reference(case):
            wanted[model] = True
    return wanted
