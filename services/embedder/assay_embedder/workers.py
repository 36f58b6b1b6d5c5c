"""Which threads run a model, and on what."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from assay_embedder.batcher import Worker
from assay_embedder.processors import available_processors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay_embedder.encoder import Encoder

_GPU_TOKENS = 32_768
_CPU_TOKENS = 1_024  # what the activations of fit into the processor's cache; larger runs gain nothing
_FAST_CPU_TOKENS = 2_048
_FOUR_BYTES = ("float32", "exact")


def is_gpu(device: str) -> bool:
    """Return whether a device is a GPU, or all of them."""
    return device.partition(":")[0] == "cuda"


def devices_of(device: str) -> list[str]:
    """Return the devices that hold a copy of the model each: every GPU for "cuda"."""
    if device != "cuda":
        return [device]
    import torch  # heavy: only a process that loads a model pays for it

    count = torch.cuda.device_count()
    return [f"cuda:{number}" for number in range(count)] if count > 1 else [device]


def batch_tokens(device: str, precision: str) -> int:
    """Return how many word pieces one run of the model takes, by default."""
    if is_gpu(device):
        return _GPU_TOKENS
    return _CPU_TOKENS if precision in _FOUR_BYTES else _FAST_CPU_TOKENS


def workers_of(encoders: Sequence[Encoder], device: str, max_threads: int) -> list[Worker]:
    """Return the threads that run a model.

    On GPUs that is one for each. On a CPU a model that packs has one for each processor, with one arithmetic thread:
    two of these compute a quarter more than one with two threads. Another model has one worker with all threads.

    Args:
        encoders: The model; its copies, where it is on several GPUs.
        device: "cpu", "cuda", or "cuda:N".
        max_threads: Most threads on a CPU; 0 for the processors that the process may use.
    """
    if is_gpu(device):
        return [Worker(each, partial(_use_gpu, on)) for each, on in zip(encoders, devices_of(device), strict=True)]
    (encoder,) = encoders
    usable = available_processors()
    threads = min(usable, max_threads) if max_threads else usable
    if encoder.packed:
        return [Worker(encoder, partial(_use_threads, 1))] * threads
    return [Worker(encoder, partial(_use_threads, threads))]


def free_device_memory(device: str) -> None:
    """Give memory of models that are gone back to the GPU."""
    if is_gpu(device):
        import torch

        torch.cuda.empty_cache()


def _use_threads(count: int) -> None:
    torch = sys.modules.get("torch")  # not imported here: a model may do without
    if torch is not None:
        torch.set_num_threads(count)
        torch.get_num_threads()  # makes the number this thread's own, whatever another sets later


def _use_gpu(device: str) -> None:
    import torch

    torch.cuda.set_device(torch.device(device).index or 0)
