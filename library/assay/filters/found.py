"""What was found by filters: pages of rows and of runs, counts, and a case with its neighbours."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.filters.row_filter import RowOutcome
    from assay.model.case import Case
    from assay.model.run import CaseResult, Run


@dataclass(frozen=True, slots=True)
class RowFacets:
    """Rows that meet conditions, counted by what they have.

    Args:
        outcomes: By outcome; those of no row are left out.
        categories: By category, most frequent first; "" for rows without one.
        tags: By tag, most frequent first; a row counts under each of its tags.
        repeats: By repeat, from 0, in order.
        omitted_categories: Categories that are left out, because there are many.
        omitted_tags: Tags that are left out likewise.
    """

    outcomes: Mapping[RowOutcome, int] = field(default_factory=dict)
    categories: Mapping[str, int] = field(default_factory=dict)
    tags: Mapping[str, int] = field(default_factory=dict)
    repeats: Mapping[int, int] = field(default_factory=dict)
    omitted_categories: int = 0
    omitted_tags: int = 0


@dataclass(frozen=True, slots=True)
class ResultPage:
    """A page of rows.

    Args:
        results: The rows, in the order asked for.
        next_page_token: Continues the same query; empty on the last page.
        total_count: Rows that meet the conditions; None where it was not asked for.
        facets: Counts of these rows; None where they were not asked for.
    """

    results: Sequence[CaseResult]
    next_page_token: str = ""
    total_count: int | None = None
    facets: RowFacets | None = None


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page of runs.

    Args:
        runs: The runs, in the order asked for.
        next_page_token: Continues the same query; empty on the last page.
        total_count: Runs that meet the conditions; None where it was not asked for.
    """

    runs: Sequence[Run]
    next_page_token: str = ""
    total_count: int | None = None


@dataclass(frozen=True, slots=True)
class CaseDetail:
    """A case of a run.

    Args:
        case: As it is stored; without content where it cannot be read.
        case_index: Its position in the dataset, from 0.
        results: One for each repeat that has a result, with its answer.
        previous_case_id: The case before it, under filter and order; empty where it is the first.
        next_case_id: The case after it, likewise.
        problem: Why the case cannot be read; empty where it can.
    """

    case: Case
    case_index: int
    results: Sequence[CaseResult] = ()
    previous_case_id: str = ""
    next_case_id: str = ""
    problem: str = ""
