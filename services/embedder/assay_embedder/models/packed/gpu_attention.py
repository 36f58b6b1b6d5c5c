"""Attention on a GPU: one kernel for texts of any length, which reads the position where each text begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor

_PROBE_LENGTHS, _PROBE_HEADS, _PROBE_SIZE = (1, 7, 40, 130), 2, 32
_PROBE_TOLERANCE = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 4e-2}


class Kernel(Protocol):
    """Computes attention of all heads of one layer."""

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor, bounds: Tensor, longest: int) -> Tensor:
        """Return the attended values, shape (tokens, heads, head size); rows behind the last text have any.

        Args:
            queries: Shape (tokens, heads, head size), as keys and values.
            keys: Of the same tokens.
            values: Of the same tokens.
            bounds: Where each text begins, and where the last one ends: int32, shape (texts + 1,).
            longest: Tokens of the longest text, or more.
        """


# Names of torch itself, not of its documentation, as those of it take half of the time that a small batch waits for the
# starts of kernels: `choose_kernel` tries them first.


def flash(queries: Tensor, keys: Tensor, values: Tensor, bounds: Tensor, longest: int) -> Tensor:
    """Return attention of 16-bit numbers, on cards of compute capability 8.0 or later."""
    compute = torch.ops.aten._flash_attention_forward  # noqa: SLF001
    attended: Tensor = compute(queries, keys, values, bounds, bounds, longest, longest, 0.0, False, False)[0]
    return attended


def memory_efficient(queries: Tensor, keys: Tensor, values: Tensor, bounds: Tensor, longest: int) -> Tensor:
    """Return attention of numbers of 32 bits, with products as exact as theirs, or of 16 bits."""
    compute = torch.ops.aten._efficient_attention_forward  # noqa: SLF001
    packed = queries[None], keys[None], values[None]
    attended: Tensor = compute(*packed, None, bounds, bounds, longest, longest, 0.0, 0)[0]
    return attended[0]


def one_by_one(queries: Tensor, keys: Tensor, values: Tensor, bounds: Tensor, longest: int) -> Tensor:
    """Return the attention of each text in turn: slow, on any device, for comparison."""
    attended = torch.zeros_like(queries, memory_format=torch.contiguous_format)
    for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        query, key, value = (each[None, start:end].transpose(1, 2) for each in (queries, keys, values))
        attended[start:end] = functional.scaled_dot_product_attention(query, key, value)[0].transpose(0, 1)
    return attended


def choose_kernel(device: torch.device, dtype: torch.dtype) -> Kernel | None:
    """Return the fastest kernel that works on a device; None if none does."""
    if device.type == "cpu":
        return one_by_one
    kernels = [memory_efficient] if dtype == torch.float32 else [flash, memory_efficient]
    return next((kernel for kernel in kernels if works(kernel, device, dtype)), None)


def works(kernel: Kernel, device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether a kernel exists, accepts the number format on the device, and computes attention."""
    count, width = sum(_PROBE_LENGTHS), 3 * _PROBE_HEADS * _PROBE_SIZE
    numbers = torch.arange(count * width, dtype=torch.float64).square().sin().mul(2).to(dtype)
    probe = numbers.view(count, 3, _PROBE_HEADS, _PROBE_SIZE)
    bounds = torch.tensor([0, *_PROBE_LENGTHS], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    longest = max(_PROBE_LENGTHS)
    try:
        queries, keys, values = probe.to(device).unbind(1)
        attended = kernel(queries, keys, values, bounds.to(device), longest).cpu()
    except (AttributeError, ImportError, RuntimeError, TypeError):  # not in this torch, or not for this device
        return False
    queries, keys, values = probe.float().unbind(1)
    expected = one_by_one(queries, keys, values, bounds, longest)
    return bool((attended.float() - expected).abs().max() < _PROBE_TOLERANCE[dtype])
