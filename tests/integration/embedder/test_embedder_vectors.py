from __future__ import annotations

import asyncio
import hashlib
import random
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from assay.embedder.v1 import embedder_pb2 as pb
from assay.errors import SetupError
from assay_embedder.models import loading
from assay_embedder.models.devices import choose_device
from assay_embedder.models.folders import DEFAULT_SHA256, check_weights
from assay_embedder.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

EXAMPLES = [
    (
        "A large curved screen stretches across the whole dashboard.",
        "The display is a curved glass panel that spans the dashboard.",
        0.7389,
    ),
    ("Paris is the capital of France.", "The capital city of France is Paris.", 0.9710),
    ("Refunds are completed in 5 days.", "The refund is processed within five days.", 0.8675),
    ("Press the red button.", "Select the blue icon.", 0.6946),
    ("Bananas are rich in potassium.", "Paris is the capital of France.", -0.0806),
    ("The agent is online.", "The agent is online.", 1.0000),
    ("There are 42 open tenders.", "There are 57 open tenders.", 0.924),
]


def vectors_of(response: Any) -> NDArray[np.float32]:
    return np.frombuffer(response.vectors, dtype="<f4").reshape(-1, response.dimension)


def mixed_texts(count: int) -> list[str]:
    """Return different texts from one word to beyond the window, some of them not English."""
    words = [
        "order",
        "refund",
        "agent",
        "délai",
        "الطلب",
        "screen",
        "number",
        "42",
        "online,",
        "button?",
        "東京",
        "the",
        "of",
        "is",
        "a",
    ]
    dice = random.Random(11)
    lengths = [dice.choice([1, 3, 8, 20, 60, 150]) for _ in range(count - 1)]
    return ["", *(" ".join(dice.choices(words, k=length)) + f" {at}" for at, length in enumerate(lengths))]


async def test_vectors_agree_with_sentence_transformers(embedder: Any, reference: Any) -> None:
    """However texts of several callers are sorted, batched and padded, each vector is the model's own."""
    texts = mixed_texts(90)
    calls = [texts[start : start + 15] for start in range(0, len(texts), 15)]
    responses = await asyncio.gather(*(embedder.stub.Embed(pb.EmbedRequest(texts=call), timeout=100) for call in calls))
    found = np.concatenate([vectors_of(response) for response in responses])
    expected = reference.encode(texts, batch_size=16, show_progress_bar=False)
    assert found.shape == (90, 384)
    assert np.abs(found.astype(np.float64) @ found.T - expected.astype(np.float64) @ expected.T).max() < 1e-5
    assert np.abs(found - expected).max() < 1e-5


async def test_worked_examples(embedder: Any) -> None:
    """The cosines that the metric's definition quotes."""
    pairs = [pb.TextPair(first=first, second=second) for first, second, _ in EXAMPLES]
    response = await embedder.stub.Similarity(pb.SimilarityRequest(pairs=pairs), timeout=100)
    found = [result.cosine for result in response.similarities]
    assert found == pytest.approx([cosine for _, _, cosine in EXAMPLES], abs=2e-3)
    assert max(found) <= 1.0


async def test_text_beyond_the_window_is_reported(embedder: Any) -> None:
    """Two long texts that differ only where the model cannot see are equal to it, and the answer says why."""
    long = "word " * 400
    pairs = [pb.TextPair(first=long + "yes", second=long + "no"), pb.TextPair(first="short", second=long)]
    response = await embedder.stub.Similarity(pb.SimilarityRequest(pairs=pairs), timeout=100)
    first, second = response.similarities
    assert first.cosine == pytest.approx(1.0, abs=1e-6)
    assert (first.first_truncated, first.second_truncated) == (True, True)
    assert (second.first_truncated, second.second_truncated) == (False, True)
    embedded = await embedder.stub.Embed(pb.EmbedRequest(texts=["short", long, "other", long]), timeout=100)
    assert list(embedded.truncated) == [1, 3]
    exact = "word " * 254  # with the two special word pieces: exactly the window
    embedded = await embedder.stub.Embed(pb.EmbedRequest(texts=[exact, exact + "word"]), timeout=100)
    assert list(embedded.truncated) == [1]


