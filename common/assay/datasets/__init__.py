"""Datasets: files of cases, streamed, recognised, and refused with every problem at once."""

from __future__ import annotations

from assay.datasets.dataset import ON_BAD_CASE, Dataset, DatasetInfo, open_dataset, records_dataset
from assay.datasets.foreign import FORMAT_NAMES

__all__ = ["FORMAT_NAMES", "ON_BAD_CASE", "Dataset", "DatasetInfo", "open_dataset", "records_dataset"]
