"""Linear layers: through oneDNN, with weights packed once, or as torch has them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from torch import Tensor

_ONEDNN_ACTIVATIONS = {
    "": ("none", None), "gelu": ("gelu", "none"), "gelu_tanh": ("gelu", "tanh"), "relu": ("relu", None)
}  # fmt: skip
ACTIVATIONS = frozenset(_ONEDNN_ACTIVATIONS)
_PROBE_ROWS, _PROBE_WIDTH = 48, 64
_PROBE_TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 0.1}


class Linear(Protocol):
    """A linear layer, with its activation."""

    def __call__(self, rows: Tensor) -> Tensor:
        """Return activation(rows · weightᵀ + bias), shape (rows, outputs)."""


class PlainLinear:
    """A linear layer as torch has it.

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
    """A linear layer of oneDNN: the weight is laid out once for its kernels, the activation is computed with it.

    The default of torch on x86 is MKL, which has half the rate on AMD's processors, and whose results for a row depend
    on how many rows there are.

    Args:
        weight: Shape (outputs, inputs).
        bias: Shape (outputs,).
        activation: One of `ACTIVATIONS`; empty for none.
    """

    def __init__(self, weight: Tensor, bias: Tensor, activation: str = "") -> None:
        # Names of torch's own compiler, not of its documentation: `onednn_works` tries them first.
        self._compute: Any = torch.ops.mkldnn._linear_pointwise  # noqa: SLF001
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight)  # noqa: SLF001
        self._bias = bias
        self._activation, self._algorithm = _ONEDNN_ACTIVATIONS[activation]

    def __call__(self, rows: Tensor) -> Tensor:
        """Return activation(rows · weightᵀ + bias)."""
        found: Tensor = self._compute(rows, self._weight, self._bias, self._activation, [], self._algorithm)
        return found


def onednn_works(dtype: torch.dtype) -> bool:
    """Return whether oneDNN's linear layer is there, works on this processor, and computes what torch's own does."""
    rows = _probe(_PROBE_ROWS, _PROBE_WIDTH).to(dtype)
    weight = (_probe(_PROBE_WIDTH, _PROBE_WIDTH) / 8).to(dtype)
    bias = _probe(_PROBE_WIDTH).to(dtype)
    try:
        found = [OneDnnLinear(weight, bias, each)(rows) for each in sorted(ACTIVATIONS)]
    except (AttributeError, RuntimeError):  # no such operator, or not for this processor
        return False
    expected = [PlainLinear(weight, bias, each)(rows) for each in sorted(ACTIVATIONS)]
    return all(
        bool((one.float() - other.float()).abs().max() < _PROBE_TOLERANCE[dtype])
        for one, other in zip(found, expected, strict=True)
    )


def _probe(*shape: int) -> Tensor:
    """Return uneven numbers between -2 and 2, the same each time; torch's generators need more of it than the rest."""
    return torch.arange(math.prod(shape), dtype=torch.float64).square().sin().mul(2).float().reshape(shape)
