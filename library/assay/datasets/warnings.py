"""What is odd about a dataset, for callers from Python: as Python warnings."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.datasets import DatasetInfo

_INSIDE = ("assay", "asyncio")


class DatasetWarning(UserWarning):
    """Something about a dataset is odd, but no reason to refuse it."""


def warn_of_dataset(info: DatasetInfo) -> None:
    """Issue each warning about a dataset, and each problem of a record that was left out, where the caller called."""
    level = _level_of_caller()
    for odd in (*info.warnings, *info.left_out):
        warnings.warn(str(odd), DatasetWarning, stacklevel=level)


def _level_of_caller() -> int:
    """Return how far up the first function is that is neither Assay's nor an event loop's."""
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 - what `warnings` itself goes by
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INSIDE:
        level, frame = level + 1, frame.f_back
    return level
