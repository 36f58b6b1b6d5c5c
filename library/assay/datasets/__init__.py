"""Datasets of cases, read as a stream; a refused file reports every problem at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.datasets.choices import FORMAT_NAMES, ON_BAD_CASE

if TYPE_CHECKING:
    from assay.datasets.dataset import Dataset, DatasetInfo, open_dataset, records_dataset

__all__ = ["FORMAT_NAMES", "ON_BAD_CASE", "Dataset", "DatasetInfo", "open_dataset", "records_dataset"]


def __getattr__(name: str) -> object:
    """Import the readers of all formats when a dataset is first opened; most commands show their help without them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from assay.datasets import dataset

    return getattr(dataset, name)
