"""An encoder that packs texts without padding, so that each costs only its own tokens."""

from __future__ import annotations

from array import array
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from tokenizers import Tokenizer
from torch.nn import functional

from assay_embedder.models.architecture import UnknownArchitectureError
from assay_embedder.models.packed.attention import Layout, attend_by_length
from assay_embedder.models.packed.linear import Linear, OneDnnLinear, PlainLinear, onednn_works
from assay_embedder.models.packed.weights import Weights

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from assay_embedder.models.architecture import Architecture
    from assay_embedder.models.encoder import Tokens

VERSION = 4
"""Raised with every change that may change a vector's bits: what was verified or cached before is not used again."""
_LOADERS = 2  # of layers: more would not be faster, and each holds the weights of one
_ROW_MULTIPLE = 16  # kernels choose by the count of rows; these are never fewer, and oneDNN prepares few shapes


@dataclass(frozen=True, slots=True)
class Engine:
    """How a network computes.

    Args:
        name: Shown and recorded, e.g. "packed oneDNN float32".
        device: Where the weights lie.
        dtype: Number format of products; sums of layers and norms are float32.
        linear: Makes a linear layer of its weight, its bias and its activation.
    """

    name: str
    device: torch.device
    dtype: torch.dtype
    linear: Callable[[Tensor, Tensor, str], Linear]


def choose_engine(dtype: torch.dtype) -> Engine:
    """Return the fastest way to compute on a CPU.

    Args:
        dtype: Number format of products.
    """
    has_onednn = onednn_works(dtype)
    name = f"packed {'oneDNN' if has_onednn else 'torch'} {str(dtype).removeprefix('torch.')}"
    return Engine(name, torch.device("cpu"), dtype, OneDnnLinear if has_onednn else PlainLinear)


