"""Models that cannot be loaded: a sentence each, before anything heavy is done."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from huggingface_hub import constants

from assay.errors import SetupError
from assay_embedder import models
from assay_embedder.model_folders import find_folder

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
        models.load(str(name), device="cpu")
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


def test_weights_that_lack_a_tensor_are_left_to_sentence_transformers(
    tiny: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A layer more than the weights have: sentence-transformers decides what that means, and the log says why."""
    configure(tiny, num_hidden_layers=2)
    assert not models.load(str(tiny), device="cpu").packed
    assert "its weights have no encoder.layer.1" in caplog.text


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
    model = models.load("org/tiny", device="cpu")
    assert model.packed
    assert model.description.revision == models.load(str(tiny), device="cpu").description.revision


def test_an_unknown_model_without_a_network_is_refused_at_once(cache: Path) -> None:
    """The sentence says that the hub does not answer; no library that runs models is imported for it."""
    code = (
        "import sys\n"
        "from assay_embedder import models\n"
        "try:\n"
        "    models.load('org/mistyped', device='cpu')\n"
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
        "from assay_embedder import models\n"
        "assert models.load('all-MiniLM-L6-v2', device='cpu').packed\n"
        "heavy = ('transformers', 'sentence_transformers', 'huggingface_hub', 'scipy', 'sklearn')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    environment = {"ASSAY_HOME": str(tmp_path), "HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert (tmp_path / "embedder" / "verified.json").is_file()
