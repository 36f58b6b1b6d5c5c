"""The embedder on an NVIDIA GPU, compared with sentence-transformers at its best batch size.

    python -m benchmarks.embedder.gpu [--texts 12000] [--rounds 3] [--json FILE]

Two models: all-MiniLM-L6-v2, and one of the size of bge-base and e5-base with random weights, whose vectors mean
nothing and whose time is the same. For each, sentence-transformers in float32 and float16 searches its batch size, then
all ways take turns: its encode at that size; the embedder's forward pass over word pieces that are there; the embedder
from texts to vectors, in process and over gRPC, for 64 callers of 64 texts each. Figures are medians of rounds, ratios
those of one round. The card's rate of matrix products is measured in the same run; model FLOPs are 2 for each weight of
a linear layer and word piece, and 4 times hidden size for each pair of word pieces of a text and layer.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import threading
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from benchmarks.embedder.corpus import corpus
from tests.support.embedder.embedding_models import texts_in_ten_scripts

from assay.embedder.v1 import embedder_pb2 as pb
from assay.embedder.v1 import embedder_pb2_grpc
from assay.rpc.channel import open_channel, wait_for_ready
from assay_embedder.embeddings import EmbedOptions
from assay_embedder.models import loading
from assay_embedder.models.architecture import encoder_folder, read_json
from assay_embedder.models.folders import find_folder
from assay_embedder.queues.workers import batch_tokens, workers_of
from assay_embedder.registry import Registry
from assay_embedder.settings import DEFAULT_MODEL, Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from numpy.typing import NDArray

    from assay_embedder.models.encoder import Tokens
    from assay_embedder.models.loading import Model

_CALLERS, _TEXTS_PER_CALL = 64, 64
_BATCH_SIZES = (32, 64, 128, 256, 512, 1_024, 2_048)
_FORMATS = {"float32": torch.float32, "float16": torch.float16}
_PRECISIONS = {"exact": "float32", "fast": "float16"}
_LONE_PAIRS = 100
_MATRIX, _PRODUCTS = 8_192, 10
_scopes = count()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=12_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures = asyncio.run(_measure(options.texts, options.rounds))
    print(json.dumps(figures, indent=1))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


async def _measure(text_count: int, rounds: int) -> dict[str, Any]:
    rates = {name: _matrix_rate(dtype) for name, dtype in (*_FORMATS.items(), ("bfloat16", torch.bfloat16))}
    figures: dict[str, Any] = {
        "when": datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": _machine(),
        "matrix products, TFLOP/s": {name: round(rate / 1e12, 1) for name, rate in rates.items()},
    }
    with tempfile.TemporaryDirectory() as temporary:
        larger = random_model(Path(temporary) / "random-base", hidden=768, layers=12)
        # The larger model takes about eight times as long per text.
        for name, texts in ((DEFAULT_MODEL, corpus(text_count)), (str(larger), corpus(text_count // 4))):
            async with AsyncExitStack() as stack:
                figures[Path(name).name] = await _Measured(name, texts, rates, stack).figures(rounds)
    return figures


def _machine() -> dict[str, Any]:
    return {
        "gpu": torch.cuda.get_device_name(),
        "processors": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def random_model(folder: Path, *, hidden: int, layers: int) -> Path:
    """Save a BERT of a size with random weights, and the tokenizer and modules of the default model.

    Args:
        folder: Made here.
        hidden: Values per token; heads have 64 each, and the wide layer has four times as many values.
        layers: Layers.
    """
    from transformers import BertConfig, BertModel

    source = find_folder(DEFAULT_MODEL)
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("*.safetensors", "config.json"))
    shutil.copytree(source / "1_Pooling", folder / "1_Pooling", dirs_exist_ok=True)
    pooling = folder / "1_Pooling" / "config.json"
    config = read_json(pooling)
    pooling.write_text(json.dumps({**config, "word_embedding_dimension": hidden}))
    shape = BertConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=hidden // 64, intermediate_size=4 * hidden
    )
    torch.manual_seed(1)
    BertModel(shape, add_pooling_layer=False).save_pretrained(folder)
    return folder


def _matrix_rate(dtype: torch.dtype) -> float:
    """Return the floating-point operations per second of a product of two large random matrices."""
    torch.set_float32_matmul_precision("highest")
    left, right = (torch.randn(_MATRIX, _MATRIX, device="cuda").to(dtype) for _ in range(2))
    seconds = statistics.median(device_seconds(lambda: left @ right) for _ in range(_PRODUCTS))
    return 2 * _MATRIX**3 / seconds


def device_seconds(run: Callable[[], Any]) -> float:
    """Return the GPU time of a call after a warm-up, in seconds."""
    run()
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    began.record()
    run()
    ended.record()
    ended.synchronize()
    return float(began.elapsed_time(ended)) / 1000


@dataclass
class _Served:
    """One precision of a model, in this process and in a separate process."""

    registry: Registry
    model: Model
    stub: Any


class _Measured:
    """One model.

    Args:
        name: Its name or folder.
        texts: The texts to embed.
        rates: Floating-point operations a second, by number format.
        stack: Closes the started processes.
    """

    def __init__(self, name: str, texts: list[str], rates: dict[str, float], stack: AsyncExitStack) -> None:
        self._name, self._texts, self._rates, self._stack = name, texts, rates, stack
        self._folder = find_folder(name)
        self._served: dict[str, _Served] = {}
        self._libraries: dict[str, Any] = {}
        self._tokens: list[Tokens] = []
        self._loaded_mib: dict[str, int] = {}

    async def figures(self, rounds: int) -> dict[str, Any]:
        """Return all figures."""
        from sentence_transformers import SentenceTransformer

        for format_, dtype in _FORMATS.items():
            self._libraries[format_] = SentenceTransformer(
                str(self._folder), device="cuda", model_kwargs={"torch_dtype": dtype}
            )
        for precision in _PRECISIONS:
            self._served[precision] = await self._serve(precision)
        self._tokens = self._served["exact"].model.tokenize(self._texts)
        lengths = [len(tokens.ids) for tokens in self._tokens]
        searched = {format_: self._searched(format_, sum(lengths)) for format_ in _FORMATS}
        best = {format_: max(rates, key=rates.__getitem__) for format_, rates in searched.items()}
        ways = self._ways(best)
        gc.collect()
        gc.freeze()  # as the embedder does once it is ready
        for way in ways.values():
            await way()
        taken = [{name: await _seconds(way) for name, way in ways.items()} for _ in range(rounds)]
        return {
            "texts": len(self._texts),
            "word pieces": sum(lengths),
            "word pieces of a text": {"median": statistics.median(lengths), "most": max(lengths)},
            "sentence-transformers, tokens/s by batch size": searched,
            "best batch size": best,
            "tokens/s": {
                name: round(statistics.median(sum(lengths) / round_[name] for round_ in taken)) for name in ways
            },
            "ratios": {precision: _ratios(taken, precision) for precision in _PRECISIONS},
            **{precision: self._of_device(precision) | await self._lone(precision) for precision in _PRECISIONS},
            "memory of the model with its graphs, MiB": self._loaded_mib,
            "peak memory beside what is loaded, MiB": {
                name: await _peak_mib(way) for name, way in ways.items() if "gRPC" not in name
            },
            "agreement": self._agreement() if self._name == DEFAULT_MODEL else None,
        }

    async def _serve(self, precision: str) -> _Served:
        flags = ["--device", "cuda", "--precision", precision, "--model", self._name, "--cache-mib", "0"]
        loaded: list[Model] = []

        def load(name: str, **options: Any) -> Model:
            loaded.append(loading.load(name, **options))
            return loaded[-1]

        torch.cuda.empty_cache()
        reserved = torch.cuda.memory_reserved()
        registry = Registry(Settings.read(flags, {}), load=load)
        await registry.load_listed()
        torch.cuda.empty_cache()
        self._loaded_mib[precision] = round((torch.cuda.memory_reserved() - reserved) / 2**20)
        self._stack.push_async_callback(registry.aclose)
        stub = await self._stack.enter_async_context(_embedder(flags))
        return _Served(registry, loaded[0], stub)

    def _searched(self, format_: str, token_count: int) -> dict[int, int]:
        """Return tokens per second of sentence-transformers by batch size."""
        speeds = {}
        for size in _BATCH_SIZES:
            self._encode(format_, size, self._texts[: 2 * size])
            started = time.perf_counter()
            self._encode(format_, size, self._texts)
            speeds[size] = round(token_count / (time.perf_counter() - started))
        return speeds

    def _encode(self, format_: str, size: int, texts: Sequence[str]) -> NDArray[Any]:
        vectors: NDArray[Any] = self._libraries[format_].encode(texts, batch_size=size, show_progress_bar=False)
        return vectors

    def _ways(self, best: dict[str, int]) -> dict[str, Callable[[], Awaitable[Any]]]:
        ways: dict[str, Callable[[], Awaitable[Any]]] = {
            f"sentence-transformers, {format_}": partial(asyncio.to_thread, self._encode, format_, size, self._texts)
            for format_, size in best.items()
        }
        for precision, served in self._served.items():
            ways |= {
                f"{precision}, forward pass": partial(asyncio.to_thread, self._forward, served),
                f"{precision}, in process": partial(self._in_process, served),
                f"{precision}, gRPC": partial(self._over_grpc, served),
            }
        return ways

    def _forward(self, served: _Served) -> None:
        """Run the model on prepared word pieces, in threads like those of the service."""
        batches = iter(_batches(self._tokens, batch_tokens("cuda", "")))
        lock = threading.Lock()

        def work(prepare: Callable[[], None]) -> None:
            prepare()
            while True:
                with lock:
                    batch = next(batches, None)
                if batch is None:
                    return
                served.model.encode(batch)

        threads = [
            threading.Thread(target=work, args=(worker.prepare,)) for worker in workers_of([served.model], ["cuda"], 0)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    async def _in_process(self, served: _Served) -> None:
        async with served.registry.use("") as model:
            await self._by_callers(lambda texts, scope: model.embed(texts, EmbedOptions(scope)))

    async def _over_grpc(self, served: _Served) -> None:
        await self._by_callers(
            lambda texts, scope: served.stub.Embed(pb.EmbedRequest(texts=texts, scope=scope), timeout=600)
        )

    async def _by_callers(self, embed: Callable[[list[str], str], Awaitable[Any]]) -> None:
        """Embed the texts in calls of 64, 64 calls at once, in a new scope, so that nothing is cached."""
        scope = f"round {next(_scopes)}"
        starts = iter(range(0, len(self._texts), _TEXTS_PER_CALL))

        async def caller() -> None:
            for start in starts:
                await embed(self._texts[start : start + _TEXTS_PER_CALL], scope)

        await asyncio.gather(*(caller() for _ in range(_CALLERS)))

    def _of_device(self, precision: str) -> dict[str, Any]:
        """Return the kernel time of one batch, and its share of the card's rate."""
        network: Any = self._served[precision].model._network  # noqa: SLF001
        batch = _batches(self._tokens, batch_tokens("cuda", precision))[0]
        lengths = [len(tokens.ids) for tokens in batch]
        rows = sum(lengths)
        staged = network._staging(rows, len(batch))  # noqa: SLF001
        network._stage(staged.numpy(), rows, batch, lengths)  # noqa: SLF001
        with torch.inference_mode():
            moved = staged.cuda()
            run = partial(network._run, moved, rows, max(lengths))  # noqa: SLF001
            seconds = statistics.median(device_seconds(run) for _ in range(10))
        flops = model_flops(read_json(encoder_folder(self._folder) / "config.json"), lengths)
        return {
            "word pieces of a batch": rows,
            "kernels, tokens/s": round(rows / seconds),
            "kernels, TFLOP/s": round(flops / seconds / 1e12, 1),
            "share of the rate of matrix products": round(flops / seconds / self._rates[_PRECISIONS[precision]], 3),
        }

    async def _lone(self, precision: str) -> dict[str, Any]:
        """Return the latency of a single pair of texts, with and without CUDA graphs, and over gRPC."""
        served = self._served[precision]
        network: Any = served.model._network  # noqa: SLF001
        pairs = [self._texts[at : at + 2] for at in range(0, 2 * _LONE_PAIRS, 2)]

        def encode(pair: list[str]) -> None:
            served.model.encode(served.model.tokenize(pair))

        def encoded() -> float:
            return statistics.median(_timed(partial(encode, pair)) for pair in pairs)

        figures = {"lone pair, ms": round(encoded() * 1000, 3)}
        graphs, network._graphs = network._graphs, []  # noqa: SLF001
        figures["lone pair without graphs, ms"] = round(encoded() * 1000, 3)
        network._graphs = graphs  # noqa: SLF001
        taken = []
        for pair in pairs:
            request = pb.EmbedRequest(texts=pair, scope=f"lone {next(_scopes)}")
            taken.append(await _seconds(partial(served.stub.Embed, request, timeout=60)))
        return {**figures, "lone pair, gRPC, ms": round(statistics.median(taken) * 1000, 3)}

    def _agreement(self) -> dict[str, Any]:
        """Return how far 3,000 texts of mixed lengths, 2,000 of them in ten scripts, are from sentence-transformers."""
        dice = np.random.default_rng(3)
        short = [text.encode("utf-8", "replace").decode() for text in texts_in_ten_scripts(2_000)]
        texts = [f"{text} " * int(times) for text, times in zip(short, dice.integers(1, 40, 2_000), strict=True)]
        texts += self._texts[:1_000]
        expected = self._encode("float32", 32, texts).astype(np.float64)
        return {
            precision: _apart(served.model.encode(served.model.tokenize(texts)), expected)
            for precision, served in self._served.items()
        } | {"sentence-transformers, float16": _apart(self._encode("float16", 32, texts), expected)}


