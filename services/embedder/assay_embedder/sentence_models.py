"""Models that sentence-transformers runs: folders that it saved, and those of the Hugging Face hub."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from assay.errors import SetupError
from assay.local.install_hint import install_hint
from assay_embedder.hub import hub_answers

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

_LONGEST_WINDOW = 8_192  # models without a limit of their own name absurd ones


class SentenceModel:
    """A network that sentence-transformers runs.

    Args:
        name: A model's id on the hub, where `folder` is none.
        folder: A folder that sentence-transformers saved.
        device: "cpu" or "cuda".
        precision: "float32", "bfloat16" or "float16".

    Raises:
        SetupError: It cannot be found or loaded.
    """

    def __init__(self, name: str, folder: Path, *, device: str, precision: str) -> None:
        self._transformer = _loaded(name, folder, device, precision)
        wrapped = self._transformer.tokenizer
        self.tokenizer, self.max_tokens = _own_tokenizer(name, self._transformer)
        self.padding_id: int = wrapped.pad_token_id or 0
        self.pads_left: bool = wrapped.padding_side == "left"
        self._reads_types = "token_type_ids" in wrapped.model_input_names
        vector = self._transformer.encode(["dimension"], show_progress_bar=False, convert_to_numpy=True)
        self.dimension = int(vector.shape[1])
        self.weight_bytes = sum(weight.nbytes for weight in self._transformer.parameters())
        self.precision = str(next(self._transformer.parameters()).dtype).removeprefix("torch.")

    def embed(self, ids: Tensor, types: Tensor, mask: Tensor) -> Tensor:
        """Return one vector per text, as every `Network` does."""
        features = {"input_ids": ids, "attention_mask": mask}
        if self._reads_types:
            features["token_type_ids"] = types
        moved = {name: tensor.to(self._transformer.device) for name, tensor in features.items()}
        vectors: Tensor = self._transformer(moved)["sentence_embedding"]
        return vectors

    def hash_weights(self) -> str:
        """Return a hash of the weights in memory, for a model whose files lie in a cache."""
        import torch  # heavy: only a process that loads a model pays for it

        digest = hashlib.sha256()
        for name, tensor in sorted(self._transformer.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()


def _loaded(name: str, folder: Path, device: str, precision: str) -> Any:
    try:
        import torch
        import transformers
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        message = f"The embedder needs packages that are not installed ({error.name}); run: {install_hint('embedder')}."
        raise SetupError(message, reason="NOT_INSTALLED") from error
    transformers.utils.logging.disable_progress_bar()
    dtype = getattr(torch, precision)
    is_local = folder.is_dir()
    try:
        return SentenceTransformer(
            str(folder) if is_local else name,
            device=device,
            trust_remote_code=False,
            local_files_only=is_local or not hub_answers(),
            # The other format of weights is a pickle, which may hold code.
            model_kwargs={"torch_dtype": dtype, "use_safetensors": True},
        ).eval()
    except (OSError, ValueError, RuntimeError, ImportError, KeyError) as error:
        first_line = next(iter(str(error).splitlines()), type(error).__name__)
        raise SetupError(
            f'The model "{name}" could not be loaded: {first_line} Give a folder saved by sentence-transformers, '
            "or the id of a model on the Hugging Face hub that this machine can reach.",
            reason="MODEL_NOT_LOADED",
        ) from error


def _own_tokenizer(name: str, transformer: Any) -> tuple[Any, int]:
    """Return a tokenizer that cuts but does not pad, and the length at which it cuts."""
    from tokenizers import Tokenizer

    backend = getattr(transformer.tokenizer, "backend_tokenizer", None)
    if backend is None:
        message = f'The model "{name}" has no fast tokenizer; save it with a tokenizer.json.'
        raise SetupError(message, reason="MODEL_NOT_LOADED")
    positions = getattr(transformer[0].auto_model.config, "max_position_embeddings", _LONGEST_WINDOW)
    window = min(transformer.max_seq_length or positions, positions, _LONGEST_WINDOW)
    tokenizer = Tokenizer.from_str(backend.to_str())
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length=window)
    return tokenizer, window
