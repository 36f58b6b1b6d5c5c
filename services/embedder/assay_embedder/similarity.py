"""Cosines of vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from numpy.typing import NDArray

    Name = TypeVar("Name", bound=Hashable)


def cosine(first: NDArray[Any], second: NDArray[Any]) -> float | None:
    """Return u·v / (‖u‖‖v‖), computed in float64 and clamped to [-1, 1].

    Args:
        first: A vector.
        second: A vector of the same dimension.

    Returns:
        The cosine; None when a vector is all zero, because its direction is undefined.
    """
    return cosines({0: first, 1: second}, [(0, 1)])[0]


def cosines(vectors: Mapping[Name, NDArray[Any]], pairs: Iterable[tuple[Name, Name]]) -> list[float | None]:
    """Return the cosine of each pair; the norm of each vector is computed once.

    Args:
        vectors: Vectors of one dimension, by name.
        pairs: Names of two vectors each.
    """
    exact = {name: vector.astype(np.float64) for name, vector in vectors.items()}
    norms = {name: float(np.linalg.norm(vector)) for name, vector in exact.items()}

    def of_pair(first: Name, second: Name) -> float | None:
        product = norms[first] * norms[second]
        if product == 0:
            return None
        return min(1.0, max(-1.0, float(exact[first] @ exact[second]) / product))

    return [of_pair(first, second) for first, second in pairs]
