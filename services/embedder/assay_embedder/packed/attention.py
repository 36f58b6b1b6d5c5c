"""Attention on a processor, between the tokens of each text, where texts lie behind each other without padding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

_CHUNK_TOKENS = 256  # keys, values and weights of so many stay in the second cache of a core
_SHORT, _LONG = 64, 512  # between them, products of bfloat16 beat torch's attention kernel by up to 1.8 times


class Layout:
    """Where the texts of a batch lie in its rows, sorted by length.

    Args:
        lengths: Tokens of each text, ascending.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = lengths

    def groups(self, most_tokens: int = 0) -> Iterator[tuple[slice, int, int]]:
        """Yield the rows, the count and the length of texts of exactly the same length.

        Args:
            most_tokens: A group of more is divided, down to one text; 0 divides none.
        """
        start = at = 0
        while at < len(self.lengths):
            length, first = self.lengths[at], at
            while at < len(self.lengths) and self.lengths[at] == length:
                at += 1
            most = max(1, most_tokens // length) if most_tokens else at - first
            for number in range(first, at, most):
                count = min(most, at - number)
                yield slice(start, start + count * length), count, length
                start += count * length


def attend_by_length(projected: Tensor, layout: Layout, head_count: int) -> Tensor:
    """Return attention over groups of texts of exactly the same length, so that none needs a mask.

    A text's result has the same bits whatever it is computed with: no kernel sees another text's length.
    """
    hidden = projected.shape[1] // 3
    attended = projected.new_zeros(projected.shape[0], hidden)
    for rows, count, length in layout.groups(_CHUNK_TOKENS):
        shape = (count, length, 3, head_count, hidden // head_count)
        heads = projected[rows].view(shape).permute(2, 0, 3, 1, 4)
        attended[rows].view(count, length, head_count, -1).copy_(_attend(heads, length).transpose(1, 2))
    return attended


def _attend(heads: Tensor, length: int) -> Tensor:
    """Return the attended values of texts of one length; `heads` is (3, texts, heads, length, head size)."""
    if heads.dtype == torch.float32 or length > _LONG:
        return functional.scaled_dot_product_attention(heads[0], heads[1], heads[2])
    if length < _SHORT:  # the kernel for bfloat16 costs more than the two conversions
        heads = heads.float()
        return functional.scaled_dot_product_attention(heads[0], heads[1], heads[2])
    _, count, head_count, _, size = heads.shape
    queries, keys, values = heads.reshape(3, count * head_count, length, size)
    nothing = queries.new_zeros(1)
    scores = torch.baddbmm(nothing, queries, keys.transpose(1, 2), beta=0, alpha=size**-0.5)
    return torch.bmm(torch.softmax(scores, -1), values).view(count, head_count, length, size)
