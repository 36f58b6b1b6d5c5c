"""The embedding settings of a metric: the model, and the part of its vectors that is compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

from assay.metrics.core.info import DEFAULT_MODEL, Parameter

if TYPE_CHECKING:
    from collections.abc import Mapping

EMBEDDING = (
    Parameter("model", "text", DEFAULT_MODEL, "The embedding model: a name or a local folder."),
    Parameter(
        "dimension",
        "integer",
        0,
        "Values per vector, one of those that the model was trained for (Matryoshka); 0: all.",
        0,
        65_536,
    ),
    Parameter(
        "windowed",
        "boolean",
        False,
        "Whether a text longer than the model's window is embedded as overlapping windows instead of being cut.",
    ),
)
"""The parameters of every metric that needs vectors."""


class EmbeddingSettings(NamedTuple):
    """How texts are embedded.

    Args:
        model: The model's name.
        dimension: Values per vector; 0 for all.
        windowed: Whether a long text is embedded as overlapping windows instead of being cut.
    """

    model: str
    dimension: int = 0
    windowed: bool = False

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Self:
        """Return the settings in a metric's parameters."""
        model = str(parameters.get("model", DEFAULT_MODEL))
        return cls(model, parameters.get("dimension", 0), parameters.get("windowed", False))

    @property
    def origin(self) -> dict[str, Any]:
        """The settings that differ from the default, for a score's detail."""
        return {name: it for name, it in (("dimension", self.dimension), ("windowed", self.windowed)) if it}


def vectors_text(origin: Mapping[str, Any]) -> str:
    """Return the compared part of the vectors, e.g. "256 values, windowed"; empty for whole vectors of one window.

    Args:
        origin: The detail of a score, or one of the models of a summary.
    """
    values = f"{origin['dimension']} values" if origin.get("dimension") else ""
    return ", ".join(filter(None, (values, "windowed" if origin.get("windowed") else "")))
