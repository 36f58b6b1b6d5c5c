"""Attention on a processor within each text of a batch without padding."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

_CHUNK_TOKENS = 256  # keys, values and weights of so many stay in the second cache of a core
_CHUNK_WEIGHTS = 1 << 18  # weights of so many stay there, too
_GROUPED = 16  # tokens; attention of so few takes less time to compute than to start text by text
_SHORT = 64  # tokens; products of bfloat16 are worth it from here
_LONG = 512  # tokens; torch's kernel is as fast beyond
_LEAST_SUM, _GREATEST_SUM = 1e-30, 1e30  # far enough from what float32 holds to be multiplied by values


class Layout:
    """The positions of a batch's texts in its rows, sorted by length.

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
    """Return the attended values of texts, softmax(queries · keysᵀ / √size) · values of each head.

    A text's result has the same bits whatever it is computed with, in one arithmetic thread: what computes it, and in
    which shapes, depends on its own length and numbers alone.

    Args:
        projected: Queries, keys and values beside each other, shape (rows, 3 * hidden), float32 or bfloat16.
        layout: Where the texts lie; rows behind them become zeros.
        head_count: Heads of attention.

    Returns:
        Shape (rows, hidden), in the number format of `projected`.
    """
    rows, width = projected.shape
    attended = projected.new_empty(rows, width // 3)
    attended[sum(layout.lengths) :] = 0
    long = bisect_right(layout.lengths, _LONG)
    short = long if projected.dtype == torch.float32 else bisect_left(layout.lengths, _SHORT)
    start = 0
    for lengths, dtype in (
        (layout.lengths[:short], torch.float32),
        (layout.lengths[short:long], projected.dtype),
        *(([length], projected.dtype) for length in layout.lengths[long:]),
    ):
        if lengths:
            place = slice(start, start := start + sum(lengths))
            heads = projected[place].to(dtype).view(-1, 3, head_count, width // 3 // head_count).permute(1, 2, 0, 3)
            output = attended[place].view(-1, head_count, heads.shape[3]).transpose(0, 1)
            if lengths[-1] > _LONG:
                output.copy_(_by_kernel(heads))
            else:
                torch.div(*_weighted(heads, lengths), out=output)
    return attended


def _weighted(heads: Tensor, lengths: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return values of texts summed by their weights, (heads, rows, size), and the sums of weights, (heads, rows, 1).

    Weights are exponentials of scores as they are: to look for the greatest of each row, as a softmax does, takes
    longer than they do, and only sums that float32 does not hold need it. Torch's kernel for attention would compute
    what is left over of 16 keys number by number: 63 keys take it three times as long as 64.

    Args:
        heads: Queries, keys and values, shape (3, heads, rows, size).
        lengths: Rows of each text, ascending.
    """
    grouped = bisect_right(lengths, _GROUPED)
    parts = [(count * length, length) for _, count, length in Layout(lengths[:grouped]).groups(_CHUNK_TOKENS)]
    parts += [(length, length) for length in lengths[grouped:]]
    divided = heads.split_with_sizes([rows for rows, _ in parts], 2)
    exponentials = [_exponentials(part, length) for part, (_, length) in zip(divided, parts, strict=True)]
    weighted, sums = (torch.cat(tensors, 1) for tensors in zip(*exponentials, strict=True))
    if not _holds(sums):
        start = 0
        for length in lengths:
            text = slice(None), slice(start, start := start + length)
            if not _holds(sums[text]):
                weighted[text], sums[text] = _by_kernel(heads[:, *text]), 1
    return weighted, sums


def _exponentials(heads: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Return what `_weighted` does.

    Args:
        heads: Queries, keys and values of one text, or of several of one length: shape (3, heads, rows, size).
        length: Rows of a text.
    """
    head_count, rows, size = heads.shape[1:]
    if head_count > 1 and head_count * length**2 > _CHUNK_WEIGHTS:
        divided = heads.chunk(min(head_count, -(-head_count * length**2 // _CHUNK_WEIGHTS)), 1)
        weighted, sums = (
            torch.cat(tensors) for tensors in zip(*(_exponentials(part, length) for part in divided), strict=True)
        )
        return weighted, sums
    if length <= _GROUPED:  # a single text, too: kernels choose by how its rows lie
        heads = heads.reshape(3, -1, length, size).contiguous()
    queries, keys, values = heads.unbind()
    scores = torch.baddbmm(heads.new_zeros(1), queries, keys.transpose(1, 2), beta=0, alpha=size**-0.5)
    weights = scores.float().exp_()
    weighted = torch.bmm(weights.to(heads.dtype), values)
    return weighted.view(head_count, rows, size), weights.sum(-1).view(head_count, rows, 1)


def _by_kernel(heads: Tensor) -> Tensor:
    """Return the attended values of one text by torch's kernel, which takes any scores: shape (heads, length, size)."""
    queries, keys, values = heads.unsqueeze(1)
    return functional.scaled_dot_product_attention(queries, keys, values)[0]


def _holds(sums: Tensor) -> bool:
    """Return whether exponentials, and their products with values, stay far from the bounds of float32."""
    least, greatest = sums.aminmax()
    return bool(least > _LEAST_SUM) and bool(greatest < _GREATEST_SUM)