async def test_answer_says_what_made_it_and_where_the_time_went(embedder: Any, default_folder: Path) -> None:
    """A score can be reproduced from the answer: model, weights, device, precision, engine."""
    response = await embedder.stub.Embed(pb.EmbedRequest(texts=["a"]), timeout=100)
    weights = (default_folder / "model.safetensors").read_bytes()
    assert response.model == pb.ModelInfo(
        name="all-MiniLM-L6-v2",
        revision=hashlib.sha256(weights).hexdigest(),
        dimension=384,
        max_tokens=256,
        device="cpu",
        precision="exact",
        prefix="",
        english_only=True,
        loaded=True,
        dimensions=[384],
        engine=response.model.engine,
    )
    assert response.model.engine.startswith("packed ")
    assert response.timing.tokenize_ms > 0
    assert response.timing.inference_ms > 0


async def test_local_e5_model_gets_its_prefix(
    start: Callable[..., Any], make_tiny_model: Callable[[str], Path]
) -> None:
    """An e5 model from a folder answers as sentence-transformers does for "query: " before the text."""
    from sentence_transformers import SentenceTransformer

    folder = make_tiny_model("tiny-e5-small")
    embedder = await start(Settings(models=(str(folder),)))
    texts = ["the agent is online", "press the red button", "the " * 100]
    response = await embedder.stub.Embed(pb.EmbedRequest(texts=texts), timeout=100)
    itself = SentenceTransformer(str(folder), device="cpu")
    expected = itself.encode([f"query: {text}" for text in texts], show_progress_bar=False)
    assert np.abs(vectors_of(response) - expected).max() < 1e-5
    assert list(response.truncated) == [2]
    assert response.model.prefix == "query: "
    assert response.model.max_tokens == 32
    assert response.model.english_only is False
    weights = (folder / "model.safetensors").read_bytes()
    assert response.model.revision == hashlib.sha256(weights).hexdigest()


@pytest.mark.parametrize(
    ("name", "prefix"),
    [("e5-small", "query: "), ("Multilingual-E5-large", "query: "), ("tiny", ""), ("abe5f", "")],
)
def test_prefix_goes_by_the_model_s_name(make_tiny_model: Callable[[str], Path], name: str, prefix: str) -> None:
    """A name that merely contains the two characters is no e5 model."""
    model = loading.load(str(make_tiny_model(name)), device="cpu")
    assert model.description.prefix == prefix


def test_changed_weights_are_refused(default_folder: Path, tmp_path: Path) -> None:
    """Weights other than those that thresholds were made with do not start; the sentence says what to do."""
    check_weights(default_folder, DEFAULT_SHA256)
    shutil.copy(default_folder / "model.safetensors", tmp_path)
    with (tmp_path / "model.safetensors").open("r+b") as file:
        file.seek(1_000_000)
        file.write(b"\x00\x01\x02\x03")
    with pytest.raises(SetupError, match=r"are not the expected ones.*force-reinstall") as caught:
        check_weights(tmp_path, DEFAULT_SHA256)
    assert caught.value.reason == "MODEL_WEIGHTS_CHANGED"
    with pytest.raises(SetupError, match="has SHA-256 no file"):
        check_weights(tmp_path / "missing", DEFAULT_SHA256)


def test_folder_without_a_model(tmp_path: Path) -> None:
    """A wrong folder is a sentence with what to give instead."""
    with pytest.raises(SetupError, match=r"could not be loaded: .* Give a folder saved by") as caught:
        loading.load(str(tmp_path), device="cpu")
    assert caught.value.reason == "MODEL_NOT_LOADED"


def test_gpu_that_is_not_there() -> None:
    """Asking for a GPU on a machine without one is refused, not silently slow."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(SetupError, match="use --device cpu"):
        choose_device("cuda")
    assert choose_device("auto") == "cpu"
