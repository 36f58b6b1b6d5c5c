"""Runs compared over the wire, on both databases: the figures, the compared cases, and what is refused."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.support.services.ended_runs import await_end

from assay.client.comparison.calls import compare_on_server, compared_case_page, list_compared_cases
from assay.client.comparison.join import compare_reports, reports_of
from assay.comparison.case_list import CaseChange, CaseOrder, CaseQuery, ComparedCase
from assay.comparison.decision import DecisionOutcome, DecisionRules, decide
from assay.comparison.model import Adjustment, Change, Comparison, ComparisonSettings, FailOn
from assay.comparison.settings import check_settings
from assay.errors import InvalidInputError, NotFoundError, OverloadedError
from assay.model.answers.agent_response import AgentError, AgentErrorKind, AgentResponse, AgentStatus, Usage
from assay.model.case import Case, Turn
from assay.model.run import RunCounts
from assay.model.run_spec import MetricSpec
from assay.model.scope import LOCAL
from assay.model.views import RowView
from assay.reports.document.prepared_rows import report_of_run
from assay.reports.formats.json_report import write_document
from assay.rpc.status import translated
from assay.v1 import comparison_figures_pb2
from assay.v1 import comparison_pb2 as pb
from assay.v1.comparison_pb2_grpc import ComparisonServiceStub
from assay.wire.comparison import _values_from_wire, _values_to_wire
from assay_orchestrator.queries.comparison import Comparisons, check_size
from assay_orchestrator.store.page_tokens import PageTokens

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from assay.client.client import Client
    from assay.model.run import RunSpec
    from assay.storage.database import Database

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSpec]

COUNT = 24
HOSTILE = "<b>'\"; DROP TABLE runs --\u202e"
ERROR = AgentResponse(AgentStatus.ERROR, error=AgentError(AgentErrorKind.RAISED, "broke"))


def cases(right: Callable[[int], bool], *, shift: int = 0) -> list[Case]:
    """Return cases whose recorded answers are right where it is said; one has an error, one no reference."""
    found = []
    for index in range(shift, COUNT + shift):
        usage = Usage(input_tokens=10 + index, output_tokens=3, cost_usd=0.001 * index)
        answer = AgentResponse(text="yes" if right(index) else HOSTILE, latency_ms=10.0 + index % 5, usage=usage)
        question = f"question {index}" if index != 7 else f"question {index} of {shift}"
        turns = [Turn(question, references=() if index == 5 else ("yes",))]
        if index == 6:
            turns.append(Turn("and then", references=("yes",)))
        recorded = ERROR if index == 3 + shift else answer
        category = "ab"[index % 2] if index else ""
        found.append(
            Case(f"c{index}", tuple(turns), recordings=((recorded,),), category=category, tags=(f"doc:{index // 3}",))
        )
    return found


async def finished(client: Client, settings: RunSpec, over: list[Case]) -> str:
    dataset = await client.upload_dataset(over, name="d")
    run_id = (await client.create_run(settings, dataset.dataset_id)).run_id
    await await_end(client, run_id)
    return run_id


async def by_files(client: Client, run_ids: list[str], settings: ComparisonSettings, folder: Path) -> Comparison:
    """Return the comparison of the results.json files of some runs."""
    paths = [folder / f"{run_id}.json" for run_id in run_ids]
    for run_id, path in zip(run_ids, paths, strict=True):
        run = await client.get_run(run_id)
        async with report_of_run(run, None, client.list_rows(run_id), folder) as report:
            with path.open("w", encoding="utf-8") as file:
                write_document(report, file)
    async with reports_of(paths, None) as reports:
        return compare_reports(reports, settings)


async def listed(
    client: Client, run_ids: list[str], query: CaseQuery, view: RowView = RowView.BASIC
) -> list[ComparedCase]:
    return [case async for case in list_compared_cases(client, run_ids, ComparisonSettings(), query, view=view)]


async def test_the_decision_and_the_sentences_come_with_the_figures(serve: Serve, settings_of: SettingsOf) -> None:
    """A client in another language shows verdict, units and exit status without computing anything."""
    async with serve() as client:
        right = await finished(client, settings_of(), cases(lambda index: True))
        ids = [right, await finished(client, settings_of(), cases(lambda index: index % 2 > 0))]
        outcomes = []
        for rules in (DecisionRules(), DecisionRules(fail_on=FailOn.NEVER), DecisionRules(max_drop=0.9)):
            comparison, decision = await compare_on_server(client, ids, ComparisonSettings(), rules)
            assert decision == decide(comparison, rules)
            outcomes.append((decision.outcome, decision.exit_status, [drop.run_id for drop in decision.drops]))
        assert outcomes == [
            (DecisionOutcome.REGRESSION, 1, []),
            (DecisionOutcome.REGRESSION, 0, []),
            (DecisionOutcome.REGRESSION, 1, ids[1:]),
        ]
        request = pb.CompareRunsRequest(run_ids=ids)
        response = await client.call(ComparisonServiceStub, lambda stub: stub.CompareRuns(request))
    assert response.decision.outcome == pb.DECISION_OUTCOME_REGRESSION
    assert f" is worse than {comparison.variants[0].name} on exact_match: " in response.text.verdict
    assert response.text.decision.startswith("decision: regression (exit status 1): exact_match of ")
    units = {metric.metric: (metric.unit, metric.is_implied) for metric in response.comparison.pairs[0].metrics}
    assert (units["exact_match"], units["cost"]) == (("%", False), ("USD", True))


async def test_the_figures_are_those_of_the_reports_and_cases_are_listed(
    serve: Serve, settings_of: SettingsOf, tmp_path: Path
) -> None:
    """The orchestrator computes from its rows, bit by bit, what the runs' results.json files give.

    Pages lose and repeat no case; what is worse, better and the same are all cases that are compared.
    """
    async with serve() as client:
        same = cases(lambda index: index % 3 > 0)
        ids = [
            await finished(client, settings_of(), same),
            await finished(client, settings_of(concurrency=2), same),
            await finished(client, settings_of(), cases(lambda index: index % 4 == 0, shift=2)),
        ]
        for compared, settings in [
            (ids, ComparisonSettings(adjust=Adjustment.BH, seed=7, margin=0.1)),
            (ids, ComparisonSettings(all_pairs=True)),
            (ids[:2], ComparisonSettings()),
            ([ids[0], ids[2]], ComparisonSettings(primary="pass_rate", where="category:a exact_match>=0")),
            ([ids[2], ids[0]], ComparisonSettings(primary="latency", cluster="tag:doc", alpha=0.1)),
        ]:
            found, _ = await compare_on_server(client, compared, settings)
            checked, _ = check_settings(settings, DecisionRules(), adjust=settings.adjust, fail_on=FailOn.REGRESSION)
            assert found == await by_files(client, compared, checked, tmp_path)
        assert [change.path for change in found.changes] == []
        three, _ = await compare_on_server(client, ids, ComparisonSettings())
        assert three.pair("A", "C").changed_case_count == 1
        assert [one.reason for one in three.pair("B", "C").metrics] == ["not_adjusted"] * 5
        errors = [three.pair("A", "C").metric(name).errors for name in ("latency", "exact_match")]
        assert [errors[0] and (errors[0].a_only_case_count, errors[0].b_only_case_count), errors[1]] == [(1, 1), None]
        assert {one.path for one in three.changes} == {"agent.concurrency"}

        pair = [ids[0], ids[2]]
        every = await listed(client, pair, CaseQuery())
        assert [case.case_id for case in every] == [f"c{index}" for index in range(2, COUNT) if index != 7]
        parts = {
            change: [case.case_id for case in await listed(client, pair, CaseQuery(change=change))]
            for change in CaseChange
        }
        assert sorted(case_id for part in parts.values() for case_id in part) == sorted(case.case_id for case in every)
        comparison, _ = await compare_on_server(client, pair, ComparisonSettings())
        flipped = comparison.pairs[0].flipped_case_count
        assert len(parts[CaseChange.WORSE]) + len(parts[CaseChange.BETTER]) == flipped > 0

        worst = CaseQuery(("latency", "pass_rate"), "exact_match", order=CaseOrder.LARGEST_LOSS)
        first = await compared_case_page(client, pair, ComparisonSettings(), worst, page_size=5, view=RowView.FULL)
        rest = await compared_case_page(
            client, pair, ComparisonSettings(), worst, page_size=500, page_token=first.next_page_token
        )
        assert (len(first.cases), first.total_count, rest.next_page_token) == (5, len(every), "")
        pages = [*first.cases, *rest.cases]
        assert sorted(case.case_id for case in pages) == sorted(case.case_id for case in every)
        order = [CaseChange.WORSE, CaseChange.SAME, CaseChange.BETTER]
        changes = [order.index(case.variants[1].change or CaseChange.SAME) for case in pages]
        assert changes == sorted(changes)
        least = await listed(client, pair, replace(worst, order=CaseOrder.SMALLEST_LOSS))
        assert [order.index(case.variants[1].change or CaseChange.SAME) for case in least] == changes[::-1]
        backwards = await listed(client, pair, CaseQuery(order=CaseOrder.DATASET_REVERSED))
        assert [case.case_id for case in backwards] == [case.case_id for case in every][::-1]
        stub = ComparisonServiceStub(client._channel)
        request = pb.ListComparedCasesRequest(run_ids=pair, order_by="-los")
        with (
            pytest.raises(InvalidInputError, match="order_by: unknown order '-los'; did you mean '-loss'"),
            translated(),
        ):
            await stub.ListComparedCases(request)
        one = first.cases[0]
        assert [variant.answer for variant in one.variants] == ["yes", HOSTILE]
        assert one.question == f"question {one.case_id[1:]}"
        assert [value.metric for value in one.variants[0].values] == ["latency", "pass_rate"]
        assert [variant.values[1].difference for variant in one.variants] == [None, -1.0]
        assert rest.cases[0].question is None

        with pytest.raises(InvalidInputError, match="page_token: does not belong to this query"):
            await compared_case_page(client, pair, ComparisonSettings(), CaseQuery(), page_token=first.next_page_token)
        for wrong, problem in [
            (ids[:1], "at least two runs"),
            ([ids[0], ids[0]], "is given 2 times"),
        ]:
            with pytest.raises(InvalidInputError, match=problem):
                await compare_on_server(client, wrong, ComparisonSettings())
        with pytest.raises(NotFoundError, match="no-such-run"):
            await compare_on_server(client, [ids[0], "no-such-run"], ComparisonSettings())
        with pytest.raises(InvalidInputError) as caught:
            await compare_on_server(
                client, ids, ComparisonSettings(margin=-1, alpha=0.7, power=2, cluster="x", where="y:z")
            )
        fields = {problem.field.split(":")[0] for problem in caught.value.problems}
        assert {"settings.margin", "settings.alpha", "settings.power", "settings.cluster", "settings.filter"} == fields
        with pytest.raises(InvalidInputError) as caught:
            await compare_on_server(client, pair, ComparisonSettings(), DecisionRules(max_drop_test=True))
        assert [problem.field for problem in caught.value.problems] == ["rules.max_drop_test"]
        with pytest.raises(InvalidInputError) as caught:
            await listed(client, pair, CaseQuery(("nope",), "nor this"))
        assert [problem.field for problem in caught.value.problems] == ["change_by", "metrics[0]"]
        with pytest.raises(InvalidInputError, match="no_such"):
            await compare_on_server(client, pair, ComparisonSettings(where="no_such>1"))


async def test_runs_without_rows_or_with_too_many_are_refused(serve: Serve, settings_of: SettingsOf) -> None:
    """Of no rows, the sentence is that of comparing files; of too many, it names both numbers."""
    async with serve() as client:
        done = await finished(client, settings_of(), cases(bool))
        hosted = settings_of("python", "agent:answer")
        dataset = await client.upload_dataset(cases(bool), name="d")
        waiting = (await client.create_run(hosted, dataset.dataset_id)).run_id
        with pytest.raises(InvalidInputError, match=f"run {waiting} has no rows"):
            await compare_on_server(client, [done, waiting], ComparisonSettings())
        large = replace(await client.get_run(done), counts=RunCounts(finished_count=500_001))
        with pytest.raises(InvalidInputError, match="1,000,002 rows, more than the 1,000,000 that are compared"):
            check_size([large, large])
        run = await client.get_run(done)
        wide = replace(run, spec=replace(run.spec, metrics=[MetricSpec(f"m{n}", {}) for n in range(60)]))
        with pytest.raises(InvalidInputError, match="26 runs with 60 metrics have 19,500 pairs of figures, more than"):
            check_size([wide] * 26)


async def test_comparisons_of_a_team_wait_for_each_other_and_few_wait(open_store: Callable[[], Database]) -> None:
    """Nine are taken, one after the other; the next is refused, and another team is not."""
    database = open_store()
    try:
        comparisons = Comparisons(database, PageTokens(database))
        go, begun, most = asyncio.Event(), [0], [0]

        async def work() -> None:
            begun[0] += 1
            most[0] = max(most[0], begun[0])
            await go.wait()
            begun[0] -= 1

        async with asyncio.TaskGroup() as tasks:
            taken = [tasks.create_task(comparisons._alone(LOCAL.team, work)) for _ in range(9)]
            await asyncio.sleep(0)
            taken[4].cancel()
            await asyncio.sleep(0)
            tasks.create_task(comparisons._alone(LOCAL.team, work))
            await asyncio.sleep(0)
            with pytest.raises(OverloadedError, match="try again"):
                await comparisons._alone(LOCAL.team, work)
            go.set()
            await comparisons._alone("another", work)
        assert (most[0], comparisons._queues) == (1, {})
    finally:
        database.close()


def test_json_values_of_changes_travel() -> None:
    """What a setting is, null, a list or hostile text, is the same on the other side."""
    values = (None, ["a", {"b": 1.5}], HOSTILE, True)
    message = comparison_figures_pb2.SettingChange(path="p", **_values_to_wire(values))
    assert Change("p", _values_from_wire(message)).values == values
    assert json.loads(message.values_json[0]) is None
