"""Datasets as an orchestrator stores them."""

from __future__ import annotations

from dataclasses import dataclass

MAX_PARENTS = 100
"""Maximum number of parents of a dataset."""


@dataclass(frozen=True, slots=True)
class StoredDataset:
    """One version of a named dataset; times are ISO 8601 texts in UTC.

    Args:
        dataset_id: Id and version, derived from the cases alone.
        name: The name, whose latest upload is its current version.
        case_count: Number of cases.
        size_bytes: Stored size of the cases.
        created_at: When the version was first uploaded under this name.
        uploaded_at: When it was last uploaded under this name.
        parent_ids: Ids of the datasets it was made from.
        note: A note for people; empty for none.
        run_count: Number of runs over these cases.
    """

    dataset_id: str
    name: str
    case_count: int
    size_bytes: int
    created_at: str
    uploaded_at: str
    parent_ids: tuple[str, ...] = ()
    note: str = ""
    run_count: int = 0
