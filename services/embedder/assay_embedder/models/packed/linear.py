"""Linear layers, by oneDNN with weights packed once, or by torch."""

from __future__ import annotations

import math
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

_ONEDNN_ACTIVATIONS = {
    "": ("none", None), "gelu": ("gelu", "none"), "gelu_tanh": ("gelu", "tanh"), "relu": ("relu", None)
}  # fmt: skip
ACTIVATIONS = frozenset(_ONEDNN_ACTIVATIONS)
_PROBE_ROWS, _PROBE_WIDTH = 48, 64
_PROBE_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.1}
_COUNTS = (16, 64, 128, 256, 512, 2048)
_BLOCKS = (512, 256, 128)
_SMALLEST_BLOCK = 64
_CHECKING = Lock()  # layers of one shape are checked once, though several are loaded at a time


class Linear(Protocol):
    """A linear layer, with its activation."""

    def __call__(self, rows: Tensor) -> Tensor:
        """Return activation(rows · weightᵀ + bias), shape (rows, outputs)."""


class PlainLinear:
    """A linear layer computed by torch.

    Args:
        weight: Shape (outputs, inputs).
        bias: Shape (outputs,).
        activation: One of `ACTIVATIONS`; empty for none.
    """

    def __init__(self, weight: Tensor, bias: Tensor, activation: str = "") -> None:
        self._weight, self._bias, self._activation = weight, bias, activation

    def __call__(self, rows: Tensor) -> Tensor:
        """Return activation(rows · weightᵀ + bias)."""
        found = functional.linear(rows, self._weight, self._bias)
        if self._activation == "relu":
            return functional.relu(found)
        if self._activation:
            return functional.gelu(found, approximate="tanh" if self._activation == "gelu_tanh" else "none")
        return found


class OneDnnLinear:
    """A linear layer computed by oneDNN: the weight is laid out once for its kernels, and the activation is fused.

    The default of torch on x86 is MKL, which has half the rate on AMD's processors, and whose results for a row depend
    on how many rows there are.

    Args:
        weight: Shape (outputs, inputs).
        bias: Shape (outputs,).
        activation: One of `ACTIVATIONS`; empty for none.
    """

    def __init__(self, weight: Tensor, bias: Tensor, activation: str = "") -> None:
        self._product = _product(weight, bias, activation)
        self._blocks: tuple[int, ...] = ()
        if weight.dtype == torch.bfloat16:
            with _CHECKING:
                self._blocks = _steady_blocks(weight.shape[1], weight.shape[0], activation)

    def __call__(self, rows: Tensor) -> Tensor:
        """Return activation(rows · weightᵀ + bias)."""
        if not self._blocks:
            return self._product(rows)
        found = torch.cat([self._product(block) for block in self._divided(rows)])
        return found[: rows.shape[0]]

    def _divided(self, rows: Tensor) -> Iterator[Tensor]:
        """Yield the rows in blocks, the last one padded with zeros."""
        for size in self._blocks:
            while rows.shape[0] >= size:
                yield rows[:size]
                rows = rows[size:]
        if rows.shape[0]:
            yield functional.pad(rows, (0, 0, 0, _SMALLEST_BLOCK - rows.shape[0]))


def _product(weight: Tensor, bias: Tensor, activation: str) -> Callable[[Tensor], Tensor]:
    # Names of torch's own compiler, not of its documentation: `onednn_works` tries them first.
    compute: Any = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001
    packed = torch.ops.mkldnn._reorder_linear_weight(weight)  # noqa: SLF001
    name, algorithm = _ONEDNN_ACTIVATIONS[activation]
    return lambda rows: compute(rows, packed, bias, name, [], algorithm)


@cache
def _steady_blocks(inputs: int, outputs: int, activation: str) -> tuple[int, ...]:
    """Return the block sizes in which a bfloat16 layer gives a row the same bits; empty if any size does.

    With AMX, oneDNN divides long sums by the count of rows and of threads.
    """
    if not torch.cpu._is_amx_tile_supported():  # noqa: SLF001 - public nowhere
        return ()
    block = _probe(_SMALLEST_BLOCK, inputs).bfloat16()
    weight = block.repeat(-(-outputs // _SMALLEST_BLOCK), 1)[:outputs].contiguous()
    product = _product(weight, _probe(outputs).bfloat16(), activation)
    rows = block.repeat(_COUNTS[-1] // _SMALLEST_BLOCK, 1)
    with _threads(1):
        expected = product(block).repeat(_COUNTS[-1] // _SMALLEST_BLOCK, 1)
    steady = set(_COUNTS)
    for count in (1, 2):
        with _threads(count):
            steady = {size for size in steady if torch.equal(product(rows[:size]), expected[:size])}
    return () if steady.issuperset(_COUNTS) else (*(size for size in _BLOCKS if size in steady), _SMALLEST_BLOCK)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Compute with this number of threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def onednn_works(dtype: torch.dtype) -> bool:
    """Return whether oneDNN's linear layer exists, works on this processor, and agrees with torch's own."""
    rows = _probe(_PROBE_ROWS, _PROBE_WIDTH).to(dtype)
    weight = (_probe(_PROBE_WIDTH, _PROBE_WIDTH) / 8).to(dtype)
    bias = _probe(_PROBE_WIDTH).to(dtype)
    try:
        computed = [OneDnnLinear(weight, bias, activation)(rows) for activation in sorted(ACTIVATIONS)]
    except (AttributeError, RuntimeError):  # no such operator, or not for this processor
        return False
    expected = [PlainLinear(weight, bias, activation)(rows) for activation in sorted(ACTIVATIONS)]
    return all(
        bool((actual.float() - reference.float()).abs().max() < _PROBE_TOLERANCE[dtype])
        for actual, reference in zip(computed, expected, strict=True)
    )


def _probe(*shape: int) -> Tensor:
    """Return fixed uneven numbers between -2 and 2; torch's generators would import much more of torch."""
    return torch.arange(math.prod(shape), dtype=torch.float64).square().sin().mul(2).float().reshape(shape)