def model_flops(config: dict[str, Any], lengths: Sequence[int]) -> float:
    """Return the floating-point operations of a BERT for texts with these numbers of word pieces."""
    hidden, layers, wide = config["hidden_size"], config["num_hidden_layers"], config["intermediate_size"]
    linear = 2 * (4 * hidden * hidden + 2 * hidden * wide) * sum(lengths)
    attention = 4 * hidden * sum(length * length for length in lengths)
    return float(layers * (linear + attention))


def _apart(vectors: NDArray[Any], expected: NDArray[np.float64]) -> dict[str, float]:
    """Return the deviation of vectors, and of cosines of neighbours, from the expected ones."""
    unit = vectors.astype(np.float64)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    moved = np.abs((unit[:-1] * unit[1:]).sum(1) - (expected[:-1] * expected[1:]).sum(1))
    return {
        "texts": len(unit),
        "one minus cosine, most": float((1 - (unit * expected).sum(1)).max()),
        "cosines of pairs, most": float(moved.max()),
        "cosines of pairs, mean": float(moved.mean()),
    }


@asynccontextmanager
async def _embedder(flags: Sequence[str]) -> AsyncIterator[Any]:
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/embedder.sock"
        command = [sys.executable, "-m", "assay_embedder", "--listen", address, "--log-level", "warning", *flags]
        process = await asyncio.create_subprocess_exec(*command)
        try:
            async with open_channel(address) as channel:
                await wait_for_ready(channel, "assay.embedder.v1.EmbedderService", 100)
                yield embedder_pb2_grpc.EmbedderServiceStub(channel)
        finally:
            process.terminate()
            await process.wait()


def _batches(tokens: Sequence[Tokens], budget_tokens: int) -> list[list[Tokens]]:
    batches: list[list[Tokens]] = [[]]
    room = budget_tokens
    for text in tokens:
        if len(text.ids) > room:
            batches.append([])
            room = budget_tokens
        batches[-1].append(text)
        room -= len(text.ids)
    return batches


def _ratios(taken: Sequence[dict[str, float]], precision: str) -> dict[str, float]:
    """Return the tokens per second of each method of a precision, relative to sentence-transformers."""
    return {
        f"{way}, of sentence-transformers in {format_}": round(
            statistics.median(
                round_[f"sentence-transformers, {format_}"] / round_[f"{precision}, {way}"] for round_ in taken
            ),
            2,
        )
        for way in ("in process", "gRPC")
        for format_ in _FORMATS
    }


async def _peak_mib(way: Callable[[], Awaitable[Any]]) -> int:
    """Return the peak GPU memory of a method, beyond the loaded models."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    await way()
    return round((torch.cuda.max_memory_allocated() - before) / 2**20)


async def _seconds(way: Callable[[], Awaitable[Any]]) -> float:
    started = time.perf_counter()
    await way()
    return time.perf_counter() - started


def _timed(run: Callable[[], Any]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
