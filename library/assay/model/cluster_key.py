"""Cluster keys, and the cluster of a case: cases in one cluster are not independent."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_CLUSTER_CHARS = 200


def cluster_problem(key: str) -> str:
    """Return the problem of a cluster key, or the empty string.

    Args:
        key: "category", or "tag:NAME" for tags such as NAME:value; empty for none.
    """
    kind, _, name = key.partition(":")
    if key in ("", "category") or (kind == "tag" and name.strip() and len(key) <= MAX_CLUSTER_CHARS):
        return ""
    return f"must be category, or tag:NAME for tags such as NAME:value, not {key[:80]!r}"


def missing_cluster(key: str, of: str = "") -> str:
    """Return the message for a key that no case has a value for.

    Args:
        key: A checked key.
        of: The owner of the cases, such as " of the runs".
    """
    missing = "category" if key == "category" else f"tag that begins with '{key.removeprefix('tag:')}:'"
    return f"no case{of} has a {missing}: choose another key, or leave it out"


def cluster_of(key: str, category: str, tags: Sequence[str]) -> str:
    """Return the cluster of a case; empty if it is in none.

    Args:
        key: A checked key.
        category: The case's category, or empty.
        tags: The case's tags; the first that fits the key counts.
    """
    if key == "category":
        return category
    prefix = f"{key.removeprefix('tag:')}:"
    return next((tag for tag in tags if tag.startswith(prefix)), "") if key else ""
