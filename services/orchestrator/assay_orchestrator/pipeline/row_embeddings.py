"""What a row gets from the embedder: its references ahead of the answer, its cosines and vectors after it."""

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
    """Have the texts embedded, while the agent is asked, that the answer in flight is going to be compared with.

    Only the rows in flight are sent ahead: others may never be asked, where a run pauses or stops early.

    Args:
        context: The run's.
        case: The row's case.
        turn_index: The turn that is being asked.
    """
    is_scored = turn_index == len(case.turns) - 1 or context.turn_score_of(case) != "last"
    if not context.embedders or context.is_replay or not is_scored:  # a recorded answer is there at once
        return
    for settings, wanted in wanted_of_case(context.metrics, case.up_to(turn_index)).items():
        if (embedder := context.embedders.get(settings)) is not None:
            embedder.prefetch(wanted.compared)


async def gather_embeddings(context: RunContext, turn: ScoredTurn) -> dict[EmbeddingSettings, EmbeddingEvidence]:
    """Return what an answer needs of embedding models, by model."""
    if not turn.embeddings:
        return {}
    asked = [settings for settings in turn.embeddings if settings in context.embedders]
    failpoint("evidence.before")
    gathered = await asyncio.gather(
        *(context.embedders[settings].gather(turn.response, turn.embeddings[settings]) for settings in asked)
    )
    failpoint("evidence.after")
    return {**dict.fromkeys(turn.embeddings, _NO_EMBEDDER), **dict(zip(asked, gathered, strict=True))}
