"""The embeddings of a row: its references before the answer, its cosines and vectors after it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from assay.metrics.core.evidence import wanted_of_case
from assay.metrics.core.score import EmbeddingEvidence
from assay.process.failpoints import failpoint

if TYPE_CHECKING:
    from assay.metrics.core.embedding import EmbeddingSettings
    from assay.model.case import Case
    from assay_orchestrator.pipeline.conversations import ScoredTurn
    from assay_orchestrator.pipeline.run_context import RunContext

_NO_EMBEDDER = EmbeddingEvidence(skipped="no_embedder")


def prefetch(context: RunContext, case: Case, turn_index: int) -> None:
    """Embed the texts that the pending answer will be compared with, while the agent is asked.

    Only texts of rows in flight are sent ahead: other rows may never be asked if a run pauses or stops early.

    Args:
        context: The context of the run.
        case: The row's case.
        turn_index: The turn in flight.
    """
    is_scored = turn_index == len(case.turns) - 1 or context.turn_score_of(case) != "last"
    if not context.embedders or context.is_replay or not is_scored:  # a recorded answer is available at once
        return
    for settings, texts in wanted_of_case(context.metrics, case.up_to(turn_index)).items():
        if (embedder := context.embedders.get(settings)) is not None:
            embedder.prefetch(texts.compared)


async def gather_embeddings(context: RunContext, turn: ScoredTurn) -> dict[EmbeddingSettings, EmbeddingEvidence]:
    """Return the embedding evidence of an answer, by model."""
    if not turn.embeddings:
        return {}
    available = [settings for settings in turn.embeddings if settings in context.embedders]
    failpoint("evidence.before")
    gathered = await asyncio.gather(
        *(context.embedders[settings].gather(turn.response, turn.embeddings[settings]) for settings in available)
    )
    failpoint("evidence.after")
    return {**dict.fromkeys(turn.embeddings, _NO_EMBEDDER), **dict(zip(available, gathered, strict=True))}
