"""What is known of models before they are loaded: names, dimensions, architectures, remembered outcomes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from assay.local_stack.model_files import is_on_disk, model_problem
from assay_embedder.models import loading, verification
from assay_embedder.models.architecture import UnknownArchitectureError, read_architecture
from assay_embedder.models.loading import supported_dimensions
from assay_embedder.models.verification import Memory

if TYPE_CHECKING:
    from pathlib import Path


CONFIG = {
    "model_type": "bert",
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 1,
}


def written(folder: Path, **files: Any) -> Path:
    """Write JSON files; two underscores in a name are a slash."""
    for name, content in files.items():
        file = folder / (name.replace("__", "/") + ".json")
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(content), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("name", "english"),
    [
        ("all-MiniLM-L6-v2", True),
        ("sentence-transformers/all-mpnet-base-v2", True),
        ("BAAI/bge-small-en-v1.5", True),
        ("BAAI/bge-m3", False),
        ("BAAI/bge-small-zh-v1.5", False),
        ("thenlper/gte-base", True),
        ("Alibaba-NLP/gte-multilingual-base", False),
        ("intfloat/e5-large-v2", True),
        ("intfloat/multilingual-e5-base", False),
        ("/models/e5-small/", True),
        ("sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2", False),
        ("sentence-transformers/paraphrase-MiniLM-L6-v2", True),
        ("mine/all-MiniLM-L6-v2-arabic", False),
    ],
)
def test_well_known_english_models_are_known_by_name(name: str, english: bool) -> None:
    """A warning for other languages needs to know which models are English; a name that says nothing says no."""
    assert loading.is_english_only(name) is english


def test_dimensions_are_those_that_the_model_names(tmp_path: Path) -> None:
    """A model that was not trained for fewer values has one dimension; hints are read from both configurations."""
    assert supported_dimensions(tmp_path, 384) == (384,)
    written(tmp_path, config={"matryoshka_dimensions": [32, 128, 1024, 384, "x", True]})
    assert supported_dimensions(tmp_path, 384) == (384, 128, 32)
    written(tmp_path, config_sentence_transformers={"truncate_dim": 256})
    assert supported_dimensions(tmp_path, 384) == (384, 256, 128, 32)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"model_type": "mpnet"}, "its architecture is mpnet"),
        ({"hidden_act": "silu"}, "its activation is silu"),
        ({"position_embedding_type": "relative_key"}, "its positions are relative_key"),
        ({"is_decoder": True}, "it is a decoder"),
        ({"embedding_size": 4}, "its embeddings are narrower than its layers"),
        ({"num_attention_heads": 3}, "its heads do not divide its hidden size"),
        ({"layer_norm_eps": None}, "config.json has no layer_norm_eps"),
    ],
)
def test_what_is_not_known_is_named(tmp_path: Path, changed: dict[str, Any], reason: str) -> None:
    """An encoder is packed only if every part of it is known."""
    config = {key: value for key, value in (CONFIG | changed).items() if value is not None}
    with pytest.raises(UnknownArchitectureError, match=f"^{reason}$"):
        read_architecture(written(tmp_path, config=config))


@pytest.mark.parametrize(
    ("pooling", "hits"),
    [
        ({"pooling_mode": "cls"}, "cls"),
        ({"pooling_mode_cls_token": False, "pooling_mode_max_tokens": True}, "max"),
        ({"pooling_mode": ["mean"]}, "mean"),
        ({}, "mean"),
        ({"pooling_mode": ["mean", "max"]}, None),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, None),
        ({"pooling_mode": "lasttoken"}, None),
        ({"pooling_mode": "mean", "include_prompt": False}, None),
    ],
)
def test_pooling_of_old_and_new_versions_is_read(tmp_path: Path, pooling: dict[str, Any], hits: str | None) -> None:
    """Version 6 of sentence-transformers writes one name, earlier ones a switch each; several at once are not known."""
    kinds = ("Transformer", "Pooling")
    modules = [
        {"path": ["", "1_Pooling"][at], "type": f"sentence_transformers.x.{each}"} for at, each in enumerate(kinds)
    ]
    written(tmp_path, config=CONFIG, modules=modules, **{"1_Pooling__config": pooling})
    if hits is None:
        with pytest.raises(UnknownArchitectureError, match="its pooling"):
            read_architecture(tmp_path)
    else:
        assert read_architecture(tmp_path).pooling == hits


def test_the_window_is_never_beyond_the_positions(tmp_path: Path) -> None:
    """RoBERTa's positions start behind the padding's id; the tokenizer's absurd limits do not count."""
    written(tmp_path, config=CONFIG | {"model_type": "roberta"}, tokenizer_config={"model_max_length": int(1e30)})
    architecture = read_architecture(tmp_path)
    assert (architecture.max_tokens, architecture.counts_from_padding) == (62, True)
    written(tmp_path, sentence_bert_config={"max_seq_length": 20})
    assert read_architecture(tmp_path).max_tokens == 20