class PackedNetwork:
    """An encoder of the BERT or RoBERTa family, on a CPU.

    A text's vector has the same bits whatever it is computed with, by threads that have one arithmetic thread each:
    attention is computed text by text or over groups of exactly equal length, and every other step treats rows one by
    one with the same kernel. Several threads may use it at once.

    Args:
        architecture: What the folder describes.
        engine: How to compute.

    Raises:
        SetupError: The weights are damaged.
        KeyError: A tensor is missing.
        UnknownArchitectureError: Its tokenizer cuts texts in another way.
    """

    packed = True

    def __init__(self, architecture: Architecture, engine: Engine) -> None:
        self.architecture, self.engine = architecture, engine
        self.engine_name = engine.name
        self.dimension = architecture.hidden
        self.max_tokens = architecture.max_tokens
        self.tokenizer: Any = Tokenizer.from_file(str(architecture.weights / "tokenizer.json"))
        if (self.tokenizer.truncation or {}).get("direction") == "left":
            raise UnknownArchitectureError("its tokenizer cuts long texts at their beginning")
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(max_length=architecture.max_tokens)
        with torch.inference_mode():
            # Half of a small model are words that no text has: a mapping of the file of its own, which stays open. A
            # file that may be overwritten is read whole: the model would change with it, or the process be killed.
            words = Weights(architecture.weights).take(
                "embeddings.word_embeddings.weight", lies_in_file=architecture.is_immutable
            )
            weights = Weights(architecture.weights)
            self._words = words.to(engine.device)
            self.word_count = len(words)
            self._positions, self._types = (
                weights.take(f"embeddings.{kind}_embeddings.weight").to(engine.device)
                for kind in ("position", "token_type")
            )
            self._norm = _Norm(weights, "embeddings", self)
        self._layers = self._read_layers(weights)

    def embed(self, batch: Sequence[Tokens]) -> Tensor:
        """Return one vector per text, shape (texts, dimension), float32."""
        order = sorted(range(len(batch)), key=lambda at: len(batch[at].ids))
        layout = Layout([len(batch[at].ids) for at in order])
        attend = partial(attend_by_length, layout=layout, head_count=self.architecture.head_count)
        rows = self.after_layers(self._embedded([batch[at] for at in order], layout.lengths), attend)
        pooled = torch.empty(len(batch), self.dimension)
        pooled[torch.tensor(order)] = self._pooled(rows, layout)
        return pooled

    def _read_layers(self, weights: Weights) -> list[_Layer]:
        """Return the layers, read and laid out two at a time: both steps release the interpreter's lock."""

        def read(number: int) -> _Layer:
            with torch.inference_mode():
                return _Layer(weights, number, self)

        with ThreadPoolExecutor(_LOADERS) as loaders:
            return list(loaders.map(read, range(self.architecture.layer_count)))

    def linear(self, weight: Tensor, bias: Tensor, activation: str = "") -> Linear:
        """Return a linear layer on the network's device, in its number format."""
        weight, bias = (each.to(self.engine.device, self.engine.dtype) for each in (weight, bias))
        return self.engine.linear(weight, bias, activation)

    def ids_of(self, texts: Sequence[Tokens]) -> NDArray[np.uintc]:
        """Return the word pieces of texts behind each other.

        Raises:
            IndexError: The weights lack one, as a word piece that was added to the tokenizer alone. A GPU would fail on
                it, and on everything after it.
        """
        ids = np.frombuffer(b"".join([array("I", tokens.ids) for tokens in texts]), np.uintc)
        if ids.max(initial=0) >= self.word_count:
            raise IndexError(f"the weights have no word piece {ids.max()}")
        return ids

    def positions_of(self, ids: NDArray[Any], lengths: Sequence[int]) -> NDArray[Any]:
        """Return the position of each word piece; the RoBERTa family does not count a written "<pad>".

        Args:
            ids: Word pieces of all texts, behind each other.
            lengths: Word pieces of each text.
        """
        counts = np.asarray(lengths, np.int32)
        starts = np.cumsum(counts, dtype=np.int32) - counts
        if not self.architecture.counts_from_padding:
            return np.asarray(np.arange(len(ids), dtype=np.int32) - np.repeat(starts, counts))
        counted = ids != self.architecture.padding_id
        so_far = np.concatenate([[0], np.cumsum(counted)])
        within = so_far[1:] - np.repeat(so_far[starts], counts)
        return np.asarray(within * counted + self.architecture.padding_id)

    def after_layers(self, rows: Tensor, attend: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the rows after all layers; `rows` is overwritten.

        Args:
            rows: Shape (rows, hidden).
            attend: Returns the attended values, shape (rows, hidden), of queries, keys and values beside each other,
                shape (rows, 3 * hidden).
        """
        for layer in self._layers:
            rows = layer.after(rows, attend)
        return rows

    def _embedded(self, texts: Sequence[Tokens], lengths: Sequence[int]) -> Tensor:
        """Return the first layer's rows, padded to a multiple of `_ROW_MULTIPLE`."""
        used = sum(lengths)
        places = np.zeros((3, -(-used // _ROW_MULTIPLE) * _ROW_MULTIPLE), dtype=np.int64)
        places[0, :used] = self.ids_of(texts)
        places[1, :used] = type_ids(texts)
        places[2, :used] = self.positions_of(places[0, :used], lengths)
        ids, types, positions = torch.from_numpy(places)
        rows = functional.embedding(ids, self._words) + functional.embedding(types, self._types)
        return self._norm(rows + functional.embedding(positions, self._positions))

    def _pooled(self, rows: Tensor, layout: Layout) -> Tensor:
        parts = []
        for place, count, length in layout.groups():
            tokens = rows[place].view(count, length, self.dimension)
            if self.architecture.pooling == "cls":
                parts.append(tokens[:, 0])
            elif self.architecture.pooling == "max":
                parts.append(tokens.amax(1))
            else:
                parts.append(tokens.sum(1) / length)
        pooled = torch.cat(parts)
        return functional.normalize(pooled, dim=1) if self.architecture.normalizes else pooled


def type_ids(texts: Sequence[Tokens]) -> NDArray[np.int64] | Literal[0]:
    """Return the type of each word piece of packed texts; a single 0 if all are 0."""
    if not any(tokens.type_ids for tokens in texts):
        return 0
    types = (tokens.type_ids or [0] * len(tokens.ids) for tokens in texts)
    return np.fromiter(chain.from_iterable(types), np.int64)


class _Norm:
    """A layer norm."""

    def __init__(self, weights: Weights, name: str, network: PackedNetwork) -> None:
        self._shape, self._epsilon = (network.dimension,), network.architecture.epsilon
        self._weight, self._bias = (
            weights.take(f"{name}.LayerNorm.{kind}").to(network.engine.device) for kind in ("weight", "bias")
        )

    def __call__(self, rows: Tensor) -> Tensor:
        return functional.layer_norm(rows, self._shape, self._weight, self._bias, self._epsilon)


class _Layer:
    """Attention, then two linear layers, each with a residual connection."""

    def __init__(self, weights: Weights, number: int, network: PackedNetwork) -> None:
        self._dtype = network.engine.dtype
        name = f"encoder.layer.{number}"
        parts = [f"{name}.attention.self.{each}" for each in ("query", "key", "value")]
        weight, bias = (torch.cat([weights.take(f"{part}.{kind}") for part in parts]) for kind in ("weight", "bias"))
        self._project = network.linear(weight, bias)
        self._mix, self._widen, self._narrow = (
            network.linear(weights.take(f"{name}.{part}.weight"), weights.take(f"{name}.{part}.bias"), activation)
            for part, activation in (
                ("attention.output.dense", ""),
                ("intermediate.dense", network.architecture.activation),
                ("output.dense", ""),
            )
        )
        self._norms = [_Norm(weights, f"{name}.{part}", network) for part in ("attention.output", "output")]

    def after(self, rows: Tensor, attend: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the rows after this layer, float32; `rows` is overwritten."""
        mixed = self._mix(attend(self._project(rows.to(self._dtype))))
        rows = self._norms[0](rows.add_(mixed))
        return self._norms[1](rows.add_(self._narrow(self._widen(rows.to(self._dtype)))))
