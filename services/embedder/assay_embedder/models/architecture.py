"""The architecture that a model's folder describes, read without running any of its code."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_WINDOW = 8_192  # models without a limit of their own name absurd ones
_ACTIVATIONS = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}
_ROBERTA = {"roberta", "xlm-roberta", "camembert"}
POSITIONS_FROM_PADDING = {*_ROBERTA, "mpnet", "xlm-roberta-xl", "longformer"}
"""Families whose positions start behind the padding's id, so that fewer word pieces have one."""
_FAMILIES = {"bert", *_ROBERTA}
_LEGACY_POOLING = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_POOLINGS = {"cls", "max", "mean"}


class UnknownArchitectureError(Exception):
    """The packed forward pass does not support a model; the message names the unsupported part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """An encoder of the BERT or RoBERTa family, with its pooling.

    Args:
        hidden: Values per token.
        layer_count: Layers.
        head_count: Heads of each layer.
        epsilon: Added to the variance in layer norms.
        activation: Between the two wide linear layers: "gelu", "gelu_tanh" or "relu".
        max_tokens: Longest input in word pieces.
        padding_id: The word piece that padding would have.
        counts_from_padding: Whether positions start behind the padding's id, as in the RoBERTa family.
        pooling: How tokens become a vector: "mean", "cls" or "max".
        normalizes: Whether vectors have length 1.
        weights: The folder of the weights.
        is_immutable: Whether nothing overwrites its files, as those of the hub's cache and of installed packages.
    """

    hidden: int
    layer_count: int
    head_count: int
    epsilon: float
    activation: str
    max_tokens: int
    padding_id: int
    counts_from_padding: bool
    pooling: str
    normalizes: bool
    weights: Path
    is_immutable: bool = False


def read_architecture(folder: Path, *, is_immutable: bool = False) -> Architecture:
    """Return what a folder saved by sentence-transformers, or by transformers, describes.

    Args:
        folder: The folder.
        is_immutable: Whether nothing overwrites its files.

    Raises:
        UnknownArchitectureError: It has a part that the packed forward pass does not know.
    """
    encoder, pooling, normalizes = _modules(folder)
    config = read_json(encoder / "config.json")
    if problem := _unknown_in(config):
        raise UnknownArchitectureError(problem)
    try:
        counts_from_padding = config["model_type"] in _ROBERTA
        padding_id = config.get("pad_token_id") or 0
        positions = config["max_position_embeddings"] - (padding_id + 1 if counts_from_padding else 0)
        return Architecture(
            hidden=config["hidden_size"],
            layer_count=config["num_hidden_layers"],
            head_count=config["num_attention_heads"],
            epsilon=config["layer_norm_eps"],
            activation=_ACTIVATIONS[config.get("hidden_act", "gelu")],
            max_tokens=_window(encoder, positions),
            padding_id=padding_id,
            counts_from_padding=counts_from_padding,
            pooling=pooling,
            normalizes=normalizes,
            weights=encoder,
            is_immutable=is_immutable,
        )
    except KeyError as error:
        raise UnknownArchitectureError(f"config.json has no {error.args[0]}") from error


def encoder_folder(folder: Path) -> Path:
    """Return the folder of a model's first module, which holds its config.json."""
    listed = read_json(folder / "modules.json")
    path = listed[0].get("path", "") if isinstance(listed, list) and listed and isinstance(listed[0], dict) else ""
    return folder / str(path)


def read_json(file: Path) -> Any:
    """Return a JSON file's value; an empty object where there is no such file or it is no JSON."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def _modules(folder: Path) -> tuple[Path, str, bool]:
    """Return the encoder's folder, the pooling, and whether vectors get length 1."""
    modules = read_json(folder / "modules.json")
    if not modules:  # saved by transformers: sentence-transformers takes the mean of the tokens then
        return folder, "mean", False
    kinds = [str(module["type"]).rsplit(".", 1)[-1] for module in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise UnknownArchitectureError(f"its modules are {', '.join(kinds)}")
    pooling = _pooling(read_json(folder / modules[1]["path"] / "config.json"))
    if len(kinds) == 3 and (named := read_json(folder / modules[2]["path"] / "config.json")):
        keys = {named.get(key) or "sentence_embedding" for key in ("module_input_name", "module_output_name")}
        if keys != {"sentence_embedding"}:
            raise UnknownArchitectureError("it normalises something else than the text's vector")
    return encoder_folder(folder), pooling, len(kinds) == 3


def _pooling(config: Any) -> str:
    modes = config.get("pooling_mode") or [mode for key, mode in _LEGACY_POOLING.items() if config.get(key)] or "mean"
    if isinstance(modes, list) and len(modes) == 1:
        modes = modes[0]
    if isinstance(modes, list) or modes not in _POOLINGS:
        raise UnknownArchitectureError(f"its pooling is {modes}")
    if config.get("include_prompt") is False:
        raise UnknownArchitectureError("its pooling leaves the prompt out")
    return str(modes)


def _unknown_in(config: Any) -> str:
    """Return what the packed forward pass does not support in config.json; empty if it supports everything."""
    if config.get("model_type") not in _FAMILIES:
        return f"its architecture is {config.get('model_type')}"
    if config.get("hidden_act", "gelu") not in _ACTIVATIONS:
        return f"its activation is {config['hidden_act']}"
    if config.get("position_embedding_type", "absolute") != "absolute":
        return f"its positions are {config['position_embedding_type']}"
    if config.get("is_decoder") or config.get("add_cross_attention"):
        return "it is a decoder"
    if config.get("embedding_size", config.get("hidden_size")) != config.get("hidden_size"):
        return "its embeddings are narrower than its layers"
    if config.get("hidden_size", 0) % max(config.get("num_attention_heads", 1), 1):
        return "its heads do not divide its hidden size"
    return ""


def _window(encoder: Path, positions: int) -> int:
    """Return the longest input: sentence-transformers' limit or else the tokenizer's, within the positions."""
    limits = read_json(encoder / "sentence_bert_config.json")
    named = limits.get("max_seq_length") or read_json(encoder / "tokenizer_config.json").get("model_max_length")
    return min(int(named or positions), positions, LONGEST_WINDOW)
