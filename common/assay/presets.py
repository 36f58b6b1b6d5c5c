"""Presets: what a known shape of evaluation computes, unless the spec says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PRESETS", "Preset"]


@dataclass(frozen=True, slots=True)
class Preset:
    """One known shape of evaluation.

    Args:
        name: Its name.
        summary: One sentence.
        metrics: Metrics with the parameters that differ from their defaults.
    """

    name: str
    summary: str
    metrics: Mapping[str, Mapping[str, Any]]


PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "prompt-benchmark",
            "One agent, questions with reference answers, similarity as the verdict.",
            {"semantic_similarity": {"threshold": 0.75}, "latency": {}},
        ),
        Preset(
            "rag",
            "An agent that retrieves items and answers from them.",
            {"semantic_similarity": {"threshold": 0.75}, "coverage": {}, "satisfaction": {}, "latency": {}},
        ),
        Preset(
            "sql-agent",
            "An agent that turns questions into SQL and tells what it found.",
            {"retrieval_accuracy": {}, "generation_fidelity": {}, "latency": {}},
        ),
        Preset(
            "prompt-quality",
            "A prompt template whose outputs are compared with what was expected.",
            {"exact_match": {}, "consistency": {}, "quality": {}, "rouge": {}, "latency": {}},
        ),
        Preset(
            "research-agent",
            "An agent that searches, cites ranked sources and counts tokens.",
            {"hit_rate": {}, "mrr": {}, "judge_score": {}, "combined_score": {}, "tokens": {}, "latency": {}},
        ),
    )
}
