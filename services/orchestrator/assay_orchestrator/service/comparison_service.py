"""ComparisonService on the wire: comparisons of runs, and the baselines that runs are compared with."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from assay.errors import InvalidInputError, Problem, WrongStateError
from assay.model.baseline import MAX_NAME_CHARS
from assay.parsing.names import name_problem
from assay.v1 import comparison_pb2, comparison_pb2_grpc
from assay.wire.run import BASELINE
from assay_orchestrator.identity.scopes import call_scope
from assay_orchestrator.store.teams import baselines

if TYPE_CHECKING:
    from assay.model.scope import Scope
    from assay.rpc.access import Context
    from assay.storage.database import Database
    from assay_orchestrator.runs.manager import RunManager
    from assay_orchestrator.service.comparison_calls import ComparisonCalls
    from assay_orchestrator.store.page_tokens import PageTokens


_PAGE_BASELINES, _MOST_PAGE_BASELINES = 200, 1_000


class ComparisonService(comparison_pb2_grpc.ComparisonServiceServicer):
    """Compares runs, and names runs as baselines.

    Args:
        database: The store.
        tokens: Creates and reads page tokens.
        manager: The runs.
        scope: The scope of every call; None takes the scope of each caller's identity.
    """

    def __init__(self, database: Database, tokens: PageTokens, manager: RunManager, scope: Scope | None) -> None:
        self._database = database
        self._tokens = tokens
        self._manager = manager
        self._fixed_scope = scope

    async def CompareRuns(
        self, request: comparison_pb2.CompareRunsRequest, context: Context
    ) -> comparison_pb2.CompareRunsResponse:
        """Return the figures of a comparison."""
        return await self._comparisons.compare_runs(self._scope(), request)

    async def ListComparedCases(
        self, request: comparison_pb2.ListComparedCasesRequest, context: Context
    ) -> comparison_pb2.ListComparedCasesResponse:
        """Return a page of compared cases."""
        return await self._comparisons.list_compared_cases(self._scope(), request)

    async def SetBaseline(
        self, request: comparison_pb2.SetBaselineRequest, context: Context
    ) -> comparison_pb2.SetBaselineResponse:
        """Point a baseline name at a run."""
        scope = self._scope()
        if problem := name_problem(request.name, MAX_NAME_CHARS):
            raise InvalidInputError([Problem(problem, "name")])
        run = await self._manager.get(scope, request.run_id)
        if not run.finished or run.summary is None:
            raise WrongStateError(
                f"run {run.run_id} is {run.state.value}: a baseline is a run that has ended, with rows",
                reason="RUN_NOT_ENDED",
            )
        baseline = await self._database.write(lambda c: baselines.set_baseline(c, scope, request.name, run.run_id))
        return comparison_pb2.SetBaselineResponse(baseline=BASELINE.to_wire(baseline))

    async def ListBaselines(
        self, request: comparison_pb2.ListBaselinesRequest, context: Context
    ) -> comparison_pb2.ListBaselinesResponse:
        """Return a page of the baselines."""
        scope, query = self._scope(), ("ListBaselines",)
        position = await self._tokens.read(scope, query, request.page_token, (str,))
        after = str(position[0]) if position is not None else ""
        count = min(request.page_size or _PAGE_BASELINES, _MOST_PAGE_BASELINES)
        stored = await self._database.read(lambda c: baselines.list_baselines(c, scope, after, count + 1))
        token = await self._tokens.make(scope, query, (stored[count - 1].name,)) if len(stored) > count else ""
        return comparison_pb2.ListBaselinesResponse(
            baselines=map(BASELINE.to_wire, stored[:count]), next_page_token=token
        )

    async def DeleteBaseline(
        self, request: comparison_pb2.DeleteBaselineRequest, context: Context
    ) -> comparison_pb2.DeleteBaselineResponse:
        """Delete a baseline name."""
        scope = self._scope()
        await self._database.write(lambda c: baselines.delete_baseline(c, scope, request.name))
        return comparison_pb2.DeleteBaselineResponse()

    def _scope(self) -> Scope:
        return call_scope(self._fixed_scope)

    @functools.cached_property
    def _comparisons(self) -> ComparisonCalls:
        # Imported with the first comparison: runs do not need the comparison modules.
        from assay_orchestrator.service.comparison_calls import ComparisonCalls

        return ComparisonCalls(self._database, self._tokens, self._manager)
