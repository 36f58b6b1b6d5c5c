"""Embedding models: loaded, verified, and run on tokens."""

from __future__ import annotations

import logging
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from assay.errors import SetupError
from assay.local.install_hint import install_hint
from assay_embedder import known_models, verification
from assay_embedder.architecture import UnknownArchitectureError, read_architecture
from assay_embedder.devices import free_device_memory, is_gpu
from assay_embedder.dimensions import supported_dimensions
from assay_embedder.encoder import Tokens
from assay_embedder.model_folders import (
    DEFAULT_SHA256,
    find_folder,
    hash_configuration,
    hash_weights,
    not_loaded,
    weight_bytes,
)
from assay_embedder.precision import choose_precision, number_format
from assay_embedder.sentence_models import SentenceModel, load_transformer
from assay_embedder.settings import DEFAULT_MODEL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from assay_embedder.architecture import Architecture
    from assay_embedder.packed.network import PackedNetwork

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Description:
    """A loaded model, named exactly enough to reproduce a score.

    Args:
        name: The name that callers use.
        revision: SHA-256 of the weights, hexadecimal.
        dimension: Values per vector.
        max_tokens: Longest input in word pieces.
        device: "cpu", "cuda" or "cuda:N".
        precision: "exact" or "fast".
        prefix: Put before every text.
        english_only: Whether the model was trained on English alone.
        engine: What computes, and the number format of its products, e.g. "packed oneDNN float32".
        dimensions: What vectors may be cut to, the full dimension first.
        weight_bytes: Size of the weights' files; 0 where it is not known.
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
    """What computes vectors from word pieces; it may be used from several threads at once.

    Args:
        tokenizer: A `tokenizers.Tokenizer` that cuts at `max_tokens` and does not pad.
        dimension: Values per vector.
        max_tokens: Longest input in word pieces.
        engine_name: What computes, and the number format of its products.
        packed: Whether a text costs its own tokens alone; else every text of a batch costs as many as the longest.
    """

    tokenizer: Any
    dimension: int
    max_tokens: int
    engine_name: str
    packed: bool

    def embed(self, batch: Sequence[Tokens]) -> Tensor:
        """Return one vector per text, shape (texts, dimension)."""


class Model:
    """A network, run on tokens of texts that are batched elsewhere; it may be used from several threads at once.

    Args:
        network: The loaded network.
        description: What it is.
    """

    def __init__(self, network: Network, description: Description) -> None:
        self._network = network
        self._description = description
        # The template of a tokenizer sets them, not the text: mostly all are 0, and need not be read.
        self._has_types = any(any(each.type_ids) for each in network.tokenizer.encode_batch_fast(["a text"]))

    @property
    def description(self) -> Description:
        """What it is."""
        return self._description

    @property
    def packed(self) -> bool:
        """Whether a batch costs its real tokens; else it costs as many per text as its longest text has."""
        return self._network.packed

    def tokenize(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the word pieces of each text, cut to the model's window."""
        prefix = self._description.prefix
        read = [prefix + (text if text.isascii() else _storable(text)) for text in texts]
        encodings = self._network.tokenizer.encode_batch_fast(read)
        # Arrays, as lists of numbers take twice the memory and are searched for garbage again and again.
        return [
            Tokens(array("I", each.ids), each.type_ids if self._has_types else (), bool(each.overflowing))
            for each in encodings
        ]

    def encode(self, batch: Sequence[Tokens]) -> NDArray[np.float32]:
        """Return one vector per text, shape (texts, dimension)."""
        import torch  # heavy: only a process that loads a model pays for it

        with torch.inference_mode():
            return halving(self._forward, batch, torch.OutOfMemoryError, free_device_memory)

    def _forward(self, batch: Sequence[Tokens]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self._network.embed(batch).float().cpu().numpy()
        return found


def load(name: str, *, device: str, precision: str = "exact", memory: verification.Memory | None = None) -> Model:
    """Load a model into memory; takes seconds.

    A model that the packed forward pass knows is compared with sentence-transformers first, once for these weights;
    every other one is run by sentence-transformers.

    Args:
        name: "all-MiniLM-L6-v2", which comes with the installation; or a folder saved by
            sentence-transformers; or a model's id on the Hugging Face hub.
        device: "cpu", "cuda" or "cuda:N".
        precision: "exact", "fast" or "auto".
        memory: Where outcomes of comparisons are kept; None for the state directory.

    Raises:
        SetupError: It cannot be found or loaded, its weights are not the expected ones, or this machine does not have
            the precision.
    """
    folder = find_folder(name)
    chosen = choose_precision(precision, device)
    source = _Source(name, folder, DEFAULT_SHA256 if name == DEFAULT_MODEL else hash_weights(folder), device, chosen)
    network = _network(source, memory or verification.Memory())
    description = Description(
        name=name,
        revision=source.revision,
        dimension=network.dimension,
        max_tokens=network.max_tokens,
        device=device,
        precision=chosen,
        prefix=known_models.prefix_of(name),
        english_only=known_models.is_english_only(name),
        engine=network.engine_name,
        dimensions=supported_dimensions(folder, network.dimension),
        weight_bytes=weight_bytes(folder),
    )
    return Model(network, description)


@dataclass(frozen=True, slots=True)
class _Source:
    """What a network is made of, and where it shall run."""

    name: str
    folder: Path
    revision: str
    device: str
    precision: str

    @property
    def number_format(self) -> str:
        return number_format(self.precision, self.device)


def _network(source: _Source, memory: verification.Memory) -> Network:
    """Return the packed network, where it knows the model and computes the same; else sentence-transformers'."""
    try:
        network = _packed(source)
        problem = _disagreement(source, network, memory)
    except UnknownArchitectureError as error:
        problem = str(error)
    if not problem:
        return network
    logger.warning(
        "sentence-transformers runs the model, which is slower: model=%s reason=the packed forward pass does not take "
        "it: %s",
        source.name, problem,
    )  # fmt: skip
    return SentenceModel(source.name, source.folder, device=source.device, number_format=source.number_format)


def _packed(source: _Source) -> PackedNetwork:
    architecture = read_architecture(source.folder)
    if not (architecture.weights / "tokenizer.json").is_file():
        raise UnknownArchitectureError("its tokenizer is not saved as tokenizer.json")
    try:
        make = _packed_on_gpu if is_gpu(source.device) else _packed_on_cpu
        return make(architecture, source)
    except ImportError as error:
        message = f"The embedder needs packages that are not installed ({error.name}); run: {install_hint('embedder')}."
        raise SetupError(message, reason="NOT_INSTALLED") from error
    except KeyError as error:
        raise UnknownArchitectureError(f"its weights have no {error.args[0]}") from error
    except Exception as error:
        # `tokenizers` raises bare exceptions.
        if type(error) is not Exception:
            raise
        raise not_loaded(source.name, f"tokenizer.json is damaged ({error})") from error


def _packed_on_cpu(architecture: Architecture, source: _Source) -> PackedNetwork:
    import torch

    from assay_embedder.packed.network import PackedNetwork, choose_engine

    engine = choose_engine(getattr(torch, source.number_format))
    if "oneDNN" not in engine.name:
        logger.warning("linear layers run in torch's own kernels, which are slower: oneDNN's do not work here")
    return PackedNetwork(architecture, engine)


def _packed_on_gpu(architecture: Architecture, source: _Source) -> PackedNetwork:
    import torch

    from assay_embedder.packed.gpu import GpuNetwork, choose_engine

    return GpuNetwork(architecture, choose_engine(source.device, getattr(torch, source.number_format)))


def _disagreement(source: _Source, network: PackedNetwork, memory: verification.Memory) -> str:
    """Return how far a packed network is from sentence-transformers; empty within the bounds."""
    key = _memory_key(source, network)
    problem = memory.outcome(key)
    if problem is None:
        found = _probed(network, known_models.prefix_of(source.name))
        problem = verification.disagreement(found, _expected(source), source.precision)
        memory.remember(key, problem)
    return problem


def _expected(source: _Source) -> NDArray[np.float32]:
    """Return the probe texts' vectors by sentence-transformers, which takes seconds to import: stored, or computed."""
    if source.name == DEFAULT_MODEL:
        return verification.stored_vectors()
    logger.info("comparing with sentence-transformers, once for these weights: model=%s", source.name)
    reference = load_transformer(source.name, source.folder, device=source.device, number_format="float32")
    texts = [known_models.prefix_of(source.name) + text for text in verification.PROBES]
    vectors: NDArray[np.float32] = reference.encode(texts, prompt="", show_progress_bar=False)
    return vectors


def _probed(network: PackedNetwork, prefix: str) -> NDArray[np.float32]:
    probe = Model(network, Description("", "", 0, 0, "", "", prefix, False))
    return probe.encode(probe.tokenize(verification.PROBES))


def _memory_key(source: _Source, network: PackedNetwork) -> str:
    import torch

    from assay_embedder.packed.network import VERSION

    return verification.memory_key(
        {
            "weights": source.revision,
            "configuration": hash_configuration(source.folder),
            "prefix": known_models.prefix_of(source.name),
            "engine": f"{VERSION} {network.engine_name}",
            "probes": "\n".join(verification.PROBES),
            "precision": source.precision,
            "device": torch.cuda.get_device_name(source.device) if is_gpu(source.device) else _processor(),
            "torch": torch.__version__,
        }
    )


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


def _processor() -> str:
    """Return what a processor's kernels are chosen by."""
    import torch

    return torch.backends.cpu.get_cpu_capability()


def _storable(text: str) -> str:
    """Replace lone surrogates, on which the tokenizer fails."""
    return text.encode("utf-8", "replace").decode("utf-8")
