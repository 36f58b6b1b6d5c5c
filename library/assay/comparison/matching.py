"""Matching of the cases of two runs by id or, if most ids differ, by content."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.comparison.cases import CaseScores

LEAST_COMMON_IDS = 0.5
"""Share of the smaller run's ids that both runs must have to be matched by id."""


def matched(runs: Sequence[CaseScores]) -> list[CaseScores]:
    """Return runs whose equal cases have equal ids, those of the first run.

    A run is matched with the first by id if at least half of the ids are common, and otherwise, for all its cases, by
    question and references; among equal cases, the first matches the first, the second the second. Matching is
    idempotent.
    """
    first, *others = runs
    return [first, *(_matched(first, other, at) for at, other in enumerate(others, 2))]


def _matched(first: CaseScores, other: CaseScores, number: int) -> CaseScores:
    known = first.case_ids
    common = sum(first.place(case_id) is not None for case_id in other.case_ids)
    if other.is_matched_by_content or common >= LEAST_COMMON_IDS * min(len(known), len(other.case_ids)):
        return other
    same: dict[bytes, deque[str]] = {}
    for case_id, content in zip(known, first.contents, strict=True):
        if content:
            same.setdefault(content, deque()).append(case_id)
    matches = [queue.popleft() if (queue := same.get(content)) else None for content in other.contents]
    if all(match in (None, own) for match, own in zip(matches, other.case_ids, strict=True)):
        return other  # ids identify the same cases
    taken = set(known)
    return other.renamed(
        [
            _id_of_its_own(f"{own} (run {number})", taken) if match is None else match
            for match, own in zip(matches, other.case_ids, strict=True)
        ]
    )


def _id_of_its_own(case_id: str, taken: set[str]) -> str:
    """Return an id for a case of one run that differs from the ids of other runs."""
    while case_id in taken:
        case_id += "'"
    taken.add(case_id)
    return case_id
