"""The packed forward pass of a GPU: what of it a processor can run, and, marked `gpu`, the rest on a card."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.embedder.embedding_models import save_model, texts_in_ten_scripts

from assay_embedder.embeddings import EmbedOptions
from assay_embedder.models import loading
from assay_embedder.models.architecture import UnknownArchitectureError, read_architecture
from assay_embedder.models.devices import choose_device
from assay_embedder.models.encoder import Tokens
from assay_embedder.models.packed import gpu, gpu_attention
from assay_embedder.models.packed.attention import Layout, attend_by_length
from assay_embedder.models.packed.linear import PlainLinear
from assay_embedder.models.packed.network import Engine
from assay_embedder.queues import workers
from assay_embedder.registry import Registry
from assay_embedder.settings import DEFAULT_MODEL, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

TEXTS = texts_in_ten_scripts(2_000)
ON_CPU = Engine("packed CUDA float32", torch.device("cpu"), torch.float32, PlainLinear)
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


def storable(texts: Sequence[str]) -> list[str]:
    return [text.encode("utf-8", "replace").decode() for text in texts]


def vectors_of(model: loading.Model, texts: Sequence[str], size: int = 500) -> NDArray[np.float32]:
    tokens = model.tokenize(texts)
    return np.concatenate([model.encode(tokens[at : at + size]) for at in range(0, len(tokens), size)])


def moved(found: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.float64]:
    """Return how far cosines of pairs of neighbours are from those expected."""
    one, other = (each.astype(np.float64) for each in (found, expected))
    return np.asarray(np.abs((one[:-1] * one[1:]).sum(1) - (other[:-1] * other[1:]).sum(1)))


@pytest.fixture(scope="module")
def expected(reference: Any) -> NDArray[np.float32]:
    """The vectors of `TEXTS` by sentence-transformers in float32, on the GPU where there is one."""
    reference.to("cuda" if torch.cuda.is_available() else "cpu")
    vectors: NDArray[np.float32] = reference.encode(storable(TEXTS), batch_size=32, show_progress_bar=False)
    return vectors


# What a processor can run of it.


@pytest.mark.parametrize(
    "options",
    [
        {"parts": ("normalize",)},
        {"pooling": "cls"},
        {"pooling": "max"},
        {"family": "xlm-roberta"},
        {"family": "xlm-roberta", "pooling": "cls", "parts": ("normalize",)},
    ],
)
def test_batches_as_a_gpu_reads_them_give_the_same_vectors(tmp_path: Path, options: dict[str, Any]) -> None:
    """Texts in any order, one look-up of places, pooling by bounds: the vectors of the path on a processor."""
    folder = save_model(tmp_path / "small", **options)
    on_cpu = loading.load(str(folder), device="cpu")
    network = gpu.GpuNetwork(read_architecture(folder), ON_CPU)
    batch = on_cpu.tokenize(TEXTS[:200])
    with torch.inference_mode():
        found = network.embed(batch).numpy()
    assert np.abs(found - on_cpu.encode(batch)).max() < 1e-5


def test_types_are_read(tmp_path: Path) -> None:
    """A tokenizer that marks word pieces with a type has the embedding of that type added, on both paths."""
    folder = save_model(tmp_path / "small")
    on_cpu = loading.load(str(folder), device="cpu")
    network = gpu.GpuNetwork(read_architecture(folder), ON_CPU)
    ids = [[5, 6, 7], [8, 9], [5, 6, 7]]
    batch = [Tokens(each, [at] * len(each) if at < 2 else (), False) for at, each in enumerate(ids)]
    with torch.inference_mode():
        found = network.embed(batch).numpy()
    expected = on_cpu.encode(batch)
    assert np.abs(found - expected).max() < 1e-5
    assert np.array_equal(expected[0], expected[2])
    assert np.abs(found[0] - network.embed([Tokens(ids[0], [1] * 3, False)]).numpy()[0]).max() > 1e-3


@pytest.mark.parametrize("rows", [6, 16])
def test_room_for_more_rows_and_texts_changes_nothing(tmp_path: Path, rows: int) -> None:
    """A batch in the memory of a larger one, as graphs have it, leaves its vectors as they are."""
    folder = save_model(tmp_path / "small", pooling="cls")
    network = gpu.GpuNetwork(read_architecture(folder), ON_CPU)
    batch = [Tokens([5, 6, 7, 8], (), False), Tokens([9, 10], (), False)]
    staged = torch.full((2 * rows + 5 + 1,), 999, dtype=torch.int32)
    network._stage(staged.numpy(), rows, batch, [4, 2])
    assert staged[2 * rows :].tolist() == [0, 4, 6, 6, 6, 6]  # texts that are not there are empty
    with torch.inference_mode():
        found = network._run(staged, rows, rows)
        assert torch.allclose(found[:2], network.embed(batch), atol=1e-6)
    assert found.shape == (5, 48)


@given(lengths=st.lists(st.integers(1, 90), min_size=1, max_size=8), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=20)
def test_attention_by_bounds_is_attention_by_length(lengths: list[int], seed: int) -> None:
    """The bounds that a GPU's kernel reads describe the same texts as the groups of a processor."""
    lengths.sort()
    projected = torch.randn(sum(lengths), 3 * 32, generator=torch.Generator().manual_seed(seed))
    bounds = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    queries, keys, values = projected.view(-1, 3, 2, 16).unbind(1)
    found = gpu_attention.one_by_one(queries, keys, values, bounds, max(lengths))
    expected = attend_by_length(projected, Layout(lengths), 2)
    assert (found.reshape(-1, 32) - expected).abs().max() < 1e-5


