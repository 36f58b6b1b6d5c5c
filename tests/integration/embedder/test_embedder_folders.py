"""Models that cannot be loaded: a sentence each, before anything heavy is done."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from sentence_transformers import SentenceTransformer
from tests.support.embedder.embedding_models import save_model

from assay.errors import SetupError
from assay_embedder.models import loading, verification
from assay_embedder.models.folders import find_folder, hash_weights
from assay_embedder.registry import Registry
from assay_embedder.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def tiny(make_tiny_model: Callable[[str], Path]) -> Path:
    return make_tiny_model("tiny")


def configure(folder: Path, name: str = "config.json", **changed: Any) -> None:
    """Change values of a JSON file."""
    file = folder / name
    config = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    file.write_text(json.dumps({**config, **changed}), encoding="utf-8")


def refused(name: Path | str) -> SetupError:
    """Return the error of loading a model."""
    with pytest.raises(SetupError) as caught:
        loading.load(str(name), device="cpu")
    return caught.value


@pytest.mark.parametrize(
    "changed",
    [
        {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"},
        {"architectures": ["LlamaForCausalLM"], "model_type": "llama"},
        {"architectures": ["T5ForConditionalGeneration"], "model_type": "t5", "is_encoder_decoder": True},
        {"architectures": ["BertModel"], "is_decoder": True},
    ],
)
def test_a_model_that_generates_text_is_no_encoder(tiny: Path, changed: dict[str, Any]) -> None:
    """A decoder has vectors too, and they are no embeddings."""
    configure(tiny, **changed)
    error = refused(tiny)
    assert error.reason == "MODEL_NOT_AN_ENCODER"
    assert f"is not an encoder: config.json names {changed['architectures'][0]}" in error.message


def test_a_model_that_needs_code_of_its_own_is_refused(tiny: Path) -> None:
    """Code that comes with a model is never run, whether config.json or modules.json asks for it."""
    configure(tiny, auto_map={"AutoModel": "modeling_x.NewModel"})
    error = refused(tiny)
    assert error.reason == "MODEL_NEEDS_CODE"
    assert "auto_map in config.json, trust_remote_code" in error.message
    configure(tiny, auto_map=None)
    module = {"idx": 0, "name": "0", "path": "", "type": "custom_st.Transformer"}
    (tiny / "modules.json").write_text(json.dumps([module]), encoding="utf-8")
    assert "custom_st.Transformer in modules.json" in refused(tiny).message


def test_damaged_weights_are_refused(tiny: Path) -> None:
    """A download that broke off is named with its file and what to do; so is a part that is missing."""
    file = tiny / "model.safetensors"
    content = file.read_bytes()
    for damaged in (content[: len(content) // 2], b"\xff" * 64, b""):
        file.write_bytes(damaged)
        message = refused(tiny).message
        assert message.startswith(f"The weights in {file} are damaged (")
        assert message.endswith("): download the model again.")
    file.unlink()
    assert "holds no model.safetensors" in refused(tiny).message
    configure(tiny, "model.safetensors.index.json", weight_map={"a": "model-00001-of-00002.safetensors"})
    assert "lacks model-00001-of-00002.safetensors" in refused(tiny).message


def test_a_missing_or_damaged_tokenizer_is_named(tiny: Path) -> None:
    """Weights alone are no model."""
    (tiny / "tokenizer.json").write_text("{", encoding="utf-8")
    assert "tokenizer.json is damaged" in refused(tiny).message
    for file in ("tokenizer.json", "vocab.txt"):
        (tiny / file).unlink(missing_ok=True)
    assert "it has no tokenizer" in refused(tiny).message


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    """What is missing is named, with what to give instead."""
    assert f"{tmp_path} has no config.json. Give a folder saved by" in refused(tmp_path).message
    (tmp_path / "config.json").write_text("[", encoding="utf-8")
    assert "config.json is damaged" in refused(tmp_path).message


def test_weights_that_lack_a_tensor_are_refused(tiny: Path) -> None:
    """A layer more than the weights have: no random numbers take its place, as transformers would have it."""
    configure(tiny, num_hidden_layers=2)
    assert "its weights have no encoder.layer.1.attention.output.LayerNorm.bias and 15 more" in refused(tiny).message


def change(file: Path, changed: Callable[[dict[str, Any]], None]) -> None:
    """Change the tensors of a file."""
    tensors = {name: tensor.clone() for name, tensor in load_file(file).items()}
    changed(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"hidden_size": "16"}, "hidden_size"),
        ({"num_attention_heads": 0}, "ZeroDivisionError"),
        ({"hidden_size": 32}, "its weights have other sizes than its config.json says"),
        ({"max_position_embeddings": None}, "max_position_embeddings"),
    ],
)
def test_whatever_a_configuration_holds_is_one_sentence(tiny: Path, changed: dict[str, Any], said: str) -> None:
    """Libraries stumble over it in their own ways; a user learns which model it is, and what was wrong."""
    configure(tiny, **changed)
    error = refused(tiny)
    assert (error.reason, "\n" in error.message) == ("MODEL_NOT_LOADED", False)
    assert said in error.message


def test_files_that_are_no_object_of_json_are_one_sentence(tiny: Path) -> None:
    """As are lists where objects belong, and a list of modules that are none."""
    for name in ("tokenizer_config.json", "modules.json"):
        (tiny / name).write_text('["a"]', encoding="utf-8")
        assert refused(tiny).reason == "MODEL_NOT_LOADED"
        (tiny / name).unlink()


@pytest.mark.parametrize(
    ("value", "given"), [(float("nan"), "vectors that are not finite"), (0.0, "every text the same vector")]
)
async def test_weights_that_give_no_vectors_to_compare_are_refused_at_load(
    tiny: Path, value: float, given: str
) -> None:
    """No question is paid for whose answer could not be scored."""

    def fill(tensors: dict[str, Any]) -> None:
        for tensor in tensors.values():
            tensor.fill_(value)

    change(tiny / "model.safetensors", fill)
    registry = Registry(Settings(models=(str(tiny),), device="cpu"))
    with pytest.raises(SetupError, match=f"its weights are damaged: they give {given}"):
        await registry.load_listed()
    await registry.aclose()


def test_a_tokenizer_with_more_word_pieces_than_the_weights_is_refused(tiny: Path) -> None:
    """A text with one of them would fail; on a GPU, so would every text after it."""
    change(tiny / "model.safetensors", lambda tensors: shortened(tensors, "embeddings.word_embeddings.weight"))
    count = int(json.loads((tiny / "config.json").read_text())["vocab_size"])
    configure(tiny, vocab_size=count - 1)
    assert f"has {count} word pieces, its weights have embeddings of {count - 1}" in refused(tiny).message


def shortened(tensors: dict[str, Any], name: str) -> None:
    tensors[name] = tensors[name][:-1].clone()


def test_a_tokenizer_that_cuts_at_the_beginning_is_refused(tiny: Path, tmp_path: Path) -> None:
    """Its vectors of long texts would be those of another part than sentence-transformers reads."""
    configure(tiny, "tokenizer_config.json", truncation_side="left")
    assert "cuts long texts at their beginning" in refused(tiny).message
    folder = save_model(tmp_path / "left")
    side = {"direction": "Left", "max_length": 32, "strategy": "LongestFirst", "stride": 0}
    configure(folder, "tokenizer.json", truncation=side)
    assert "cuts long texts at their beginning" in refused(folder).message


@pytest.mark.parametrize("parts", [(), ("dense",)])
def test_a_word_piece_of_the_tokenizer_alone_fails_its_text(tmp_path: Path, parts: tuple[str, ...]) -> None:
    """Models that have such for pictures or reasoning are loaded; only a text with one of them has no vector."""
    folder = save_model(tmp_path / "added", parts=parts)
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    added = {"id": 999, "content": "<think>", "special": True}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    tokenizer["added_tokens"].append({**added, **flags})
    file.write_text(json.dumps(tokenizer), encoding="utf-8")
    model = loading.load(str(folder), device="cpu")
    assert np.isfinite(model.encode(model.tokenize(["abc"]))).all()
    with pytest.raises(IndexError, match="the weights have no word piece"):
        model.encode(model.tokenize(["abc", "a <think> b"]))


def test_pickles_of_modules_are_refused(tmp_path: Path) -> None:
    """A module behind the encoder whose weights are a pickle is not read, and would be missing in the revision."""
    folder = save_model(tmp_path / "dense", parts=("dense",))
    module = folder / "2_Dense"
    (module / "model.safetensors").rename(module / "pytorch_model.bin")
    assert "2_Dense/pytorch_model.bin is a pickle, which may hold code" in refused(folder).message


def test_a_dimension_that_the_model_names_cuts_no_vector(tmp_path: Path) -> None:
    """`truncate_dim` says to what vectors may be cut; only a request that asks for it has them cut."""
    for parts, full in (((), 48), (("dense",), 24)):
        folder = save_model(tmp_path / f"cut{full}", parts=parts)
        configure(folder, "config_sentence_transformers.json", truncate_dim=12)
        model = loading.load(str(folder), device="cpu")
        about = model.description
        assert (about.dimension, about.dimensions) == (full, (full, 12))
        assert model.encode(model.tokenize(["a b"])).shape == (1, full)
        assert model.packed == (not parts)


def test_the_prompt_of_a_model_is_before_every_text(tmp_path: Path) -> None:
    """As sentence-transformers puts it there where its user names none."""
    folder = save_model(tmp_path / "prompted")
    prompts = {"query": "find: ", "document": "text: "}
    configure(folder, "config_sentence_transformers.json", prompts=prompts, default_prompt_name="document")
    model = loading.load(str(folder), device="cpu")
    assert model.description.prefix == "text: "
    expected = SentenceTransformer(str(folder), device="cpu").encode(["abc"], show_progress_bar=False)
    assert np.allclose(model.encode(model.tokenize(["abc"])), expected, atol=1e-5)
    configure(folder / "1_Pooling", include_prompt=False)
    assert "its pooling leaves out what is put before every text ('text: ')" in refused(folder).message


@pytest.mark.parametrize("parts", [(), ("dense",)])
def test_a_file_that_is_overwritten_changes_no_loaded_model(tmp_path: Path, parts: tuple[str, ...]) -> None:
    """`cp` writes into the file that is there; the model in memory stays what its revision says, whatever runs it."""
    folder = save_model(tmp_path / "served", parts=parts)
    file = folder / "model.safetensors"
    model = loading.load(str(folder), device="cpu")
    assert model.packed == (not parts)
    tokens = model.tokenize(["red blue"])
    before = model.encode(tokens)
    with file.open("r+b") as stream:
        stream.write(bytes(file.stat().st_size))
    assert np.array_equal(model.encode(tokens), before)
    file.write_bytes(b"")  # whatever still maps it ends the process
    assert np.array_equal(model.encode(tokens), before)


def test_sixteen_bits_that_are_too_few_are_not_used(tmp_path: Path) -> None:
    """Where neither engine keeps the bound of `fast`, the model is computed in float32, and says so."""
    folder = save_model(tmp_path / "sharp")

    def sharpened(tensors: dict[str, Any]) -> None:
        for name, tensor in tensors.items():
            if ".query." in name or ".key." in name:
                tensor *= 6

    change(folder / "model.safetensors", sharpened)
    source = loading._Source(str(folder), folder, hash_weights(folder), "cpu", "fast", "")
    network, precision = loading._network(source, verification.Memory(tmp_path / "verified.json"))
    assert (network.engine_name, precision) == ("sentence-transformers float32", "exact")
    found = loading._probed(network, "")
    assert not verification.disagreement(found, loading._expected(source), "exact")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache on this machine, empty; the hub is never asked."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def test_a_model_of_the_hub_is_read_from_its_cache(cache: Path, tiny: Path) -> None:
    """What was downloaded before is used without a network; its revision is the hash of the same weights."""
    snapshot = cache / "models--org--tiny" / "snapshots" / ("0" * 40)
    shutil.copytree(tiny, snapshot)
    refs = cache / "models--org--tiny" / "refs"
    refs.mkdir()
    (refs / "main").write_text("0" * 40, encoding="utf-8")
    assert find_folder("org/tiny") == snapshot
    model = loading.load("org/tiny", device="cpu")
    assert model.packed
    assert model.description.revision == loading.load(str(tiny), device="cpu").description.revision


def test_an_unknown_model_without_a_network_is_refused_at_once(cache: Path) -> None:
    """The sentence says that the hub does not answer; no library that runs models is imported for it."""
    code = (
        "import sys\n"
        "from assay_embedder.models import loading\n"
        "try:\n"
        "    loading.load('org/mistyped', device='cpu')\n"
        "except Exception as error:\n"
        "    print(error.message)\n"
        "print([name for name in ('torch', 'transformers', 'sentence_transformers') if name in sys.modules])\n"
    )
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(cache), "HOME": str(cache)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    message, imported = done.stdout.splitlines()
    assert message.startswith('The model "org/mistyped" could not be loaded: it is no folder, the hub does not answer')
    assert imported == "[]"


def test_a_default_model_needs_no_sentence_transformers(tmp_path: Path) -> None:
    """The first start of a new installation is as light as later ones."""
    code = (
        "import sys\n"
        "from assay_embedder.models import loading\n"
        "assert loading.load('all-MiniLM-L6-v2', device='cpu').packed\n"
        "heavy = ('transformers', 'sentence_transformers', 'huggingface_hub', 'scipy', 'sklearn')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    environment = {"ASSAY_HOME": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert (tmp_path / "embedder" / "verified.json").is_file()
