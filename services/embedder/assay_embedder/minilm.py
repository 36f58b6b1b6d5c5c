"""all-MiniLM-L6-v2, in torch alone.

sentence-transformers runs any model, and takes five seconds to import, which each start of an embedder would pay.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch.nn import functional

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor


class MiniLm:
    """A BERT whose tokens' vectors are averaged, of length 1.

    Args:
        folder: The model as sentence-transformers saves it.
        device: "cpu" or "cuda".
        precision: "float32", "bfloat16" or "float16".
    """

    def __init__(self, folder: Path, *, device: str, precision: str) -> None:
        config, limits = (_read(folder / name) for name in ("config.json", "sentence_bert_config.json"))
        self.dimension: int = config["hidden_size"]
        self.max_tokens: int = limits["max_seq_length"]
        self.precision = precision
        self.padding_id: int = config["pad_token_id"]
        self.pads_left = False
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(max_length=self.max_tokens)
        self._head_count: int = config["num_attention_heads"]
        self._epsilon: float = config["layer_norm_eps"]
        self._device = device
        self._layers = [f"encoder.layer.{number}" for number in range(config["num_hidden_layers"])]
        dtype = getattr(torch, precision)
        weights = load_file(folder / "model.safetensors").items()
        self._weights = {name: weight.to(device, dtype) for name, weight in weights if weight.is_floating_point()}
        self.weight_bytes = sum(weight.nbytes for weight in self._weights.values())

    def embed(self, ids: Tensor, types: Tensor, mask: Tensor) -> Tensor:
        """Return one vector per text, as every `Network` does."""
        ids, types, mask = (tensor.to(self._device) for tensor in (ids, types, mask))
        weights, at = self._weights, "embeddings"
        tokens = functional.embedding(ids, weights[f"{at}.word_embeddings.weight"])
        tokens = tokens + functional.embedding(types, weights[f"{at}.token_type_embeddings.weight"])
        tokens = self._normalized(tokens + weights[f"{at}.position_embeddings.weight"][: ids.shape[1]], at)
        attended = mask.bool()[:, None, None, :]
        for layer in self._layers:
            tokens = self._after(layer, tokens, attended)
        kept = mask[:, :, None].to(tokens.dtype)
        return functional.normalize((tokens * kept).sum(1) / kept.sum(1), dim=1)

    def _after(self, layer: str, tokens: Tensor, attended: Tensor) -> Tensor:
        """Return the tokens after a layer: attention, then two linear steps, each added to what goes in."""
        shape = (*tokens.shape[:2], self._head_count, -1)
        query, key, value = (
            self._linear(tokens, f"{layer}.attention.self.{name}").view(shape).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, attended).transpose(1, 2).flatten(2)
        step = f"{layer}.attention.output"
        tokens = self._normalized(tokens + self._linear(mixed, f"{step}.dense"), step)
        wide = functional.gelu(self._linear(tokens, f"{layer}.intermediate.dense"))
        return self._normalized(tokens + self._linear(wide, f"{layer}.output.dense"), f"{layer}.output")

    def _linear(self, tokens: Tensor, name: str) -> Tensor:
        return functional.linear(tokens, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"])

    def _normalized(self, tokens: Tensor, name: str) -> Tensor:
        weight, bias = (self._weights[f"{name}.LayerNorm.{kind}"] for kind in ("weight", "bias"))
        return functional.layer_norm(tokens, (self.dimension,), weight, bias, self._epsilon)


def _read(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))
