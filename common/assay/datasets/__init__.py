"""Datasets: files of cases, streamed, recognised, and refused with every problem at once."""

from __future__ import annotations

from assay.datasets.dataset import ON_BAD_CASE, Dataset, DatasetInfo, open_dataset, records_dataset

__all__ = ["ON_BAD_CASE", "Dataset", "DatasetInfo", "open_dataset", "records_dataset"]
