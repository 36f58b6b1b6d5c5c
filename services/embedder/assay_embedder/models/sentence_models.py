"""Models run by sentence-transformers: those that the packed forward pass does not support, and its reference."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from assay.errors import SetupError
from assay.local_stack.install_hint import install_hint
from assay_embedder.models.architecture import LONGEST_WINDOW, POSITIONS_FROM_PADDING, encoder_folder
from assay_embedder.models.devices import is_gpu
from assay_embedder.models.folders import check_vocabulary, not_loaded, one_line
from assay_embedder.models.torch_parts import import_all_parts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from assay_embedder.models.encoder import Tokens


class SentenceModel:
    """A network that sentence-transformers runs.

    Args:
        name: The model, for messages.
        folder: Its folder, as sentence-transformers or transformers saved it.
        device: "cpu", "cuda" or "cuda:N".
        number_format: Of the weights: "float32", "bfloat16" or "float16".

    Raises:
        SetupError: It cannot be loaded.
    """

    packed = False

    def __init__(self, name: str, folder: Path, *, device: str, number_format: str) -> None:
        self._transformer = load_transformer(name, folder, device=device, number_format=number_format)
        _require_all_weights(name, folder, self._transformer)
        if not is_gpu(device):
            _detach_from_file(self._transformer)
        wrapped = self._transformer.tokenizer
        self.tokenizer, self.max_tokens = _own_tokenizer(name, self._transformer)
        if wrapped.truncation_side == "left":
            raise not_loaded(name, "its tokenizer cuts long texts at their beginning (truncation_side)")
        self._word_count = int(self._transformer[0].auto_model.get_input_embeddings().num_embeddings)
        self._padding_id: int = wrapped.pad_token_id or 0
        self._pads_left: bool = wrapped.padding_side == "left"
        self._reads_types = "token_type_ids" in wrapped.model_input_names
        vector = self._transformer.encode(["dimension"], show_progress_bar=False, convert_to_numpy=True)
        self.dimension = int(vector.shape[1])
        self.engine_name = f"sentence-transformers {number_format}"

    def embed(self, batch: Sequence[Tokens]) -> Tensor:
        """Return one vector per text, shape (texts, dimension)."""
        import torch  # heavy: only a process that loads a model pays for it

        width = max(len(tokens.ids) for tokens in batch)
        ids = np.full((len(batch), width), self._padding_id, dtype=np.int64)
        types, mask = np.zeros_like(ids), np.zeros_like(ids)
        for row, tokens in enumerate(batch):
            length = len(tokens.ids)
            place = slice(width - length, width) if self._pads_left else slice(length)
            ids[row, place], mask[row, place] = tokens.ids, 1
            types[row, place] = tokens.type_ids or 0
        if ids.max(initial=0) >= self._word_count:  # on a GPU, everything after it would fail too
            raise IndexError(f"the weights have no word piece {ids.max()}")
        features = {"input_ids": ids, "attention_mask": mask} | ({"token_type_ids": types} if self._reads_types else {})
        device = self._transformer.device
        moved = {name: torch.from_numpy(array).to(device) for name, array in features.items()}
        vectors: Tensor = self._transformer(moved)["sentence_embedding"]
        return vectors


def load_transformer(name: str, folder: Path, *, device: str, number_format: str) -> Any:
    """Return a model as sentence-transformers loads it.

    Raises:
        SetupError: The package is missing, or it cannot load the model.
    """
    try:
        import torch

        import_all_parts()
        import transformers
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        message = f"The embedder needs packages that are not installed ({error.name}); run: {install_hint('embedder')}."
        raise SetupError(message, reason="NOT_INSTALLED") from error
    transformers.utils.logging.disable_progress_bar()
    try:
        loaded = SentenceTransformer(
            str(folder),
            device=device,
            trust_remote_code=False,
            local_files_only=True,
            # The other format of weights is a pickle, which may hold code.
            model_kwargs={"torch_dtype": getattr(torch, number_format), "use_safetensors": True},
        ).eval()
    except (OSError, ValueError, RuntimeError, ImportError, KeyError, AttributeError, TypeError) as error:
        raise not_loaded(name, one_line(error)) from error
    loaded.truncate_dim = None  # where its configuration names one: vectors are cut for requests that ask for it
    return loaded


def _detach_from_file(transformer: Any) -> None:
    """Copy tensors that map the weights' files: overwriting a file would change the model."""
    for tensor in (*transformer.parameters(), *transformer.buffers()):
        tensor.data = tensor.data.clone()


def _require_all_weights(name: str, folder: Path, transformer: Any) -> None:
    """Refuse an encoder whose weights lack a tensor; transformers would fill it with random numbers.

    Raises:
        SetupError: One is missing, or the tokenizer has word pieces that they lack.
    """
    model = getattr(transformer[0], "auto_model", None)
    if model is None:
        return
    _, loading = type(model).from_pretrained(
        str(encoder_folder(folder)),
        local_files_only=True,
        use_safetensors=True,
        torch_dtype="auto",
        output_loading_info=True,
    )
    if missing := sorted(key for key in loading["missing_keys"] if "pooler." not in key):  # of which no vector is made
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise not_loaded(name, f"its weights have no {missing[0]}{more}")
    backend = getattr(transformer.tokenizer, "backend_tokenizer", None)
    if backend is not None:
        check_vocabulary(name, backend, model.get_input_embeddings().num_embeddings)


def _own_tokenizer(name: str, transformer: Any) -> tuple[Any, int]:
    """Return a tokenizer that cuts but does not pad, and the length at which it cuts."""
    from tokenizers import Tokenizer

    backend = getattr(transformer.tokenizer, "backend_tokenizer", None)
    if backend is None:
        message = f'The model "{name}" has no fast tokenizer; save it with a tokenizer.json.'
        raise SetupError(message, reason="MODEL_NOT_LOADED")
    config = transformer[0].auto_model.config
    positions = getattr(config, "max_position_embeddings", LONGEST_WINDOW)
    if config.model_type in POSITIONS_FROM_PADDING:
        positions -= (config.pad_token_id or 0) + 1
    window = min(transformer.max_seq_length or positions, positions, LONGEST_WINDOW)
    tokenizer = Tokenizer.from_str(backend.to_str())
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=window)
    return tokenizer, window
