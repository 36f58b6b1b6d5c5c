"""CompareRuns and ListComparedCases on the wire."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from assay.comparison.case_list import CaseQuery
from assay.comparison.compare import check_run_ids
from assay.comparison.decision import DecisionRules, decide
from assay.comparison.facts import facts_of
from assay.comparison.settings import check_settings
from assay.errors import InvalidInputError
from assay.model.views import RowView
from assay.reports.comparison.document.comparison_report import ComparisonReport
from assay.reports.comparison.words.headline import Naming, verdict_sentence
from assay.reports.comparison.words.sentences import banners, cautions, decision_sentence
from assay.reports.document.document import head_document
from assay.text.unsafe_text import json_text
from assay.v1 import comparison_pb2 as pb
from assay.wire.comparison import (
    COMPARED_CASE,
    COMPARISON,
    COMPARISON_SETTINGS,
    DECISION,
    DECISION_RULES,
    case_conditions_from_wire,
)
from assay.wire.run import ROW_VIEWS
from assay_orchestrator.queries.comparison import Comparisons

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.comparison.decision import ComparisonDecision
    from assay.comparison.model import Comparison, ComparisonSettings
    from assay.model.run import Run
    from assay.model.scope import Scope
    from assay.storage.database import Database
    from assay_orchestrator.runs.manager import RunManager
    from assay_orchestrator.store.page_tokens import PageTokens

_MAX_COMPARISON_BYTES = 4_000_000  # gRPC limits a message to 4 MiB


class ComparisonCalls:
    """The calls that compare runs.

    Args:
        database: The store.
        tokens: Creates and reads page tokens.
        manager: The runs.
    """

    def __init__(self, database: Database, tokens: PageTokens, manager: RunManager) -> None:
        self._comparisons = Comparisons(database, tokens)
        self._manager = manager

    async def compare_runs(self, scope: Scope, request: pb.CompareRunsRequest) -> pb.CompareRunsResponse:
        """Return the figures of a comparison of runs within a scope.

        Raises:
            InvalidInputError: The request is wrong, or the figures do not fit in a message.
            NotFoundError: There is no such run.
        """
        settings, rules, runs = await self._compared(scope, request, DECISION_RULES.from_wire(request.rules))
        comparison = await self._comparisons.compare(scope, runs, settings)
        decision = decide(comparison, rules)
        response = pb.CompareRunsResponse(
            comparison=COMPARISON.to_wire(comparison),
            decision=DECISION.to_wire(decision),
            text=_text(comparison, decision, runs),
        )
        if response.ByteSize() > _MAX_COMPARISON_BYTES:
            raise InvalidInputError(
                f"the comparison of {len(runs)} runs does not fit in one message: compare fewer of them at once"
            )
        return response

    async def list_compared_cases(
        self, scope: Scope, request: pb.ListComparedCasesRequest
    ) -> pb.ListComparedCasesResponse:
        """Return a page of compared cases of runs within a scope.

        Raises:
            InvalidInputError, NotFoundError: As `compare_runs`.
            InvalidInputError: The page token belongs to another query.
        """
        settings, _, runs = await self._compared(scope, request, DecisionRules())
        change, order = case_conditions_from_wire(request)
        page = await self._comparisons.list_cases(
            scope,
            runs,
            settings,
            CaseQuery(tuple(dict.fromkeys(request.metrics)), request.change_by, change, order),
            page_size=min(request.page_size or 100, 500),
            page_token=request.page_token,
            with_answers=ROW_VIEWS.from_wire(request.view) is RowView.FULL,
        )
        return pb.ListComparedCasesResponse(
            cases=map(COMPARED_CASE.to_wire, page.cases),
            next_page_token=page.next_page_token,
            total_count=page.total_count,
        )

    async def _compared(
        self, scope: Scope, request: pb.CompareRunsRequest | pb.ListComparedCasesRequest, rules: DecisionRules
    ) -> tuple[ComparisonSettings, DecisionRules, list[Run]]:
        """Return the settings, the rules and the runs of a request."""
        settings = COMPARISON_SETTINGS.from_wire(request.settings)
        settings, rules = check_settings(
            settings, rules, adjust=settings.adjust, fail_on=rules.fail_on, place=_field_of_request
        )
        check_run_ids(request.run_ids)
        return settings, rules, [await self._manager.get_summarised(scope, run_id) for run_id in request.run_ids]


def _field_of_request(name: str) -> str:
    """Return the field of a request that holds a setting or a rule."""
    if name in pb.DecisionRules.DESCRIPTOR.fields_by_name:
        return f"rules.{name}"
    return "settings.filter" if name == "where" else f"settings.{name}"


def _text(comparison: Comparison, decision: ComparisonDecision, runs: Sequence[Run]) -> pb.ComparisonText:
    """Return a comparison in sentences."""
    heads = [json.loads(json_text(head_document(run, None))) for run in runs]
    report = ComparisonReport(comparison, decision, [facts_of(head) for head in heads], heads)
    return pb.ComparisonText(
        verdict=verdict_sentence(report, Naming.NAME),
        banners=banners(report, Naming.NAME),
        cautions=cautions(report),
        decision=decision_sentence(report),
    )