def test_attention_that_does_not_work_is_not_used() -> None:
    """A kernel that this torch or device lacks, or that computes something else, is left out."""

    def wrong(queries: Any, keys: Any, values: Any, bounds: Any, longest: int) -> Any:
        return values

    cpu = torch.device("cpu")
    assert gpu_attention.works(gpu_attention.one_by_one, cpu, torch.float32)
    assert not gpu_attention.works(gpu_attention.memory_efficient, cpu, torch.float32)
    assert not gpu_attention.works(gpu_attention.flash, cpu, torch.float16)
    assert not gpu_attention.works(wrong, cpu, torch.float32)


def test_gpu_without_attention_is_left_to_sentence_transformers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A card for which torch has no kernel of attention is no error: the reason goes to the log."""
    folder = save_model(tmp_path / "small")
    monkeypatch.setattr(gpu, "choose_kernel", lambda device, dtype: None)
    with pytest.raises(UnknownArchitectureError, match="no attention for texts of any lengths on this GPU"):
        gpu.GpuNetwork(read_architecture(folder), ON_CPU)


@pytest.mark.parametrize(("packed", "per_gpu"), [(True, 2), (False, 1)])
def test_each_gpu_has_its_workers(default_model: loading.Model, packed: bool, per_gpu: int) -> None:
    """Every GPU of a list has its own copy of the model; two threads keep a card busy, where the model packs."""

    class Copy:
        tokenize, encode = default_model.tokenize, default_model.encode

        def __init__(self) -> None:
            self.packed = packed

    copies = [Copy() for _ in range(3)]
    found = workers.workers_of(copies, ["cuda:0", "cuda:1", "cuda:2"], 0)
    assert [worker.encoder for worker in found] == [copy for copy in copies for _ in range(per_gpu)]


# On a GPU.


@pytest.fixture(scope="module")
def exact_model() -> loading.Model:
    return loading.load(DEFAULT_MODEL, device=choose_device("cuda"))


@pytest.fixture(scope="module")
def fast_model() -> loading.Model:
    return loading.load(DEFAULT_MODEL, device=choose_device("cuda"), precision="fast")


@pytest.mark.gpu
@needs_gpu
def test_exact_vectors_on_a_gpu(exact_model: loading.Model, expected: NDArray[np.float32]) -> None:
    """2,000 texts in ten scripts: cosines with sentence-transformers' vectors and of pairs within 1e-5."""
    found = vectors_of(exact_model, TEXTS)
    assert exact_model.description.engine == "packed CUDA float32"
    assert (1 - (found.astype(np.float64) * expected).sum(1)).max() < 1e-5
    assert moved(found, expected).max() < 1e-5


@pytest.mark.gpu
@needs_gpu
def test_fast_vectors_on_a_gpu(fast_model: loading.Model, expected: NDArray[np.float32]) -> None:
    """Cosines of pairs of 2,000 texts in ten scripts move by at most 4e-3, and by 1e-3 on average."""
    found = vectors_of(fast_model, TEXTS)
    assert fast_model.description.engine == "packed CUDA float16"
    assert moved(found, expected).max() < 4e-3
    assert moved(found, expected).mean() < 1e-3


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("chosen", "most"), [("exact_model", 1e-5), ("fast_model", 4e-3)])
def test_graphs_compute_what_their_kernels_do(request: pytest.FixtureRequest, chosen: str, most: float) -> None:
    """Texts alone and a few at a time, replayed from graphs, agree with the same texts in one large batch."""
    model = request.getfixturevalue(chosen)
    assert vars(model._network)["_graphs"]
    tokens = model.tokenize(TEXTS[:300])
    alone = np.concatenate([model.encode([each]) for each in tokens])
    few = np.concatenate([model.encode(tokens[at : at + 7]) for at in range(0, 300, 7)])
    whole = model.encode(tokens)
    assert moved(alone, whole).max() < most
    assert moved(few, whole).max() < most


