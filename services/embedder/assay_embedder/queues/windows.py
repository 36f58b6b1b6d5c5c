"""Long texts as overlapping windows of the model, averaged into one vector."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from assay_embedder.models.encoder import Encoder, Tokens

MAX_WINDOWS = 256
_PARTS_PER_WINDOW = 32  # of prose: so finely a window is filled
_OVERLAP = 8  # the eighth part of a window
_SHORT_PART = re.compile(r"\s*\S{1,32}")


def windows_of(text: str, encoder: Encoder, max_tokens: int) -> list[Tokens]:
    """Return a text as windows that each fit the model and together hold it; each overlaps the one before.

    A text that fits is one window. Others are cut between words, or within a word of more than 32 characters, into
    small parts; a window is as many parts as fit, and repeats up to an eighth of the window before it. What follows
    after `MAX_WINDOWS` windows is cut: the last of them is marked as truncated.

    Args:
        text: The text.
        encoder: The model.
        max_tokens: The model's window in word pieces.
    """
    (whole,) = encoder.tokenize([text])
    if not whole.truncated:
        return [whole]
    own_tokens = len(encoder.tokenize([""])[0].ids)  # of the prefix, and special ones
    room = max(1, max_tokens - own_tokens)
    parts = list(_parts(text, max(32, room * 4 // _PARTS_PER_WINDOW)))
    counts = [max(1, len(tokens.ids) - own_tokens) for tokens in encoder.tokenize(parts)]
    texts = ("".join(parts[begin:end]) for begin, end in spans(counts, room))
    windows = list(itertools.islice((tokens for text in texts for tokens in _fitting(text, encoder)), MAX_WINDOWS + 1))
    if len(windows) <= MAX_WINDOWS:
        return windows
    return [*windows[: MAX_WINDOWS - 1], windows[MAX_WINDOWS - 1]._replace(truncated=True)]


def averaged(vectors: Sequence[NDArray[Any]], token_counts: Sequence[int]) -> NDArray[np.float32]:
    """Return the mean of vectors weighted by word pieces, of length 1; of one vector, that vector as it is.

    Args:
        vectors: One per window, shape (dimension,) each.
        token_counts: Word pieces of each window.
    """
    if len(vectors) == 1:
        return np.asarray(vectors[0], dtype=np.float32)
    weights = np.asarray(token_counts, dtype=np.float64)
    return normalized((weights[:, None] * np.stack(vectors).astype(np.float64)).sum(axis=0) / weights.sum())


def normalized(vector: NDArray[Any]) -> NDArray[np.float32]:
    """Return a vector divided by its length, computed in float64, little-endian; an all-zero vector stays as it is."""
    exact = vector.astype(np.float64)
    length = float(np.linalg.norm(exact))
    return (exact / length if length else exact).astype("<f4")


def _parts(text: str, chars: int) -> Iterator[str]:
    """Yield consecutive pieces of about `chars` characters, cut between words unless a word is long."""
    begin = end = 0
    for word in _SHORT_PART.finditer(text):
        if word.end() - begin > chars and end > begin:
            yield text[begin:end]
            begin = end
        end = word.end()
    yield text[begin:]


def spans(counts: Sequence[int], room: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each window, in parts.

    Args:
        counts: Word pieces of each part.
        room: Word pieces that a window takes; a larger part is a window of its own.
    """
    begin = end = 0
    while end < len(counts):
        first, taken = end, 0
        while begin < first and sum(counts[begin:first]) + counts[first] > room:
            begin += 1
        taken = sum(counts[begin:first])
        while end < len(counts) and (end == begin or taken + counts[end] <= room):
            taken += counts[end]
            end += 1
        yield begin, end
        begin = _overlap_begin(counts, begin, end, room // _OVERLAP)


def _overlap_begin(counts: Sequence[int], begin: int, end: int, most_tokens: int) -> int:
    """Return the first part of the next window."""
    at, tokens = end, 0
    while at - 1 > begin and tokens + counts[at - 1] <= most_tokens:
        at -= 1
        tokens += counts[at]
    return at


def _fitting(text: str, encoder: Encoder) -> list[Tokens]:
    """Return a window's word pieces, split in halves if joining its parts made more of them."""
    (tokens,) = encoder.tokenize([text])
    if not tokens.truncated or len(text) < 2:
        return [tokens]
    middle = len(text) // 2
    return [*_fitting(text[:middle], encoder), *_fitting(text[middle:], encoder)]
