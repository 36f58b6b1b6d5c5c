"""Presets: what a known shape of evaluation computes, unless the spec says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LATER_PRESETS", "PRESETS", "Preset"]


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
    )
}

LATER_PRESETS = ("sql-agent", "prompt-quality", "research-agent")
"""Names that are reserved for presets of later versions."""
