"""Loading, verifying and running embedding models."""

from __future__ import annotations

import logging
import re
from array import array
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from assay.errors import AssayError, SetupError
from assay.local_stack.install_hint import install_hint
from assay.local_stack.model_files import is_folder
from assay_embedder.models import verification
from assay_embedder.models.architecture import UnknownArchitectureError, encoder_folder, read_architecture, read_json
from assay_embedder.models.devices import free_device_memory, is_gpu
from assay_embedder.models.encoder import Tokens
from assay_embedder.models.folders import (
    DEFAULT_SHA256,
    check_vocabulary,
    default_prompt,
    explained,
    find_folder,
    hash_configuration,
    hash_weights,
    leaves_prompt_out,
    not_loaded,
    one_line,
    weight_bytes,
)
from assay_embedder.models.precision import choose_precision, number_format
from assay_embedder.models.sentence_models import SentenceModel, load_transformer
from assay_embedder.settings import DEFAULT_MODEL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray
    from torch import Tensor

    from assay_embedder.models.architecture import Architecture
    from assay_embedder.models.packed.network import PackedNetwork

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
        configuration: All else that changes its vectors: configurations and tokenizer, and the versions of the code.
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
    configuration: str = ""


class Network(Protocol):
    """A network that computes vectors from word pieces; several threads may use it at once.

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
    """A network that runs on tokens batched elsewhere; several threads may use it at once.

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
        """Its description."""
        return self._description

    @property
    def packed(self) -> bool:
        """Whether a batch costs only its real tokens; otherwise each text costs as many as the longest."""
        return self._network.packed

    def tokenize(self, texts: Sequence[str]) -> list[Tokens]:
        """Return the word pieces of each text, cut to the model's window."""
        prefix = self._description.prefix
        read = [prefix + (text if text.isascii() else _storable(text)) for text in texts]
        encodings = self._network.tokenizer.encode_batch_fast(read)
        # Arrays, as lists of numbers take twice the memory and are searched for garbage again and again.
        return [
            Tokens(array("I", encoding.ids), encoding.type_ids if self._has_types else (), bool(encoding.overflowing))
            for encoding in encodings
        ]

    def encode(self, batch: Sequence[Tokens]) -> NDArray[np.float32]:
        """Return one vector per text, shape (texts, dimension)."""
        import torch  # heavy: only a process that loads a model pays for it

        with torch.inference_mode():
            return halving(self._forward, batch, torch.OutOfMemoryError, free_device_memory)

    def _forward(self, batch: Sequence[Tokens]) -> NDArray[np.float32]:
        found: NDArray[np.float32] = self._network.embed(batch).float().cpu().numpy()
        return found


@dataclass(frozen=True, slots=True)
class Found:
    """A model on this machine.

    Args:
        folder: Where.
        weight_bytes: Size of the weights' files.
    """

    folder: Path
    weight_bytes: int


def find(name: str) -> Found:
    """Find a model; download one that only the hub has.

    Raises:
        SetupError: There is none, or it is one that is never loaded.
    """
    with explained(name):
        folder = find_folder(name)
        return Found(folder, weight_bytes(folder))


def load(
    name: str,
    *,
    device: str,
    precision: str = "exact",
    folder: Path | None = None,
    memory: verification.Memory | None = None,
) -> Model:
    """Load a model into memory; takes seconds.

    A model that the packed forward pass knows is compared with sentence-transformers first, once for these weights;
    every other one is run by sentence-transformers.

    Args:
        name: "all-MiniLM-L6-v2", which comes with the installation; or a folder saved by
            sentence-transformers; or a model's id on the Hugging Face hub.
        device: "cpu", "cuda" or "cuda:N".
        precision: "exact", "fast" or "auto".
        folder: Where it was found; None to find it.
        memory: Where outcomes of comparisons are kept; None for the state directory.

    Raises:
        SetupError: It cannot be found or loaded, its weights are not the expected ones, or this machine does not have
            the precision.
    """
    chosen = choose_precision(precision, device)
    with explained(name):
        return _loaded(name, folder or find_folder(name), device, chosen, memory or verification.Memory())


def _loaded(name: str, folder: Path, device: str, precision: str, memory: verification.Memory) -> Model:
    revision = DEFAULT_SHA256 if name == DEFAULT_MODEL else hash_weights(folder)
    prefix = prefix_of(name) or default_prompt(folder)
    if prefix and leaves_prompt_out(folder):
        raise not_loaded(name, f"its pooling leaves out what is put before every text ({prefix!r})")
    source = _Source(name, folder, revision, device, precision, prefix)
    network, chosen = _network(source, memory)
    description = Description(
        name=name,
        revision=source.revision,
        dimension=network.dimension,
        max_tokens=network.max_tokens,
        device=device,
        precision=chosen,
        prefix=prefix,
        english_only=is_english_only(name),
        engine=network.engine_name,
        dimensions=supported_dimensions(folder, network.dimension),
        weight_bytes=weight_bytes(folder),
        configuration=_configuration(folder, network),
    )
    return Model(network, description)


