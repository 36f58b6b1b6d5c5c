"""Cosines of vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def cosine(first: NDArray[Any], second: NDArray[Any]) -> float | None:
    """Return u·v / (‖u‖‖v‖), computed in float64 and clamped to [-1, 1].

    Args:
        first: A vector.
        second: A vector of the same dimension.

    Returns:
        The cosine; None when a vector is all zero, because its direction is undefined.
    """
    u, v = first.astype(np.float64), second.astype(np.float64)
    norms = float(np.linalg.norm(u) * np.linalg.norm(v))
    if norms == 0:
        return None
    return min(1.0, max(-1.0, float(u @ v) / norms))
