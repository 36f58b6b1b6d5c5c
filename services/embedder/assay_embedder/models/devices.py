"""The devices that models run on: the processor or GPUs."""

from __future__ import annotations

import sys

from assay.errors import SetupError
from assay_embedder.models.torch_parts import import_all_parts


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


def choose_device(choice: str) -> str:
    """Return "cpu", "cuda" or "cuda:N".

    Args:
        choice: "auto", which is "cuda" where there is a GPU; "cpu"; "cuda"; or "cuda:N", the GPU of that number.

    Raises:
        SetupError: A GPU is wanted but there is none (reason NO_GPU).
    """
    if choice == "cpu":
        return choice
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count:
        import_all_parts()
    if choice == "auto":
        return "cuda" if count else "cpu"
    if not count:
        message = "No NVIDIA GPU is usable here (torch.cuda.is_available() is False); use --device cpu."
        raise SetupError(message, reason="NO_GPU")
    if int(choice.partition(":")[2] or 0) >= count:
        message = f"There is no GPU {choice} here: they are cuda:0 to cuda:{count - 1}; use one of these."
        raise SetupError(message, reason="NO_GPU")
    return choice


def free_device_memory() -> None:
    """Return cached tensor memory to the GPUs, if there are any."""
    torch = sys.modules.get("torch")  # not imported here: a model may do without
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