@dataclass(frozen=True, slots=True)
class _Source:
    """The files that a network is made of, and its device."""

    name: str
    folder: Path
    revision: str
    device: str
    precision: str
    prefix: str

    @property
    def number_format(self) -> str:
        return number_format(self.precision, self.device)


def _network(source: _Source, memory: verification.Memory) -> tuple[Network, str]:
    """Return the packed network if it supports the model and agrees, else sentence-transformers', with the reason.

    Where 16-bit products are too far off even by sentence-transformers, it computes in float32, which is `exact`.
    """
    network, problem = _verified_packed(source, memory)
    if network is not None:
        return network, source.precision
    logger.warning(
        "sentence-transformers runs the model, which is slower: model=%s reason=the packed forward pass does not take "
        "it: %s",
        source.name, problem,
    )  # fmt: skip
    load = partial(SentenceModel, source.name, source.folder, device=source.device)
    if source.precision == "exact":
        return load(number_format="float32"), "exact"
    fallback = load(number_format=source.number_format)
    if not (problem := _disagreement(source, fallback, memory)):
        return fallback, source.precision
    del fallback  # two of a large model may not fit
    logger.warning(
        "the model is computed in float32, which is slower: model=%s reason=with 16-bit products %s",
        source.name,
        problem,
    )
    return load(number_format="float32"), "exact"


def _verified_packed(source: _Source, memory: verification.Memory) -> tuple[PackedNetwork | None, str]:
    """Return the packed network, or None and why it cannot be used."""
    try:
        network, problem = _compared_packed(source, memory)
    except UnknownArchitectureError as error:
        return None, str(error)
    return (None, problem) if problem else (network, "")


def _compared_packed(source: _Source, memory: verification.Memory) -> tuple[PackedNetwork, str]:
    """Return the packed network, and how far it is from sentence-transformers.

    Raises:
        UnknownArchitectureError: It does not take the model, or stumbles over its files: sentence-transformers may take
            them, or say what is wrong.
    """
    try:
        network = _packed(source)
        return network, _disagreement(source, network, memory)
    except (AssayError, MemoryError, UnknownArchitectureError):
        raise
    except Exception as error:
        if type(error).__name__ == "OutOfMemoryError":  # torch's, which says nothing about the model
            raise
        raise UnknownArchitectureError(one_line(error)) from error


def _packed(source: _Source) -> PackedNetwork:
    architecture = read_architecture(source.folder, is_immutable=not _may_be_overwritten(source.name))
    if not (architecture.weights / "tokenizer.json").is_file():
        raise UnknownArchitectureError("its tokenizer is not saved as tokenizer.json")
    try:
        make = _packed_on_gpu if is_gpu(source.device) else _packed_on_cpu
        network = make(architecture, source)
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
    if not network.tokenizer.encode("").ids:
        raise UnknownArchitectureError("its tokenizer gives an empty text no word piece")
    check_vocabulary(source.name, network.tokenizer, network.word_count)
    return network


def _may_be_overwritten(name: str) -> bool:
    return name != DEFAULT_MODEL and is_folder(name)


def _packed_on_cpu(architecture: Architecture, source: _Source) -> PackedNetwork:
    import torch

    from assay_embedder.models.packed.network import PackedNetwork, choose_engine

    engine = choose_engine(getattr(torch, source.number_format))
    if "oneDNN" not in engine.name:
        logger.warning("linear layers run in torch's own kernels, which are slower: oneDNN's do not work here")
    return PackedNetwork(architecture, engine)


def _packed_on_gpu(architecture: Architecture, source: _Source) -> PackedNetwork:
    import torch

    from assay_embedder.models.packed.gpu import GpuNetwork, choose_engine

    return GpuNetwork(architecture, choose_engine(source.device, getattr(torch, source.number_format)))


def _disagreement(source: _Source, network: Network, memory: verification.Memory) -> str:
    """Return how far a network is from sentence-transformers; empty within the bounds."""
    key = _memory_key(source, network)
    problem = memory.outcome(key)
    if problem is None:
        problem = verification.disagreement(_probed(network, source.prefix), _expected(source), source.precision)
        if source.name != DEFAULT_MODEL and hash_weights(source.folder) != source.revision:
            raise not_loaded(source.name, "its weights were overwritten while they were read")
        memory.remember(key, problem)
    return problem


