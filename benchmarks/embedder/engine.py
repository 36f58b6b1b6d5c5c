"""Texts per second of the embedder's engine, `exact` and `fast`, beside sentence-transformers' encode, in one process.

Rounds alternate between sentence-transformers, with batches of 32 and all threads, and the packed forward pass as the
service runs it: as many worker threads with one compute thread each, over batches of a token budget. Compare the ratios
of wall and processor time. Threads of one operation spin while they wait for each other, so on a busy machine only
`--threads 1` compares the methods themselves. `--json FILE` saves the figures.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from benchmarks.embedder.corpus import corpus

from assay.errors import SetupError
from assay_embedder.models import loading
from assay_embedder.models.folders import find_folder
from assay_embedder.settings import DEFAULT_MODEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from assay_embedder.models.encoder import Tokens

_BUDGET_TOKENS = {"exact": 1_024, "fast": 2_048}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures = measure(corpus(options.texts), options.model, rounds=options.rounds, threads=options.threads)
    print(json.dumps(figures, indent=1))
    if options.json:
        machine = {"python": platform.python_version(), "machine": platform.machine(), "cpus": os.cpu_count()}
        when = datetime.now().astimezone().isoformat(timespec="seconds")
        document = {"when": when, "machine": {**machine, "torch": torch.__version__}, "figures": figures}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


def measure(texts: Sequence[str], model: str, *, rounds: int, threads: int) -> dict[str, Any]:
    """Return medians of texts per second for each method, and the ratios of each round."""
    ways: dict[str, Callable[[], NDArray[np.float32]]] = {"sentence_transformers": _reference(texts, model, threads)}
    left_out: dict[str, str] = {}
    loaded: dict[str, loading.Model] = {}
    for precision in ("exact", "fast"):
        try:
            loaded[precision] = loading.load(model, device="cpu", precision=precision)
        except SetupError as error:
            left_out[precision] = error.message
            continue
        ways[precision] = _packed(texts, loaded[precision], _BUDGET_TOKENS[precision], threads)
    vectors = {name: way() for name, way in ways.items()}  # also the warm-up
    taken = [{name: _timed(way) for name, way in ways.items()} for _ in range(rounds)]
    lengths = [len(tokens.ids) for tokens in loaded["exact"].tokenize(texts)]
    return {
        "corpus": {"texts": len(texts), "tokens": sum(lengths), "median_tokens": statistics.median(lengths)},
        "texts_per_s": {name: _median(len(texts) / round_[name][0] for round_ in taken) for name in ways},
        "texts_per_processor_s": {name: _median(len(texts) / round_[name][1] for round_ in taken) for name in ways},
        **{f"{name}_ratio": _ratios(taken, name) for name in loaded},
        **{f"{name}_error": _errors(vectors[name], vectors["sentence_transformers"]) for name in loaded},
        "threads": threads,
        "engines": {name: model.description.engine for name, model in loaded.items()},
        "left_out": left_out,
    }


def _reference(texts: Sequence[str], model: str, threads: int) -> Callable[[], NDArray[np.float32]]:
    from sentence_transformers import SentenceTransformer

    network = SentenceTransformer(str(find_folder(model)), device="cpu")

    def encode() -> NDArray[np.float32]:
        torch.set_num_threads(threads)
        vectors: NDArray[np.float32] = network.encode(list(texts), batch_size=32, show_progress_bar=False)
        return vectors

    return encode


def _packed(
    texts: Sequence[str], model: loading.Model, budget_tokens: int, threads: int
) -> Callable[[], NDArray[np.float32]]:
    def encode() -> NDArray[np.float32]:
        batches = list(_batches(model.tokenize(texts), budget_tokens))
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as workers:
            return np.concatenate(list(workers.map(model.encode, batches)))

    return encode


def _batches(tokens: Sequence[Tokens], budget_tokens: int) -> Iterator[list[Tokens]]:
    batch: list[Tokens] = []
    for text in tokens:
        if batch and sum(len(other.ids) for other in batch) + len(text.ids) > budget_tokens:
            yield batch
            batch = []
        batch.append(text)
    yield batch


def _timed(way: Callable[[], Any]) -> tuple[float, float]:
    """Return the wall time and the processor time of a call, in seconds."""
    started = time.perf_counter(), time.process_time()
    way()
    return time.perf_counter() - started[0], time.process_time() - started[1]


def _ratios(taken: Sequence[dict[str, tuple[float, float]]], name: str) -> dict[str, float]:
    """Return the speed of a method relative to sentence-transformers: the median over rounds."""
    kinds = ("wall", "processor")
    return {
        kind: round(statistics.median(round_["sentence_transformers"][at] / round_[name][at] for round_ in taken), 2)
        for at, kind in enumerate(kinds)
    }


def _errors(vectors: NDArray[np.float32], expected: NDArray[np.float32]) -> dict[str, float]:
    """Return the deviation of the cosines of neighbouring texts."""
    moved = np.abs((vectors[:-1] * vectors[1:]).sum(1) - (expected[:-1] * expected[1:]).sum(1))
    return {"most": float(moved.max()), "mean": float(moved.mean())}


def _median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 1)


if __name__ == "__main__":
    main()
