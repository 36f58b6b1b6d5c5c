"""An encoder whose texts lie behind each other without padding, so that none costs more than its own tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch.nn import functional

from assay_embedder.packed import attention
from assay_embedder.packed.attention import Attention, Layout
from assay_embedder.packed.linear import Linear, OneDnnLinear, PlainLinear, onednn_works
from assay_embedder.packed.weights import Weights

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from assay_embedder.architecture import Architecture
    from assay_embedder.encoder import Tokens

VERSION = 2
"""Raised with every change that may change a vector's bits: what was verified before is verified again."""
_ROW_MULTIPLE = 16  # kernels choose by the count of rows; these are never fewer, and oneDNN prepares few shapes


@dataclass(frozen=True, slots=True)
class Engine:
    """How a network computes.

    Args:
        name: Shown and recorded, e.g. "packed oneDNN float32".
        device: Where the weights lie.
        dtype: Number format of products; sums of layers and norms are float32.
        linear: Makes a linear layer of its weight, its bias and its activation.
        attention: Computes attention.
    """

    name: str
    device: torch.device
    dtype: torch.dtype
    linear: Callable[[Tensor, Tensor, str], Linear]
    attention: Attention


def choose_engine(device: str, dtype: torch.dtype) -> Engine:
    """Return the fastest way to compute on a device.

    Args:
        device: "cpu", "cuda" or "cuda:N".
        dtype: Number format of products.
    """
    place, format_ = torch.device(device), str(dtype).removeprefix("torch.")
    if place.type == "cpu":
        if onednn_works(dtype):
            return Engine(f"packed oneDNN {format_}", place, dtype, OneDnnLinear, attention.attend_by_length)
        return Engine(f"packed torch {format_}", place, dtype, PlainLinear, attention.attend_by_length)
    # The kernel for any lengths takes 16-bit numbers alone.
    by_bounds = dtype != torch.float32 and attention.has_variable_length()
    attend = attention.attend_by_bounds if by_bounds else attention.attend_by_length
    return Engine(f"packed torch {format_}", place, dtype, PlainLinear, attend)


