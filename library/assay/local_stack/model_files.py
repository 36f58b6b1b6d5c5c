"""Checks of an embedding model's files before it is loaded: whether it is present, and whether it can be loaded."""

from __future__ import annotations

import json
import os
import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_PACKAGED_MODEL = "all-MiniLM-L6-v2"
"""The model that is installed with the embedder."""
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_DEFAULT_OWNER = "sentence-transformers"
_OF_TEXT = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")  # endings of architectures that generate text
_HEADER_SIZE = struct.Struct("<Q")
_MAX_HEADER = 100_000_000


def model_problem(name: str) -> str:
    """Return why a model can never be loaded, as the end of a sentence about it; empty if nothing shows that.

    Only the header and the size of weights are checked; other damage shows when the model is loaded.

    Args:
        name: The packaged model, a folder, or an id of the Hugging Face hub.
    """
    folder = Path(name)
    if name == _PACKAGED_MODEL:
        return ""
    if is_folder(name):
        return _folder_problem(folder)
    if folder.is_absolute() or name.startswith((".", "~")):
        return "is not a folder: give one that sentence-transformers saved"
    if not _HUB_ID.fullmatch(name):
        return "is neither a folder nor an id of a model on the Hugging Face hub, such as intfloat/multilingual-e5-base"
    return ""


def is_on_disk(name: str, environment: Mapping[str, str]) -> bool:
    """Return whether a model is on this machine, so that loading it takes seconds and needs no network.

    Args:
        name: As above.
        environment: May name another cache of the Hugging Face hub.
    """
    if name == _PACKAGED_MODEL or is_folder(name):
        return True
    caches = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    home = environment.get("HF_HOME") or Path(caches, "huggingface")
    cache = Path(environment.get("HF_HUB_CACHE") or Path(home, "hub"))
    full = name if "/" in name else f"{_DEFAULT_OWNER}/{name}"
    return (cache / f"models--{full.replace('/', '--')}" / "snapshots").is_dir()


def is_folder(name: str) -> bool:
    """Return whether a model's name is a folder; False for a name that no file can have."""
    return os.path.isdir(name)  # noqa: PTH112 - Path.is_dir raises for a name that is too long


def _folder_problem(folder: Path) -> str:
    configs = [folder / "config.json", *sorted(folder.glob("*/config.json"))]
    config_file = next((config for config in configs if config.is_file()), None)
    if config_file is None:
        return "is no model: its folder has no config.json"
    if not any(folder.rglob("*.safetensors")):
        return (
            "has no weights that are read: its folder has no *.safetensors; the pickles of other formats may hold code"
        )
    try:
        config = json.loads(config_file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return f"cannot be read: {config_file} is not JSON"
    config = config if isinstance(config, dict) else {}
    if config.get("auto_map"):
        return "comes with code of its own (`auto_map` in its config.json), which is never run: choose another model"
    if not (folder / "modules.json").is_file() and (kind := _generates(config)):
        return f"is not an encoder: its config.json names {kind}, which generates text; choose an embedding model"
    if (own := _own_code(folder)) is not None:
        return f"comes with code of its own ({own} in its modules.json), which is never run: choose another model"
    damaged = next((file for file in sorted(folder.rglob("*.safetensors")) if not _is_complete(file)), None)
    return f"has damaged weights: {damaged} is incomplete; download the model again" if damaged is not None else ""


def _own_code(folder: Path) -> str | None:
    """Return the module of a folder that is not a class of sentence-transformers; None if there is none."""
    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    kinds = [module.get("type") for module in modules if isinstance(module, dict)] if isinstance(modules, list) else []
    return next(
        (kind for kind in kinds if isinstance(kind, str) and not kind.startswith("sentence_transformers.")), None
    )


def _generates(config: Mapping[str, Any]) -> str:
    """Return the architecture of a model that generates text; empty for an encoder."""
    named = config.get("architectures")
    return next((kind for kind in named if str(kind).endswith(_OF_TEXT)), "") if isinstance(named, list) else ""


def _is_complete(file: Path) -> bool:
    """Return whether a safetensors file has the size that its header states."""
    if not file.is_file():
        return False
    with file.open("rb") as weights:
        start = weights.read(_HEADER_SIZE.size)
        size = file.stat().st_size
        if len(start) < _HEADER_SIZE.size or (header_bytes := _HEADER_SIZE.unpack(start)[0]) > min(size, _MAX_HEADER):
            return False
        try:
            tensors = json.loads(weights.read(header_bytes))
            ends = [tensor["data_offsets"][1] for name, tensor in tensors.items() if name != "__metadata__"]
        except (ValueError, TypeError, LookupError, AttributeError):
            return False
    return bool(size == _HEADER_SIZE.size + header_bytes + max(ends, default=0))
