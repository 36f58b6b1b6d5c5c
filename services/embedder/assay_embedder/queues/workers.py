"""The threads that run a model, and their devices."""

from __future__ import annotations

import math
import os
import sys
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from assay_embedder.models.devices import is_gpu
from assay_embedder.queues.batcher import Worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assay_embedder.models.encoder import Encoder

_GPU_TOKENS = 32_768
_WORKERS_PER_GPU = 2
_CPU_TOKENS = 1_024  # what the activations of fit into the processor's cache; larger runs gain nothing
_FAST_CPU_TOKENS = 2_048


def available_processors(*, mount: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> int:
    """Return the processors that this process may use: its affinity, and the quota of its cgroup, rounded up.

    Args:
        mount: Where the cgroup file system is mounted.
        membership: The file that names the process's cgroups.
    """
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup_quota(mount, membership)
    return usable if quota is None else max(1, min(usable, math.ceil(quota)))


def cgroup_quota(mount: Path, membership: Path) -> float | None:
    """Return how many processors' time the process's cgroups allow, e.g. 1.5; None where they set no limit.

    Version 2 names it in `cpu.max`, version 1 in `cpu.cfs_quota_us` and `cpu.cfs_period_us`. A parent's limit holds,
    too. In a container the path of the group is often that outside, while the mount shows the group itself.
    """
    quotas = [_quota(folder) for folder in _folders(mount, membership)]
    return min((quota for quota in quotas if quota is not None), default=None)


def _folders(mount: Path, membership: Path) -> Iterator[Path]:
    for line in _text(membership).splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            roots = [mount, mount / "unified"]
        elif "cpu" in controllers.split(","):
            roots = [mount / "cpu", mount / controllers]
        else:
            continue
        inside = PurePosixPath(path.lstrip("/"))
        if ".." in inside.parts:  # a group outside of what this process sees
            inside = PurePosixPath()
        yield from (root / each for root in roots for each in (inside, *inside.parents))


def _quota(folder: Path) -> float | None:
    words = _text(folder / "cpu.max").split() or [
        *_text(folder / "cpu.cfs_quota_us").split(),
        *_text(folder / "cpu.cfs_period_us").split(),
    ]
    try:
        quota, period = map(int, words)
    except ValueError:  # "max", or nothing
        return None
    return quota / period if quota > 0 and period > 0 else None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def batch_tokens(device: str, precision: str) -> int:
    """Return the default number of word pieces in one run of the model."""
    if is_gpu(device):
        return _GPU_TOKENS
    return _CPU_TOKENS if precision == "exact" else _FAST_CPU_TOKENS


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
