"""The dimensions that vectors may be cut to, as Matryoshka models declare them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay_embedder.models.architecture import encoder_folder, read_json

if TYPE_CHECKING:
    from pathlib import Path

_HINTS = ("matryoshka_dimensions", "matryoshka_dims", "truncate_dim")


def supported_dimensions(folder: Path, full: int) -> tuple[int, ...]:
    """Return the dimensions that a model's vectors may be cut to, as its configuration names them.

    Args:
        folder: The model's folder; read are config.json and config_sentence_transformers.json.
        full: Values of a whole vector.

    Returns:
        All of them, the full one first; it alone where the model names none.
    """
    dimensions = {full}
    for file in (encoder_folder(folder) / "config.json", folder / "config_sentence_transformers.json"):
        config = read_json(file)
        for hint in _HINTS:
            named = config.get(hint) or []
            named = named if isinstance(named, list) else [named]
            dimensions |= {each for each in named if type(each) is int and 0 < each < full}
    return tuple(sorted(dimensions, reverse=True))
