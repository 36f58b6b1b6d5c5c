"""Python warnings about oddities of a dataset, for callers of the Python API."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.datasets import DatasetInfo

_INSIDE = ("assay", "asyncio")


class DatasetWarning(UserWarning):
    """Something about a dataset is odd, but it is not refused."""


def warn_of_dataset(info: DatasetInfo) -> None:
    """Issue each warning about a dataset, and each problem of a left-out record, at the caller's line."""
    level = _level_of_caller()
    for odd in (*info.warnings, *info.left_out):
        warnings.warn(str(odd), DatasetWarning, stacklevel=level)


def _level_of_caller() -> int:
    """Return the stack level of the first function outside Assay and event loops."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 - what `warnings` itself goes by
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INSIDE:
        level, frame = level + 1, frame.f_back
    return level
