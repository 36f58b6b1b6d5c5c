"""What the files of an embedding model show before it is loaded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from assay.local_stack.model_files import is_on_disk, model_problem

if TYPE_CHECKING:
    from pathlib import Path


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
