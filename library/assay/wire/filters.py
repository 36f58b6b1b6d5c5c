"""Conversion of the results of filters to protobuf messages and back; filters and orders are texts on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.filters.pages import CaseDetail, RowFacets
from assay.filters.row_filter import RowOutcome
from assay.v1 import row_pb2
from assay.wire.case import case_from_wire, case_to_wire
from assay.wire.converter import EnumConverter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.model.run import RowResult

_OUTCOMES = EnumConverter(RowOutcome, row_pb2.RowOutcome, unknown=None)


def facets_to_wire(facets: RowFacets) -> row_pb2.RowFacets:
    """Return the message for counts."""
    return row_pb2.RowFacets(
        outcomes=[
            row_pb2.OutcomeCount(outcome=_OUTCOMES.to_wire(outcome), row_count=count)
            for outcome, count in facets.outcomes.items()
        ],
        categories=[row_pb2.NameCount(name=name, row_count=count) for name, count in facets.categories.items()],
        tags=[row_pb2.NameCount(name=name, row_count=count) for name, count in facets.tags.items()],
        repeats=[row_pb2.RepeatCount(repeat=repeat, row_count=count) for repeat, count in facets.repeats.items()],
        omitted_category_count=facets.omitted_category_count,
        omitted_tag_count=facets.omitted_tag_count,
    )


def facets_from_wire(message: row_pb2.RowFacets) -> RowFacets:
    """Return the counts in a message."""
    outcomes = {_OUTCOMES.from_wire(facet.outcome): facet.row_count for facet in message.outcomes}
    return RowFacets(
        outcomes={outcome: count for outcome, count in outcomes.items() if outcome is not None},
        categories={facet.name: facet.row_count for facet in message.categories},
        tags={facet.name: facet.row_count for facet in message.tags},
        repeats={facet.repeat: facet.row_count for facet in message.repeats},
        omitted_category_count=message.omitted_category_count,
        omitted_tag_count=message.omitted_tag_count,
    )


def case_detail_to_wire(detail: CaseDetail) -> row_pb2.CaseDetail:
    """Return the message for a case; ListRows has its rows."""
    return row_pb2.CaseDetail(
        case=case_to_wire(detail.case),
        case_index=detail.case_index,
        previous_case_id=detail.previous_case_id,
        next_case_id=detail.next_case_id,
        problem=detail.problem,
    )


def case_detail_from_wire(message: row_pb2.CaseDetail, results: Sequence[RowResult]) -> CaseDetail:
    """Return the case in a message, with its rows."""
    return CaseDetail(
        case_from_wire(message.case),
        message.case_index,
        results,
        message.previous_case_id,
        message.next_case_id,
        message.problem,
    )
