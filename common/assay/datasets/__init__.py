"""Datasets: files of cases, streamed, recognised, and refused with every problem at once."""

from __future__ import annotations

from assay.datasets.dataset import Dataset, DatasetInfo, open_dataset, records_dataset

__all__ = ["Dataset", "DatasetInfo", "open_dataset", "records_dataset"]
