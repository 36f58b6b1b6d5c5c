"""Comparison of stored runs by the orchestrator: figures, and pages of compared cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.client.connection import PAGE_TIMEOUT_S
from assay.comparison.case_list import CaseQuery, ComparedCase, ComparedCasePage
from assay.comparison.decision import ComparisonDecision, DecisionRules
from assay.comparison.model import Comparison, ComparisonSettings
from assay.model.views import RowView
from assay.v1 import comparison_pb2 as pb
from assay.v1.comparison_pb2_grpc import ComparisonServiceStub
from assay.wire.comparison import (
    COMPARED_CASE,
    COMPARISON,
    COMPARISON_SETTINGS,
    DECISION,
    DECISION_RULES,
    change_to_wire,
)
from assay.wire.run import ROW_VIEWS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from assay.client.client import Client

_COMPARE_TIMEOUT_S = 300.0
_DEFAULT_RULES = DecisionRules()


async def compare_on_server(
    client: Client, run_ids: Sequence[str], settings: ComparisonSettings, rules: DecisionRules = _DEFAULT_RULES
) -> tuple[Comparison, ComparisonDecision]:
    """Let the orchestrator compare stored runs, and return the figures and the decision.

    Args:
        client: Client of the orchestrator.
        run_ids: Two to 26 different runs; the first is the baseline.
        settings: Settings of the comparison.
        rules: What fails the comparison.

    Raises:
        InvalidInputError: The runs cannot be compared, or a setting is wrong; lists every problem.
        NotFoundError: A run does not exist.
        OverloadedError: Too many comparisons are waiting.
        DeadlineError: The filter exceeded the orchestrator's time limit.
        SetupError: The orchestrator has an older version (reason SERVER_TOO_OLD).
    """
    request = pb.CompareRunsRequest(
        run_ids=run_ids, settings=COMPARISON_SETTINGS.to_wire(settings), rules=DECISION_RULES.to_wire(rules)
    )
    response = await client.call(
        ComparisonServiceStub, lambda stub: stub.CompareRuns(request, timeout=_COMPARE_TIMEOUT_S)
    )
    return COMPARISON.from_wire(response.comparison), DECISION.from_wire(response.decision)


async def list_compared_cases(
    client: Client,
    run_ids: Sequence[str],
    settings: ComparisonSettings,
    query: CaseQuery,
    *,
    view: RowView = RowView.BASIC,
) -> AsyncIterator[ComparedCase]:
    """Yield the cases that the first run shares with another run, read page by page.

    Args:
        client: Client of the orchestrator.
        run_ids: As for `compare_on_server`.
        settings: As for `compare_on_server`.
        query: Filter, order and values of the cases.
        view: With FULL, the cases have the beginnings of the question and of the runs' answers.

    Raises:
        InvalidInputError: Rows of the runs changed between two pages: start again.
        InvalidInputError, NotFoundError, OverloadedError, DeadlineError, SetupError: As `compare_on_server`.
    """
    token = ""
    while True:
        page = await compared_case_page(client, run_ids, settings, query, page_token=token, view=view)
        for case in page.cases:
            yield case
        token = page.next_page_token
        if not token:
            return


async def compared_case_page(
    client: Client,
    run_ids: Sequence[str],
    settings: ComparisonSettings,
    query: CaseQuery,
    *,
    page_size: int = 0,
    page_token: str = "",
    view: RowView = RowView.BASIC,
) -> ComparedCasePage:
    """Return a page of compared cases.

    Args:
        client: Client of the orchestrator.
        run_ids: As for `compare_on_server`.
        settings: As for `compare_on_server`.
        query: Filter, order and values of the cases.
        page_size: Maximum number of cases, up to 500; 0 for 100. A page also ends before 3 MiB.
        page_token: The next_page_token of the previous page of the same query; empty for the first page.
        view: As for `list_compared_cases`.

    Raises:
        InvalidInputError: The token belongs to another query, or rows of the runs have changed.
        InvalidInputError, NotFoundError, OverloadedError, DeadlineError, SetupError: As `compare_on_server`.
    """
    request = pb.ListComparedCasesRequest(
        run_ids=run_ids,
        settings=COMPARISON_SETTINGS.to_wire(settings),
        metrics=query.metrics,
        change_by=query.change_by,
        change=change_to_wire(query.change),
        order_by=query.order.value,
        page_size=page_size,
        page_token=page_token,
        view=ROW_VIEWS.to_wire(view),
    )
    response = await client.call(
        ComparisonServiceStub, lambda stub: stub.ListComparedCases(request, timeout=PAGE_TIMEOUT_S)
    )
    cases = [COMPARED_CASE.from_wire(case) for case in response.cases]
    return ComparedCasePage(cases, response.next_page_token, response.total_count)
