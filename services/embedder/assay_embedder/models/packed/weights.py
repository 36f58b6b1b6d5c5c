"""Weights of a model's safetensors files, one tensor at a time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from assay.errors import SetupError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

_MARK = "embeddings.word_embeddings.weight"
_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"


class Weights:
    """The tensors of a folder, each read when it is taken, so that a large model is never in memory twice.

    Args:
        folder: Holds model.safetensors, or its parts and their index.

    Raises:
        SetupError: A file is missing or damaged.
        KeyError: There are no embeddings of words.
    """

    def __init__(self, folder: Path) -> None:
        self._files: dict[str, Any] = {}
        for file in weight_files(folder):
            opened = open_weights(file)
            self._files |= dict.fromkeys(opened.keys(), opened)
        # A checkpoint of a whole model has its encoder's name before every tensor's: "bert.", "roberta.".
        self._prefix = next(name.removesuffix(_MARK) for name in [*self._files, _MARK] if name.endswith(_MARK))
        if self._prefix + _MARK not in self._files:
            raise KeyError(_MARK)

    def take(self, name: str, *, lies_in_file: bool = False) -> Tensor:
        """Return a tensor as float32.

        Args:
            name: Its name, without that of a whole model.
            lies_in_file: Whether a tensor that is float32 in its file stays there, where only the parts that are read
                come into memory; else it has memory of its own.

        Raises:
            KeyError: There is none of this name.
        """
        import torch

        full = self._prefix + name
        if full not in self._files:  # as the first checkpoints of BERT have it
            full = full.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        tensor: Tensor = self._files[full].get_tensor(full)
        return tensor.to(torch.float32, copy=not lies_in_file)


def weight_files(folder: Path) -> list[Path]:
    """Return the files that hold a model's weights: one, or those that its index names.

    Raises:
        SetupError: One that the index names is missing, or the index cannot be read.
    """
    index = folder / _INDEX
    if (folder / _SINGLE).is_file() or not index.is_file():
        return [folder / _SINGLE] if (folder / _SINGLE).is_file() else []
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError) as error:
        raise SetupError(f"{index} is damaged: download the model again.", reason="MODEL_NOT_LOADED") from error
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        message = f"{folder} lacks {missing[0]}, which {_INDEX} names: download the model again."
        raise SetupError(message, reason="MODEL_NOT_LOADED")
    return [folder / name for name in names]


def open_weights(file: Path) -> Any:
    """Return a safetensors file, its header checked against its size.

    Raises:
        SetupError: It is damaged.
    """
    try:
        return safe_open(file, framework="pt")
    except (SafetensorError, OSError) as error:
        message = f"The weights in {file} are damaged ({error}): download the model again."
        raise SetupError(message, reason="MODEL_NOT_LOADED") from error
