"""The interface between the batcher and a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray


class Tokens(NamedTuple):
    """One text as the model reads it.

    Args:
        ids: Word pieces, special ones included, at most the model's window.
        type_ids: One per id; none where all are 0.
        truncated: Whether the text was longer than the window.
    """

    ids: Sequence[int]
    type_ids: Sequence[int]
    truncated: bool


class Encoder(Protocol):
    """A model that threads run: `tokenize` in one of its own, `encode` in the workers."""

    @property
    def packed(self) -> bool:
        """Whether texts of one run cost their own word pieces alone, and no padding; `encode` is then safe for
        several threads at once."""

    def tokenize(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the word pieces of each text."""

    def encode(self, batch: Sequence[Tokens]) -> NDArray[np.float32]:
        """Return one vector per text, shape (texts, dimension)."""
