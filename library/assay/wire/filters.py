"""Conversion of filters, orders and their results to protobuf messages and back.

A request's filter is validated here: a value unknown to this version is refused, never ignored, because ignoring it
would return other rows than requested.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from assay.agent.v1 import agent_pb2
from assay.errors import InvalidInputError, Problem
from assay.filters.pages import CaseDetail, RowFacets
from assay.filters.row_filter import (
    Comparison,
    LatencyCondition,
    MetricCondition,
    RowFilter,
    RowKey,
    RowOrder,
    RowOutcome,
    TextCondition,
    TextField,
    limit_problems,
)
from assay.filters.run_filter import NEWEST_FIRST, RunFilter, RunKey, RunOrder
from assay.model.answers.agent_response import AgentStatus
from assay.v1 import row_pb2, run_pb2
from assay.wire.case import case_from_wire, case_to_wire
from assay.wire.converter import EnumConverter
from assay.wire.run import STATES
from assay.wire.times import conditions_from_wire, timestamp_to_wire

if TYPE_CHECKING:
    from collections.abc import Sequence
    from enum import StrEnum

    from assay.model.run import RowResult

E = TypeVar("E", bound="StrEnum")

_STATUSES = EnumConverter(AgentStatus, agent_pb2.AgentStatus, unknown=None)
_OUTCOMES = EnumConverter(RowOutcome, row_pb2.RowOutcome, unknown=None)
_COMPARISONS = EnumConverter(Comparison, row_pb2.Comparison, unknown=None)
_TEXT_FIELDS = EnumConverter(TextField, row_pb2.TextField, unknown=None)
_ROW_KEYS = EnumConverter(RowKey, row_pb2.RowSortKey, unknown=None)
_RUN_KEYS = EnumConverter(RunKey, run_pb2.RunSortKey, unknown=None)

_UNSET = "must be set: 0 stands for no value"


def row_filter_to_wire(row_filter: RowFilter) -> row_pb2.RowFilter:
    """Return the message for a filter."""
    return row_pb2.RowFilter(
        outcomes=map(_OUTCOMES.to_wire, row_filter.outcomes),
        statuses=map(_STATUSES.to_wire, row_filter.statuses),
        categories=row_filter.categories,
        tags=row_filter.tags,
        case_ids=row_filter.case_ids,
        repeats=row_filter.repeats,
        texts=[
            row_pb2.TextCondition(field=_TEXT_FIELDS.to_wire(condition.field), text=condition.text)
            for condition in row_filter.texts
        ],
        metrics=[
            row_pb2.MetricCondition(
                metric=condition.metric, comparison=_COMPARISONS.to_wire(condition.comparison), value=condition.value
            )
            for condition in row_filter.metrics
        ],
        latencies=[
            row_pb2.LatencyCondition(
                comparison=_COMPARISONS.to_wire(condition.comparison), latency_ms=condition.latency_ms
            )
            for condition in row_filter.latencies
        ],
    )


def row_filter_from_wire(message: row_pb2.RowFilter) -> RowFilter:
    """Return the filter in a message.

    Raises:
        InvalidInputError: A value is unknown or exceeds a limit; holds every problem.
    """
    problems: list[Problem] = []
    row_filter = RowFilter(
        outcomes=tuple(
            _known(_OUTCOMES, number, f"filter.outcomes[{index}]", problems, RowOutcome.PASSED)
            for index, number in enumerate(message.outcomes)
        ),
        categories=tuple(message.categories),
        tags=tuple(message.tags),
        case_ids=tuple(message.case_ids),
        repeats=tuple(message.repeats),
        texts=tuple(
            TextCondition(_text_field(condition.field, f"filter.texts[{index}].field", problems), condition.text)
            for index, condition in enumerate(message.texts)
        ),
        metrics=tuple(
            MetricCondition(
                condition.metric,
                _comparison(condition.comparison, f"filter.metrics[{index}].comparison", problems),
                condition.value if condition.HasField("value") else None,
            )
            for index, condition in enumerate(message.metrics)
        ),
        latencies=tuple(
            LatencyCondition(
                _comparison(condition.comparison, f"filter.latencies[{index}].comparison", problems),
                condition.latency_ms,
            )
            for index, condition in enumerate(message.latencies)
        ),
        statuses=tuple(
            _known(_STATUSES, number, f"filter.statuses[{index}]", problems, AgentStatus.SUCCESS)
            for index, number in enumerate(message.statuses)
        ),
    )
    problems += limit_problems(row_filter)
    if problems:
        raise InvalidInputError(problems)
    return row_filter


def row_order_to_wire(order: RowOrder) -> row_pb2.RowOrder:
    """Return the message for an order."""
    return row_pb2.RowOrder(key=_ROW_KEYS.to_wire(order.key), metric=order.metric, descending=order.descending)


def row_order_from_wire(message: row_pb2.RowOrder) -> RowOrder:
    """Return the order in a message.

    Raises:
        InvalidInputError: Its key is unknown, or a metric is missing or superfluous.
    """
    problems: list[Problem] = []
    key = RowKey.DATASET
    if message.key:
        key = _known(_ROW_KEYS, message.key, "order_by.key", problems, RowKey.DATASET)
    if (key is RowKey.METRIC) is not bool(message.metric) and not problems:
        problems.append(Problem("a metric is given exactly where the key is METRIC", "order_by.metric"))
    if problems:
        raise InvalidInputError(problems)
    return RowOrder(key, message.metric, message.descending)


def facets_to_wire(facets: RowFacets) -> row_pb2.RowFacets:
    """Return the message for counts."""
    return row_pb2.RowFacets(
        outcomes=[
            row_pb2.OutcomeCount(outcome=_OUTCOMES.to_wire(outcome), row_count=count)
            for outcome, count in facets.outcomes.items()
        ],
        categories=[row_pb2.NameCount(name=name, row_count=count) for name, count in facets.categories.items()],
        tags=[row_pb2.NameCount(name=name, row_count=count) for name, count in facets.tags.items()],
        repeats=[row_pb2.RepeatCount(repeat_index=repeat, row_count=count) for repeat, count in facets.repeats.items()],
        omitted_category_count=facets.omitted_categories,
        omitted_tag_count=facets.omitted_tags,
    )


def facets_from_wire(message: row_pb2.RowFacets) -> RowFacets:
    """Return the counts in a message."""
    outcomes = {_OUTCOMES.from_wire(facet.outcome): facet.row_count for facet in message.outcomes}
    return RowFacets(
        outcomes={outcome: count for outcome, count in outcomes.items() if outcome is not None},
        categories={facet.name: facet.row_count for facet in message.categories},
        tags={facet.name: facet.row_count for facet in message.tags},
        repeats={facet.repeat_index: facet.row_count for facet in message.repeats},
        omitted_categories=message.omitted_category_count,
        omitted_tags=message.omitted_tag_count,
    )


def case_detail_to_wire(detail: CaseDetail) -> row_pb2.CaseDetail:
    """Return the message for a case; its results are separate messages."""
    return row_pb2.CaseDetail(
        case=case_to_wire(detail.case),
        case_index=detail.case_index,
        previous_case_id=detail.previous_case_id,
        next_case_id=detail.next_case_id,
        problem=detail.problem,
    )


def case_detail_from_wire(message: row_pb2.CaseDetail, results: Sequence[RowResult]) -> CaseDetail:
    """Return the case in a message, with the results that followed it."""
    return CaseDetail(
        case_from_wire(message.case),
        message.case_index,
        results,
        message.previous_case_id,
        message.next_case_id,
        message.problem,
    )


def run_query_to_wire(run_filter: RunFilter, order: RunOrder) -> run_pb2.ListRunsRequest:
    """Return a request for the runs that meet a filter, in an order."""
    return run_pb2.ListRunsRequest(
        run_id_prefix=run_filter.run_id_prefix,
        name=run_filter.name,
        labels=run_filter.labels,
        states=map(STATES.to_wire, sorted(run_filter.states)),
        datasets=run_filter.datasets,
        teams=run_filter.teams,
        group_id=run_filter.group_id,
        create_time_from=timestamp_to_wire(run_filter.created_from),
        create_time_before=timestamp_to_wire(run_filter.created_before),
        order_by=None
        if order == NEWEST_FIRST
        else run_pb2.RunOrder(key=_RUN_KEYS.to_wire(order.key), descending=order.descending),
    )


def run_filter_from_wire(request: run_pb2.ListRunsRequest) -> RunFilter:
    """Return the conditions in a request.

    Raises:
        InvalidInputError: A state is not set, or a time is invalid.
    """
    if unset := [Problem(_UNSET, f"states[{index}]") for index, state in enumerate(request.states) if not state]:
        raise InvalidInputError(unset)
    created_from, created_before = conditions_from_wire(request, ("create_time_from", "create_time_before"))
    return RunFilter(
        run_id_prefix=request.run_id_prefix,
        name=request.name,
        labels=dict(request.labels),
        states=frozenset(map(STATES.from_wire, request.states)),
        datasets=tuple(request.datasets),
        teams=tuple(request.teams),
        group_id=request.group_id,
        created_from=created_from,
        created_before=created_before,
    )


def run_order_from_wire(request: run_pb2.ListRunsRequest) -> RunOrder:
    """Return the order in a request.

    Raises:
        InvalidInputError: Its key is unknown.
    """
    if not request.HasField("order_by"):
        return NEWEST_FIRST
    problems: list[Problem] = []
    key = RunKey.CREATED
    if request.order_by.key:
        key = _known(_RUN_KEYS, request.order_by.key, "order_by.key", problems, RunKey.CREATED)
    if problems:
        raise InvalidInputError(problems)
    return RunOrder(key, request.order_by.descending)


def _comparison(number: int, field: str, problems: list[Problem]) -> Comparison:
    return _known(_COMPARISONS, number, field, problems, Comparison.EQUAL)


def _text_field(number: int, field: str, problems: list[Problem]) -> TextField:
    return _known(_TEXT_FIELDS, number, field, problems, TextField.ANY) if number else TextField.ANY


def _known(converter: EnumConverter[E, None], number: int, field: str, problems: list[Problem], instead: E) -> E:
    """Return a member; if the enum is not set, add a problem and return `instead`."""
    member = converter.from_wire(number)
    if member is None:  # numbers that this version does not know are refused before
        problems.append(Problem(_UNSET, field))
        return instead
    return member