@pytest.mark.gpu
@needs_gpu
def test_threads_share_graphs(fast_model: loading.Model) -> None:
    """Threads with batches of different sizes, and so with graphs that compute in the same memory, get their own."""
    tokens = fast_model.tokenize(TEXTS[:400])
    whole = fast_model.encode(tokens)
    found: dict[int, NDArray[np.float32]] = {}

    def work(size: int) -> None:
        torch.cuda.set_stream(torch.cuda.Stream())  # type: ignore[no-untyped-call]
        found[size] = np.concatenate([fast_model.encode(tokens[at : at + size]) for at in range(0, 400, size)])

    threads = [threading.Thread(target=work, args=(size,)) for size in (1, 4, 20, 80)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all((1 - (each * whole).sum(1)).max() < 1e-4 for each in found.values())
    assert len(found) == 4


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(
    "options",
    [{"pooling": "cls", "parts": ("normalize",)}, {"pooling": "max"}, {"family": "xlm-roberta"}],
)
def test_small_models_on_a_gpu(tmp_path: Path, options: dict[str, Any]) -> None:
    """Both families and all poolings, verified at load; the vectors of a processor."""
    folder = str(save_model(tmp_path / "small", **options))
    on_gpu, on_cpu = (loading.load(folder, device=device) for device in (choose_device("cuda"), "cpu"))
    assert on_gpu.packed
    assert np.abs(vectors_of(on_gpu, TEXTS[:200]) - vectors_of(on_cpu, TEXTS[:200])).max() < 1e-4


@contextmanager
def little_memory(mib: int) -> Iterator[None]:
    """Leave this process so much of the GPU's memory beside what it has now."""
    torch.cuda.empty_cache()
    whole = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + mib * 2**20) / whole)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
        torch.cuda.empty_cache()


@pytest.mark.gpu
@needs_gpu
def test_a_batch_beyond_the_memory_is_halved(fast_model: loading.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch far too large for the card is computed in halves that fit, and the next batch as ever."""
    tokens = fast_model.tokenize([f"{text} " * 40 for text in TEXTS[20:2_000]])
    whole = fast_model.encode(tokens)
    embed, sizes = fast_model._network.embed, []

    def observed(batch: Sequence[Tokens]) -> Any:
        sizes.append(len(batch))
        return embed(batch)

    monkeypatch.setattr(fast_model._network, "embed", observed)
    with little_memory(96):
        halved = fast_model.encode(tokens)
    assert sizes[0] == len(tokens)
    assert len(sizes) > 4
    assert moved(halved, whole).max() < 4e-3
    sizes.clear()
    assert moved(fast_model.encode(tokens), whole).max() < 4e-3
    assert sizes == [len(tokens)]


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("devices", [["cuda"], ["cuda:0", "cuda:0", "cuda:0"]])
async def test_callers_share_a_gpu(
    devices: list[str], monkeypatch: pytest.MonkeyPatch, fast_model: loading.Model
) -> None:
    """Threads with streams of their own, on one copy of the model or on several: each caller gets its own vectors."""
    monkeypatch.setattr("assay_embedder.registry.devices_of", lambda device: devices)
    registry = Registry(Settings(device="cuda", precision="fast", max_batch_tokens=2_048))
    await registry.load_listed()
    texts = storable(TEXTS[:1_200])
    try:
        async with registry.use("") as served:
            calls = [texts[at : at + 6] for at in range(0, len(texts), 6)]
            answers = await asyncio.gather(*(served.embed(call, EmbedOptions("a")) for call in calls))
    finally:
        await registry.aclose()
    found = np.stack(
        [
            vectors[text]
            for call, vectors in zip(calls, [each.vectors for each in answers], strict=True)
            for text in call
        ]
    )
    whole = vectors_of(fast_model, texts)
    assert moved(found, whole).max() < 4e-3
    assert (1 - (found * whole).sum(1)).max() < 1e-4


@pytest.mark.gpu
@needs_gpu
def test_a_gpu_whose_graphs_fail_computes_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fast_model: loading.Model
) -> None:
    """Graphs are a matter of speed alone: where they cannot be recorded, or compute something else, none is used."""
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(gpu.GpuNetwork, "_agrees", lambda network, graph: False)
    without = loading.load(DEFAULT_MODEL, device=choose_device("cuda"), precision="fast")
    assert "are computed without graphs" in caplog.text
    assert vars(without._network)["_graphs"] == []
    assert moved(vectors_of(without, TEXTS[:50], 5), vectors_of(fast_model, TEXTS[:50], 50)).max() < 4e-3
