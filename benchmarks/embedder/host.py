"""Processor time of the embedder's own work per text, with a model that takes no time.

    python -m benchmarks.embedder.host [--texts 8000] [--rounds 5] [--json FILE]

Everything between texts and vectors runs as on a GPU, with the tokenizer of all-MiniLM-L6-v2 and batches as a card
reads them; only the forward pass returns at once. 64 callers embed 64 texts a call, in process and over gRPC with the
callers in a process of their own. Nothing is cached. Figures are medians of rounds: processor time in µs per text, by
thread. The event loop, the tokenizer's thread and the workers share the interpreter's lock: their sum bounds the texts
per second of a process, however fast the card. "other threads" are those of `tokenizers` and of gRPC, which do not hold
the lock.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import statistics
import sys
import tempfile
import threading
import time
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from benchmarks.embedder.corpus import corpus

from assay.embedder.v1 import embedder_pb2 as pb
from assay.embedder.v1 import embedder_pb2_grpc
from assay.rpc.channel import open_channel, wait_for_ready
from assay.rpc.server import RpcServer
from assay_embedder.caches.vector_cache import KeyMaker, ModelCache, VectorCache
from assay_embedder.embeddings import Embeddings, EmbedOptions
from assay_embedder.models.architecture import read_architecture
from assay_embedder.models.folders import find_folder
from assay_embedder.models.loading import Description, Model
from assay_embedder.models.packed.gpu import GpuNetwork
from assay_embedder.models.packed.linear import PlainLinear
from assay_embedder.models.packed.network import Engine
from assay_embedder.queues.admission import Load
from assay_embedder.queues.batcher import Limits, Worker
from assay_embedder.queues.workers import batch_tokens
from assay_embedder.registry import Registry, Served
from assay_embedder.service import SERVICE_NAME, EmbedderService
from assay_embedder.settings import DEFAULT_MODEL, Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from torch import Tensor

_CALLERS, _TEXTS_PER_CALL, _WORKERS = 64, 64, 2
_PARTS = {"MainThread": "event loop", "embedder-tokenizer": "tokenizer", "embedder-worker": "workers"}
_scopes = count()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=8_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--call", help=argparse.SUPPRESS)  # set in the process of the callers: the address to call
    options = parser.parse_args()
    if options.call:
        asyncio.run(_call(options.call, options.texts))
        return
    figures = asyncio.run(_measure(options.texts, options.rounds))
    print(json.dumps(figures, indent=1))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


class _InstantNetwork(GpuNetwork):
    """A network that reads batches as on a GPU and returns prepared vectors."""

    def __init__(self) -> None:
        engine = Engine("none", torch.device("cpu"), torch.float32, PlainLinear)
        super().__init__(read_architecture(find_folder(DEFAULT_MODEL)), engine)
        self._vectors = torch.nn.functional.normalize(torch.rand(batch_tokens("cuda", ""), self.dimension))

    def _run(self, staged: Tensor, rows: int, longest: int) -> Tensor:
        texts = len(staged) - 2 * rows - 1
        return self._vectors[:texts]


async def _measure(text_count: int, rounds: int) -> dict[str, Any]:
    texts = corpus(text_count)
    network = await asyncio.to_thread(_InstantNetwork)
    description = Description(
        DEFAULT_MODEL, "", network.dimension, network.max_tokens, "cuda", "fast", "", True, "none", (network.dimension,)
    )
    embeddings = Embeddings(
        description,
        [Worker(Model(network, description))] * _WORKERS,
        Limits(network.max_tokens, batch_tokens("cuda", ""), Load(4_096, 2**25, 1_000_000), divides=False),
        cache=ModelCache(KeyMaker((DEFAULT_MODEL, "fast")), VectorCache(0)),
    )
    try:
        async with _serving(Served(description, embeddings)) as address:
            ways: dict[str, Callable[[], Awaitable[Any]]] = {
                "in process": partial(_in_process, embeddings, texts),
                "gRPC": partial(_over_grpc, address, text_count),
            }
            for way in ways.values():
                await way()
            gc.collect()
            gc.freeze()  # as the embedder does once it is ready
            taken = [{name: await _used(way, text_count) for name, way in ways.items()} for _ in range(rounds)]
    finally:
        await embeddings.aclose()
    return {
        name: {
            part: round(statistics.median(round_[name][part] for round_ in taken), 2) for part in sorted(taken[0][name])
        }
        for name in ways
    }


@asynccontextmanager
async def _serving(served: Served) -> AsyncIterator[str]:
    """Serve a model; yield the address."""
    registry = Registry(Settings.read([], {}))
    registry._served[DEFAULT_MODEL] = served  # noqa: SLF001
    server = RpcServer()
    service = EmbedderService(registry, stream_in_flight=16, stopping=server.stopping)
    server.add(SERVICE_NAME, partial(embedder_pb2_grpc.add_EmbedderServiceServicer_to_server, service))
    with tempfile.TemporaryDirectory() as folder:
        address = await server.start(f"unix:{folder}/embedder.sock")
        server.set_serving(True)
        try:
            yield address
        finally:
            await server.stop(1)


async def _in_process(embeddings: Embeddings, texts: list[str]) -> None:
    scope = f"round {next(_scopes)}"
    await _by_callers(lambda some: embeddings.embed(some, EmbedOptions(scope)), texts)


async def _over_grpc(address: str, text_count: int) -> None:
    command = ("-m", "benchmarks.embedder.host", "--call", address, "--texts", str(text_count))
    callers = await asyncio.create_subprocess_exec(sys.executable, *command)
    if await callers.wait():
        raise RuntimeError("the callers failed")


async def _call(address: str, text_count: int) -> None:
    async with open_channel(address) as channel:
        await wait_for_ready(channel, SERVICE_NAME, 10)
        stub = embedder_pb2_grpc.EmbedderServiceStub(channel)
        await _by_callers(lambda some: stub.Embed(pb.EmbedRequest(texts=some), timeout=600), corpus(text_count))


async def _by_callers(embed: Callable[[list[str]], Awaitable[Any]], texts: list[str]) -> None:
    """Embed texts in calls of 64, 64 calls at once."""
    starts = iter(range(0, len(texts), _TEXTS_PER_CALL))

    async def caller() -> None:
        for start in starts:
            await embed(texts[start : start + _TEXTS_PER_CALL])

    await asyncio.gather(*(caller() for _ in range(_CALLERS)))


async def _used(way: Callable[[], Awaitable[Any]], text_count: int) -> dict[str, float]:
    """Return the processor time of a method by thread, in µs per text."""
    before = _processor_s()
    await way()
    now = _processor_s()
    figures = {part: (now[part] - before[part]) * 1e6 / text_count for part in now}
    return figures | {"interpreter's threads": sum(figures[part] for part in figures if part != "other threads")}


def _processor_s() -> dict[str, float]:
    """Return the processor time so far by role of the thread, in seconds."""
    seconds = dict.fromkeys(("event loop", "tokenizer", "workers"), 0.0)
    for thread in threading.enumerate():
        part = _PARTS.get(thread.name.rstrip("-0123456789"))
        if part is not None and thread.ident is not None:
            seconds[part] += time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    return seconds | {"other threads": time.process_time() - sum(seconds.values())}


if __name__ == "__main__":
    main()
