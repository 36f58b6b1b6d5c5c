"""The packed forward pass: what sentence-transformers computes, and the same bits whatever a text is computed with."""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.embedder.embedding_models import save_model, texts_in_ten_scripts
from torch.nn import functional

from assay.errors import SetupError
from assay_embedder.models import loading, precision
from assay_embedder.models.encoder import Tokens
from assay_embedder.models.packed import attention, linear
from assay_embedder.models.verification import Memory
from assay_embedder.settings import DEFAULT_MODEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

TEXTS = texts_in_ten_scripts(2_000)


@pytest.fixture(scope="module", autouse=True)
def _one_thread(default_model: loading.Model) -> Iterator[None]:
    """Threads of one operation wait for each other without sleeping: on a busy machine that takes ten times as long."""
    with threads(1):
        yield


@pytest.fixture(scope="module")
def fast_model() -> loading.Model:
    try:
        return loading.load(DEFAULT_MODEL, device="cpu", precision="fast")
    except SetupError as error:
        pytest.skip(f"this processor has no bfloat16 instructions: {error.message}")


@pytest.fixture(scope="module")
def expected(reference: Any) -> NDArray[np.float32]:
    """The vectors of `TEXTS` by sentence-transformers."""
    vectors: NDArray[np.float32] = reference.encode(_storable(TEXTS), batch_size=8, show_progress_bar=False)
    return vectors


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with so many threads in one operation."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _storable(texts: Sequence[str]) -> list[str]:
    return [text.encode("utf-8", "replace").decode() for text in texts]


def vectors_of(model: loading.Model, texts: Sequence[str]) -> NDArray[np.float32]:
    """Return the vectors of texts, some at a time."""
    tokens = model.tokenize(texts)
    return np.concatenate([model.encode(tokens[at : at + 50]) for at in range(0, len(tokens), 50)])


def cosines(found: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.float64]:
    """Return the cosine of each vector with the one expected."""
    one, other = (each / np.linalg.norm(each.astype(np.float64), axis=1, keepdims=True) for each in (found, expected))
    return np.asarray((one * other).sum(1))


def test_exact_vectors_are_those_of_sentence_transformers(
    default_model: loading.Model, expected: NDArray[np.float32]
) -> None:
    """2,000 texts in ten scripts, empty, of 10,000 tokens, with emoji and control characters: cosines within 1e-5."""
    found = vectors_of(default_model, TEXTS)
    assert default_model.packed
    assert cosines(found, expected).min() > 1 - 1e-5
    assert np.linalg.norm(found, axis=1) == pytest.approx(1.0, abs=1e-5)


def test_fast_cosines_are_near_those_of_sentence_transformers(
    fast_model: loading.Model, expected: NDArray[np.float32]
) -> None:
    """Cosines of pairs of 2,000 texts in ten scripts move by at most 4e-3, and by 1e-3 on average."""
    found = vectors_of(fast_model, TEXTS)
    moved = np.abs((found[:-1] * found[1:]).sum(1) - (expected[:-1] * expected[1:]).sum(1))
    assert moved.max() < 4e-3
    assert moved.mean() < 1e-3
    assert fast_model.description.precision == "fast"
    assert fast_model.description.engine.endswith("bfloat16")


drawn_batches = st.lists(st.tuples(st.integers(1, 256), st.integers(0, 2**20)), min_size=1, max_size=5)


def drawn(length: int, seed: int) -> Tokens:
    """Return a text of random word pieces."""
    return Tokens(np.random.default_rng(seed).integers(0, 30_000, length).tolist(), [0] * length, False)


