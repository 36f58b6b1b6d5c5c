"""The threads that run a model, and their devices."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from assay_embedder.models.devices import is_gpu
from assay_embedder.queues.batcher import Worker
from assay_embedder.queues.processors import available_processors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay_embedder.models.encoder import Encoder

_GPU_TOKENS = 32_768
_WORKERS_PER_GPU = 2
_CPU_TOKENS = 1_024  # what the activations of fit into the processor's cache; larger runs gain nothing
_FAST_CPU_TOKENS = 2_048
_FOUR_BYTES = ("float32", "exact")


def batch_tokens(device: str, precision: str) -> int:
    """Return the default number of word pieces in one run of the model."""
    if is_gpu(device):
        return _GPU_TOKENS
    return _CPU_TOKENS if precision in _FOUR_BYTES else _FAST_CPU_TOKENS


def workers_of(encoders: Sequence[Encoder], devices: Sequence[str], max_threads: int) -> list[Worker]:
    """Return the threads that run a model.

    On a GPU a model that packs has two, each with a stream of its own: while one waits for its vectors, the other has
    its batch copied and its kernels started. On a CPU such a model has one for each processor, with one arithmetic
    thread: two of these compute a quarter more than one with two threads. Another model has one worker for each GPU,
    or one with all threads.

    Args:
        encoders: The model, once for each device.
        devices: "cpu", or one or more of "cuda" and "cuda:N".
        max_threads: Most threads on a CPU; 0 for the processors that the process may use.
    """
    if is_gpu(devices[0]):
        pairs = zip(encoders, devices, strict=True)
        return [
            Worker(encoder, partial(_use_gpu, device))
            for encoder, device in pairs
            for _ in range(_WORKERS_PER_GPU if encoder.packed else 1)
        ]
    (encoder,) = encoders
    usable = available_processors()
    threads = min(usable, max_threads) if max_threads else usable
    if encoder.packed:
        return [Worker(encoder, partial(_use_threads, 1))] * threads
    return [Worker(encoder, partial(_use_threads, threads))]


def _use_threads(count: int) -> None:
    torch = sys.modules.get("torch")  # not imported here: a model may do without
    if torch is not None:
        torch.set_num_threads(count)
        torch.get_num_threads()  # makes the number this thread's own, whatever another sets later


def _use_gpu(device: str) -> None:
    import torch

    torch.cuda.set_device(torch.device(device).index or 0)
    torch.cuda.set_stream(torch.cuda.Stream())  # type: ignore[no-untyped-call]
