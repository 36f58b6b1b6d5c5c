"""Results of filters: pages of rows and of runs, counts, and a case with its neighbours."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from assay.filters.row_filter import RowOutcome
    from assay.model.case import Case
    from assay.model.run import RowResult, Run


@dataclass(frozen=True, slots=True)
class RowFacets:
    """Counts of the rows that meet a filter.

    Args:
        outcomes: By outcome; outcomes without rows are left out.
        categories: By category, most frequent first; "" for rows without a category.
        tags: By tag, most frequent first; a row counts under each of its tags.
        repeats: By repeat, from 1, in order.
        omitted_category_count: How many categories are left out, if there are too many.
        omitted_tag_count: How many tags are left out likewise.
    """

    outcomes: Mapping[RowOutcome, int] = field(default_factory=dict)
    categories: Mapping[str, int] = field(default_factory=dict)
    tags: Mapping[str, int] = field(default_factory=dict)
    repeats: Mapping[int, int] = field(default_factory=dict)
    omitted_category_count: int = 0
    omitted_tag_count: int = 0


@dataclass(frozen=True, slots=True)
class ResultPage:
    """A page of rows.

    Args:
        results: The rows, in the requested order.
        next_page_token: Continues the same query; empty on the last page.
        total_count: How many rows meet the filter; None if not requested.
        facets: Counts of these rows; None if not requested.
    """

    results: Sequence[RowResult]
    next_page_token: str = ""
    total_count: int | None = None
    facets: RowFacets | None = None


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page of runs.

    Args:
        runs: The runs, in the requested order.
        next_page_token: Continues the same query; empty on the last page.
        total_count: How many runs meet the filter; None if not requested.
    """

    runs: Sequence[Run]
    next_page_token: str = ""
    total_count: int | None = None


@dataclass(frozen=True, slots=True)
class CaseDetail:
    """A case of a run.

    Args:
        case: The stored case; without content if it cannot be read.
        case_index: Its position in the dataset, from 0.
        results: The rows of its repeats that have a result, with their answers.
        previous_case_id: The case before it under filter and order; empty for the first.
        next_case_id: The case after it likewise; empty for the last.
        problem: Why the case cannot be read; empty if it can.
    """

    case: Case
    case_index: int
    results: Sequence[RowResult] = ()
    previous_case_id: str = ""
    next_case_id: str = ""
    problem: str = ""