@pytest.mark.parametrize("chosen", ["default_model", "fast_model"])
@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batch=drawn_batches, others=drawn_batches)
def test_a_vector_has_the_same_bits_in_every_batch(
    request: pytest.FixtureRequest, chosen: str, batch: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    """Alone, among others, in another order: not one bit of a text's vector differs."""
    model = request.getfixturevalue(chosen)
    texts = [drawn(*each) for each in batch]
    alone = np.concatenate([model.encode([text]) for text in texts])
    together = model.encode([*(drawn(*each) for each in others), *reversed(texts)])[len(others) :][::-1]
    assert np.array_equal(alone, together)


@pytest.mark.parametrize("chosen", ["default_model", "fast_model"])
def test_many_texts_of_every_length_have_the_same_bits(request: pytest.FixtureRequest, chosen: str) -> None:
    """Groups of many texts of one length, and every length up to the window beside each other."""
    model = request.getfixturevalue(chosen)
    texts = [drawn(length, length) for length in range(1, 257, 15)] + [drawn(6, seed) for seed in range(100)]
    alone = np.concatenate([model.encode([text]) for text in texts])
    assert np.array_equal(alone, model.encode(texts))


@pytest.mark.parametrize("count", [1, 63, 64, 65, 193, 320])
def test_a_layer_in_blocks_is_the_layer(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of two sizes, the last one filled up: the rows and their order are those of the layer without blocks."""
    if not linear.onednn_works(torch.bfloat16):
        pytest.skip("oneDNN has no products of bfloat16 on this processor")
    weight, bias, rows = torch.randn(96, 128).bfloat16(), torch.randn(96).bfloat16(), torch.randn(count, 128).bfloat16()
    monkeypatch.setattr(linear, "_steady_blocks", lambda *shape: (128, 64))
    found = linear.OneDnnLinear(weight, bias)(rows)
    assert found.shape == (count, 96)
    assert torch.allclose(found.float(), functional.linear(rows, weight, bias).float(), atol=0.2, rtol=0.02)


def test_threads_share_a_model(default_model: loading.Model) -> None:
    """Several threads that tokenize and encode at once get the bits that one thread alone gets."""
    shares = [TEXTS[start : start + 20] for start in range(100, 180, 20)]
    expected = [vectors_of(default_model, share) for share in shares]
    found: dict[int, NDArray[np.float32]] = {}

    def work(number: int) -> None:
        torch.set_num_threads(1)
        found[number] = vectors_of(default_model, shares[number])

    workers = [threading.Thread(target=work, args=(number,)) for number in range(len(shares))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert all(np.array_equal(found[number], each) for number, each in enumerate(expected))


@pytest.fixture(scope="module")
def save(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Save a small model in a folder of a given name."""
    return lambda name, **options: save_model(tmp_path_factory.mktemp("models") / name, **options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("small", {}),
        ("small-cls", {"pooling": "cls", "parts": ("normalize",)}),
        ("small-max", {"pooling": "max", "parts": ("sharded",)}),
        ("small-e5", {"family": "xlm-roberta", "parts": ("normalize",)}),
        ("multilingual-cls", {"family": "xlm-roberta", "pooling": "cls", "parts": ("sharded",)}),
    ],
)
def test_small_models_agree(
    save: Callable[..., Path], name: str, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """BERT and XLM-RoBERTa, each pooling, normalised or not, in one file or several: sentence-transformers' vectors."""
    from sentence_transformers import SentenceTransformer

    folder = save(name, **options)
    model = loading.load(str(folder), device="cpu")
    assert model.packed, caplog.text
    prefix = "query: " if "e5" in name else ""
    assert model.description.prefix == prefix
    assert model.description.max_tokens == 96
    itself = SentenceTransformer(str(folder), device="cpu")
    texts = TEXTS[:200]
    expected = itself.encode([prefix + text for text in _storable(texts)], show_progress_bar=False)
    found = vectors_of(model, texts)
    assert cosines(found, expected).min() > 1 - 1e-5
    assert np.linalg.norm(found, axis=1) == pytest.approx(np.linalg.norm(expected, axis=1), rel=1e-4)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"parts": ("dense", "normalize")}, "its modules are Transformer, Pooling, Dense, Normalize"),
        ({"pooling": "mean_sqrt_len_tokens"}, "its pooling is mean_sqrt_len_tokens"),
    ],
)
def test_other_modules_are_left_to_sentence_transformers(
    save: Callable[..., Path], options: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A model with a part that is not known works all the same, and one sentence of the log says why it is slower."""
    from sentence_transformers import SentenceTransformer

    folder = save("other", **options)
    model = loading.load(str(folder), device="cpu")
    assert not model.packed
    assert model.description.engine == "sentence-transformers float32"
    (message,) = [record.getMessage() for record in caplog.records if record.name == "assay_embedder.models.loading"]
    assert message.endswith(reason)
    expected = SentenceTransformer(str(folder), device="cpu").encode(_storable(TEXTS[:30]), show_progress_bar=False)
    assert cosines(vectors_of(model, TEXTS[:30]), expected).min() > 1 - 1e-5


def test_a_network_that_computes_something_else_is_not_used(
    save: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A packed network that disagrees with sentence-transformers is left, and that is remembered."""
    monkeypatch.setattr(attention, "_weighted", lambda heads, lengths: (heads[2], torch.ones(())))
    memory = Memory(tmp_path / "verified.json")
    folder = str(save("broken"))
    for _ in range(2):
        assert not loading.load(folder, device="cpu", memory=memory).packed
    assert caplog.text.count("cosines are off by") == 2
    assert "broken" in caplog.text


def test_a_model_is_compared_once(
    save: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second start of the same weights does not need sentence-transformers; other weights are compared anew."""
    caplog.set_level(logging.INFO)
    memory = Memory(tmp_path / "state" / "verified.json")
    folder = save("once")
    loading.load(str(folder), device="cpu", memory=memory)
    assert "comparing with sentence-transformers" in caplog.text
    monkeypatch.setattr(loading, "load_transformer", lambda *args, **options: pytest.fail("compared again"))
    assert loading.load(str(folder), device="cpu", memory=memory).packed
    config = folder / "1_Pooling" / "config.json"
    config.write_text(config.read_text().replace("mean", "cls"))
    with pytest.raises(pytest.fail.Exception):
        loading.load(str(folder), device="cpu", memory=memory)


def test_fast_is_refused_where_the_processor_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without bfloat16 instructions `fast` would be slow, so that it ends the start, and `auto` is exact."""
    monkeypatch.setattr(precision, "_has_native_bfloat16", lambda: False)
    with pytest.raises(SetupError, match="use --precision exact") as caught:
        loading.load(DEFAULT_MODEL, device="cpu", precision="fast")
    assert caught.value.reason == "PRECISION_UNAVAILABLE"
    assert loading.load(DEFAULT_MODEL, device="cpu", precision="auto").description.precision == "exact"
    assert precision.choose_precision("fast", "cuda:1") == "fast"


def test_auto_is_fast_on_this_processor(fast_model: loading.Model) -> None:
    """Where bfloat16 is native, `auto` takes it."""
    assert precision.choose_precision("auto", "cpu") == fast_model.description.precision


def test_kernels_that_are_missing_are_replaced(
    default_model: loading.Model, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A torch without oneDNN's linear layer computes the same in its own, and the log says so."""
    monkeypatch.setattr("assay_embedder.models.packed.network.onednn_works", lambda dtype: False)
    plain = loading.load(DEFAULT_MODEL, device="cpu")
    assert plain.description.engine == "packed torch float32"
    assert "oneDNN" in caplog.text
    texts = TEXTS[:50]
    assert np.abs(vectors_of(plain, texts) - vectors_of(default_model, texts)).max() < 1e-5


def test_a_batch_that_does_not_fit_is_halved(default_model: loading.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the device's memory ends, halves are computed, and every vector is the one of the whole batch."""
    tokens = default_model.tokenize(TEXTS[20:27])
    whole = default_model.encode(tokens)
    network = default_model._network
    embed, sizes = network.embed, []

    def small(batch: Sequence[Tokens]) -> torch.Tensor:
        sizes.append(len(batch))
        if len(batch) > 2:
            raise torch.OutOfMemoryError
        return embed(batch)

    monkeypatch.setattr(network, "embed", small)
    assert np.array_equal(default_model.encode(tokens), whole)
    assert sizes == [7, 3, 1, 2, 4, 2, 2]