class PackedNetwork:
    """An encoder of the BERT or RoBERTa family.

    On a CPU, a text's vector has the same bits whatever it is computed with and by however many threads: attention runs
    over groups of exactly equal length, and every other step treats rows one by one with the same kernel. Several
    threads may use it at once.

    Args:
        architecture: What the folder describes.
        engine: How to compute.

    Raises:
        SetupError: The weights are damaged.
        KeyError: A tensor is missing.
    """

    packed = True

    def __init__(self, architecture: Architecture, engine: Engine) -> None:
        self._architecture, self._engine = architecture, engine
        self.engine_name = engine.name
        self.dimension = architecture.hidden
        self.max_tokens = architecture.max_tokens
        self.tokenizer: Any = Tokenizer.from_file(str(architecture.weights / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(max_length=architecture.max_tokens)
        with torch.inference_mode():
            # Half of a small model are words that no text has: a mapping of the file of its own, which stays open.
            words = Weights(architecture.weights).take("embeddings.word_embeddings.weight", lies_in_file=True)
            weights = Weights(architecture.weights)
            self._words = words.to(engine.device)
            self._positions, self._types = (
                weights.take(f"embeddings.{kind}_embeddings.weight").to(engine.device)
                for kind in ("position", "token_type")
            )
            self._norm = _Norm(weights, "embeddings", self)
            self._layers = [_Layer(weights, number, self) for number in range(architecture.layer_count)]

    def embed(self, batch: Sequence[Tokens]) -> Tensor:
        """Return one vector per text, shape (texts, dimension), float32."""
        order = sorted(range(len(batch)), key=lambda at: len(batch[at].ids))
        layout = Layout([len(batch[at].ids) for at in order])
        rows = self._embedded([batch[at] for at in order], sum(layout.lengths))
        for layer in self._layers:
            rows = layer.after(rows, layout)
        pooled = torch.empty(len(batch), self.dimension, device=rows.device)
        pooled[torch.tensor(order)] = self._pooled(rows, layout)
        return pooled

    def linear(self, weight: Tensor, bias: Tensor, activation: str = "") -> Linear:
        """Return a linear layer on the network's device, in its number format."""
        weight, bias = (each.to(self._engine.device, self._engine.dtype) for each in (weight, bias))
        return self._engine.linear(weight, bias, activation)

    def attended(self, projected: Tensor, layout: Layout) -> Tensor:
        """Return the attended values of one layer."""
        return self._engine.attention(projected, layout, self._architecture.head_count)

    def normalized(self, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Return the layer norm of rows."""
        return functional.layer_norm(rows, (self.dimension,), weight, bias, self._architecture.epsilon)

    @property
    def dtype(self) -> torch.dtype:
        """Number format of products."""
        return self._engine.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights lie."""
        return self._engine.device

    @property
    def activation(self) -> str:
        """The activation between the two wide linear layers."""
        return self._architecture.activation

    def _embedded(self, texts: Sequence[Tokens], used: int) -> Tensor:
        """Return the first layer's rows; they are filled up to a multiple of `_ROW_MULTIPLE`."""
        places = np.zeros((3, -(-used // _ROW_MULTIPLE) * _ROW_MULTIPLE), dtype=np.int64)
        start = 0
        for tokens in texts:
            end = start + len(tokens.ids)
            places[0, start:end], places[1, start:end] = tokens.ids, tokens.type_ids
            places[2, start:end] = self._numbered(places[0, start:end])
            start = end
        ids, types, positions = self._moved(torch.from_numpy(places))
        rows = functional.embedding(ids, self._words) + functional.embedding(types, self._types)
        return self._norm(rows + functional.embedding(positions, self._positions))

    def _numbered(self, ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the position of each word piece; the RoBERTa family does not count a written "<pad>"."""
        if not self._architecture.counts_from_padding:
            return np.arange(len(ids))
        counted = ids != self._architecture.padding_id
        positions: np.ndarray[Any, Any] = np.cumsum(counted) * counted + self._architecture.padding_id
        return positions

    def _moved(self, places: Tensor) -> Tensor:
        if self.device.type != "cuda":
            return places
        return places.pin_memory().to(self.device, non_blocking=True)

    def _pooled(self, rows: Tensor, layout: Layout) -> Tensor:
        parts = []
        for place, count, length in layout.groups():
            tokens = rows[place].view(count, length, self.dimension)
            if self._architecture.pooling == "cls":
                parts.append(tokens[:, 0])
            elif self._architecture.pooling == "max":
                parts.append(tokens.amax(1))
            else:
                parts.append(tokens.sum(1) / length)
        pooled = torch.cat(parts)
        return functional.normalize(pooled, dim=1) if self._architecture.normalizes else pooled


class _Norm:
    """A layer norm."""

    def __init__(self, weights: Weights, name: str, network: PackedNetwork) -> None:
        self._network = network
        self._weight, self._bias = (
            weights.take(f"{name}.LayerNorm.{kind}").to(network.device) for kind in ("weight", "bias")
        )

    def __call__(self, rows: Tensor) -> Tensor:
        return self._network.normalized(rows, self._weight, self._bias)


class _Layer:
    """Attention, then two linear layers, each added to what goes in."""

    def __init__(self, weights: Weights, number: int, network: PackedNetwork) -> None:
        self._network = network
        name = f"encoder.layer.{number}"
        parts = [f"{name}.attention.self.{each}" for each in ("query", "key", "value")]
        weight, bias = (torch.cat([weights.take(f"{part}.{kind}") for part in parts]) for kind in ("weight", "bias"))
        self._project = network.linear(weight, bias)
        self._mix = self._read(weights, f"{name}.attention.output.dense")
        self._widen = self._read(weights, f"{name}.intermediate.dense", network.activation)
        self._narrow = self._read(weights, f"{name}.output.dense")
        self._norms = [_Norm(weights, f"{name}.{part}", network) for part in ("attention.output", "output")]

    def _read(self, weights: Weights, name: str, activation: str = "") -> Linear:
        return self._network.linear(weights.take(f"{name}.weight"), weights.take(f"{name}.bias"), activation)

    def after(self, rows: Tensor, layout: Layout) -> Tensor:
        """Return the rows after this layer, float32."""
        dtype = self._network.dtype
        mixed = self._mix(self._network.attended(self._project(rows.to(dtype)), layout))
        rows = self._norms[0](rows + mixed)
        return self._norms[1](rows + self._narrow(self._widen(rows.to(dtype))))