def test_disagreement_is_measured_by_the_bound_of_the_precision() -> None:
    """Exact vectors may turn by 1e-5 and keep their length; fast ones may move cosines of pairs by 4e-3."""
    expected = np.random.default_rng(1).normal(size=(9, 16))
    assert verification.disagreement(expected * (1 + 1e-6), expected, "exact") == ""
    assert "lengths by" in verification.disagreement(expected * 1.01, expected, "exact")
    turned = expected + np.random.default_rng(2).normal(size=expected.shape) * 0.004
    assert "cosines are off" in verification.disagreement(turned, expected, "exact")
    assert verification.disagreement(expected + 1e-5, expected, "fast") == ""
    assert "cosines of pairs are off" in verification.disagreement(np.abs(expected), expected, "fast")
    assert "instead of" in verification.disagreement(expected[:, :8], expected, "exact")
    assert "not finite" in verification.disagreement(expected * np.nan, expected, "fast")


def test_outcomes_are_remembered_across_starts_and_survive_damage(tmp_path: Path) -> None:
    """A damaged or unwritable file costs a comparison, never a start."""
    file = tmp_path / "state" / "verified.json"
    assert Memory(file).outcome("a") is None
    Memory(file).remember("a", "")
    Memory(file).remember("b", "too far")
    assert (Memory(file).outcome("a"), Memory(file).outcome("b"), Memory(file).outcome("c")) == ("", "too far", None)
    assert [each.name for each in file.parent.iterdir()] == ["verified.json"]
    file.write_text("{", encoding="utf-8")
    assert Memory(file).outcome("a") is None
    Memory(tmp_path / "state" / "verified.json" / "no folder").remember("a", "")


HEADER = json.dumps({"__metadata__": {"format": "pt"}, "w": {"dtype": "F32", "data_offsets": [0, 8]}}).encode()
WEIGHTS = len(HEADER).to_bytes(8, "little") + HEADER + bytes(8)


def saved(folder: Path, *, weights: str = "model.safetensors", **config: object) -> Path:
    """Return a folder with the files of a model."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", **config}))
    (folder / weights).write_bytes(WEIGHTS)
    return folder


@pytest.mark.parametrize("name", ["all-MiniLM-L6-v2", "intfloat/multilingual-e5-base", "BAAI/bge-m3", "gte-base"])
def test_names_that_may_be_models(name: str) -> None:
    """The packaged model, and what has the form of an id of the hub."""
    assert model_problem(name) == ""


@pytest.mark.parametrize("name", ["/no/such", "./none", "~/none", "two words", "a/b/c", "", "org/", "/n" * 9_000])
def test_names_that_are_no_models(name: str) -> None:
    """What is neither a folder nor an id is refused without asking the hub."""
    assert model_problem(name)


def test_folders(tmp_path: Path) -> None:
    """A folder needs a configuration and safetensors, and may not bring code along."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "config.json").write_text("{")
    (tmp_path / "damaged" / "model.safetensors").write_bytes(b"")
    assert model_problem(str(saved(tmp_path / "good"))) == ""
    assert "no config.json" in model_problem(str(tmp_path / "empty"))
    assert "is not JSON" in model_problem(str(tmp_path / "damaged"))
    assert "*.safetensors" in model_problem(str(saved(tmp_path / "pickle", weights="pytorch_model.bin")))
    assert "code of its own" in model_problem(str(saved(tmp_path / "code", auto_map={"AutoModel": "m.M"})))
    foreign = saved(tmp_path / "foreign")
    (foreign / "modules.json").write_text(
        json.dumps([{"type": "sentence_transformers.models.Pooling"}, {"type": "m.M"}])
    )
    assert "code of its own (m.M in its modules.json)" in model_problem(str(foreign))
    (saved(tmp_path / "folder") / "more.safetensors").mkdir()
    assert "damaged weights" in model_problem(str(tmp_path / "folder"))


@pytest.mark.parametrize(
    "weights", [b"", WEIGHTS[:-1], WEIGHTS[:20], WEIGHTS + b"x", b"\xff" * 99, WEIGHTS[:8] + bytes(300)]
)
def test_incomplete_weights(tmp_path: Path, weights: bytes) -> None:
    """A download that ended early is found by its header, before an agent is asked."""
    folder = saved(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(weights)
    assert model_problem(str(folder)).startswith("has damaged weights: ")


def test_models_that_generate_text(tmp_path: Path) -> None:
    """They are refused unless sentence-transformers saved them: some embedding models are decoders."""
    folder = saved(tmp_path / "model", architectures=["GPT2LMHeadModel"])
    assert "GPT2LMHeadModel, which generates text" in model_problem(str(folder))
    (folder / "modules.json").write_text("[]")
    assert model_problem(str(folder)) == ""


def test_what_is_on_this_machine(tmp_path: Path) -> None:
    """The packaged model, a folder, and what the hub's cache holds, wherever it is; all else is to be downloaded."""
    for name in ("models--intfloat--e5", "models--sentence-transformers--all-mpnet-base-v2"):
        (tmp_path / "hub" / name / "snapshots").mkdir(parents=True)
    (tmp_path / "hub" / "models--org--begun").mkdir()
    for environment in ({"HF_HOME": str(tmp_path)}, {"HF_HUB_CACHE": str(tmp_path / "hub")}):
        assert is_on_disk("all-MiniLM-L6-v2", environment)
        assert is_on_disk(str(tmp_path), environment)
        assert is_on_disk("intfloat/e5", environment)
        assert is_on_disk("all-mpnet-base-v2", environment)
        assert not is_on_disk("org/begun", environment)
        assert not is_on_disk("org/other", environment)