def _expected(source: _Source) -> NDArray[np.float32]:
    """Return sentence-transformers' vectors of the probe texts: stored if possible, since its import takes seconds."""
    if source.name == DEFAULT_MODEL:
        return verification.stored_vectors()
    logger.info("comparing with sentence-transformers, once for these weights: model=%s", source.name)
    reference = load_transformer(source.name, source.folder, device=source.device, number_format="float32")
    texts = [source.prefix + text for text in verification.PROBES]
    vectors: NDArray[np.float32] = reference.encode(texts, prompt="", show_progress_bar=False)
    return vectors


def _probed(network: Network, prefix: str) -> NDArray[np.float32]:
    probe = Model(network, Description("", "", 0, 0, "", "", prefix, False))
    return probe.encode(probe.tokenize(verification.PROBES))


def _memory_key(source: _Source, network: Network) -> str:
    import torch

    return verification.memory_key(
        {
            "weights": source.revision,
            "configuration": _configuration(source.folder, network),
            "prefix": source.prefix,
            "engine": network.engine_name,
            "probes": "\n".join(verification.PROBES),
            "precision": source.precision,
            "device": torch.cuda.get_device_name(source.device) if is_gpu(source.device) else _processor(),
        }
    )


def _configuration(folder: Path, network: Network) -> str:
    import tokenizers
    import torch

    from assay_embedder.models.packed.network import VERSION

    versions = {"packed": VERSION, "torch": torch.__version__, "tokenizers": tokenizers.__version__}
    if not network.packed:
        import sentence_transformers
        import transformers

        versions |= {each.__name__: each.__version__ for each in (sentence_transformers, transformers)}
    return f"{hash_configuration(folder)} {versions}"


def halving(
    run: Callable[[Sequence[Tokens]], NDArray[np.float32]],
    batch: Sequence[Tokens],
    out_of_memory: type[Exception],
    free: Callable[[], None],
) -> NDArray[np.float32]:
    """Run a batch; split it in halves when it does not fit into the device's memory.

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
    """Return the processor's identity, by which libraries choose kernels."""
    import torch

    return torch.backends.cpu.get_cpu_capability()


def _storable(text: str) -> str:
    """Replace lone surrogates, on which the tokenizer fails."""
    return text.encode("utf-8", "replace").decode("utf-8")


_E5 = re.compile(r"(?<![a-z0-9])e5(?![a-z0-9])", re.IGNORECASE)
_ENGLISH = re.compile(
    r"all-(minilm-l(6|12)-v[12]|mpnet-base-v[12]|distilroberta-v1|roberta-large-v1)"
    r"|(multi-qa|msmarco|paraphrase)-(?!multilingual).*(minilm|mpnet|distilbert|distilroberta|albert).*"
    r"|bge-(micro|small|base|large)-en(-v[0-9.]+)?"
    r"|gte-(tiny|small|base|large)(-en-v[0-9.]+)?"
    r"|e5-(small|base|large)(-v2|-unsupervised)?",
    re.IGNORECASE,
)


def prefix_of(name: str) -> str:
    """Return the prefix that a model was trained with for comparing texts.

    Args:
        name: A model's id or folder; its last part counts.

    Returns:
        "query: " for e5 models, on both sides of a symmetric comparison; else empty.
    """
    return "query: " if _E5.search(_last_part(name)) else ""


def is_english_only(name: str) -> bool:
    """Return whether a well-known model was trained only on English; False if its name leaves that open."""
    return _ENGLISH.fullmatch(_last_part(name)) is not None


def _last_part(name: str) -> str:
    return name.rstrip("/").rsplit("/", 1)[-1]


_HINTS = ("matryoshka_dimensions", "matryoshka_dims", "truncate_dim")


def supported_dimensions(folder: Path, full: int) -> tuple[int, ...]:
    """Return the dimensions that a model's vectors may be cut to, as its configuration names them.

    Args:
        folder: The model's folder; read are config.json and config_sentence_transformers.json.
        full: Values of a whole vector.

    Returns:
        All of them, the full one first; it alone where the model names none.
    """
    dimensions = {full}
    for file in (encoder_folder(folder) / "config.json", folder / "config_sentence_transformers.json"):
        config = read_json(file)
        for hint in _HINTS:
            named = config.get(hint) or []
            named = named if isinstance(named, list) else [named]
            dimensions |= {each for each in named if type(each) is int and 0 < each < full}
    return tuple(sorted(dimensions, reverse=True))
