"""Vectors cut to fewer values, for models that were trained so that their first values suffice (Matryoshka)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from assay.errors import InvalidInputError, Problem
from assay_embedder.architecture import encoder_folder, read_json

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_HINTS = ("matryoshka_dimensions", "matryoshka_dims", "truncate_dim")


def supported_dimensions(folder: Path, full: int) -> tuple[int, ...]:
    """Return the dimensions that a model's vectors may be cut to, as its configuration names them.

    Args:
        folder: The model's folder; read are config.json and config_sentence_transformers.json.
        full: Values of a whole vector.

    Returns:
        All of them, the full one first; it alone where the model names none.
    """
    found = {full}
    for file in (encoder_folder(folder) / "config.json", folder / "config_sentence_transformers.json"):
        config = read_json(file)
        for hint in _HINTS:
            named = config.get(hint) or []
            named = named if isinstance(named, list) else [named]
            found |= {each for each in named if type(each) is int and 0 < each < full}
    return tuple(sorted(found, reverse=True))


def cut(vectors: NDArray[np.float32], dimension: int, supported: Sequence[int]) -> NDArray[np.float32]:
    """Return the first values of vectors, scaled to length 1 again; 0 leaves them as they are.

    Args:
        vectors: Shape (texts, full dimension).
        dimension: Values to keep; 0 for all.
        supported: What the model was trained for, the full dimension first.

    Raises:
        InvalidInputError: The model was not trained for this dimension.
    """
    if dimension in (0, vectors.shape[1]):
        return vectors
    if dimension not in supported:
        listed = ", ".join(map(str, supported))
        raise InvalidInputError([Problem(f"{dimension} is no dimension of this model; it has {listed}", "dimension")])
    kept = vectors[:, :dimension]
    lengths = np.linalg.norm(kept.astype(np.float64), axis=1, keepdims=True)
    scaled: NDArray[np.float32] = (kept / np.where(lengths == 0, 1, lengths)).astype(np.float32)
    return scaled
