"""Precisions of vectors, and their number formats on each device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assay.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Mapping

_NATIVE_BFLOAT16 = ("avx512_bf16", "amx_bf16", "arm_bf16", "bf16")


def choose_precision(choice: str, device: str) -> str:
    """Return "exact" or "fast".

    Args:
        choice: "exact", "fast" or "auto", which is fast where the device computes with 16-bit numbers.
        device: "cpu", "cuda" or "cuda:N".

    Raises:
        SetupError: It is fast, and the processor has no bfloat16 instructions (reason PRECISION_UNAVAILABLE).
    """
    if choice == "exact" or (device == "cpu" and not _has_native_bfloat16()):
        if choice == "fast":
            raise SetupError(
                "--precision fast needs a processor with bfloat16 instructions (avx512_bf16 or amx_bf16) or a GPU, and "
                "this machine has neither: use --precision exact, or auto, which is exact here.",
                reason="PRECISION_UNAVAILABLE",
            )
        return "exact"
    return "fast"


def number_format(precision: str, device: str) -> str:
    """Return the number format of products: "float32", "bfloat16" on a CPU, "float16" on a GPU."""
    if precision == "exact":
        return "float32"
    return "bfloat16" if device == "cpu" else "float16"


def _has_native_bfloat16() -> bool:
    import torch  # heavy: only a process that loads a model pays for it

    # Private before torch 2.9, and different since.
    capabilities: Mapping[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    older = (getattr(torch.cpu, name, bool)() for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(capabilities.get(name) for name in _NATIVE_BFLOAT16) or any(older)
