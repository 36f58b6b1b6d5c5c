"""Two variants stop early: decided from stored rows under the runs' locks; on SQLite and on PostgreSQL."""

from __future__ import annotations

import asyncio
import dataclasses
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import pytest

from assay.agent_host.caller import AgentCaller
from assay.agent_host.user_code import UserCode
from assay.client.comparison.calls import compare_on_server
from assay.client.encoded_cases import EncodedCases
from assay.client.variants import check_variants, drive_variants, plan_stopping, resume_variants, start_variants
from assay.comparison.model import ComparisonSettings, ComparisonVerdict
from assay.comparison.stopping import first_stop, shuffled
from assay.comparison.stopping_settings import plan_of
from assay.datasets import records_dataset
from assay.errors import InvalidInputError, SpecError
from assay.model.run import RunState
from assay.reports.document.prepared_rows import report_of_run
from assay.specs.model import Spec

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from assay.client.client import Client
    from assay.comparison.stopping import Stop
    from assay.model.answers.agent_response import AgentRequest
    from assay.model.run import Run

CASES = 300
RECORDS = [{"id": f"c{number}", "input": f"q{number}", "expected_output": f"a{number}"} for number in range(CASES)]
NAMES = ("old", "new")


class Agent:
    """Answers rightly a share of the questions, and counts what it is asked.

    Args:
        tenths: How many tenths of the questions it knows; which ones depends on the question alone.
    """

    def __init__(self, tenths: int) -> None:
        self._tenths = tenths
        self.asked: list[str] = []

    async def __call__(self, request: AgentRequest) -> str:
        """Answer after others had their turn."""
        self.asked.append(request.case_id)
        await asyncio.sleep(0)
        return f"a{request.input[1:]}" if self.knows(request.input) else "wrong"

    def knows(self, question: str) -> bool:
        """Whether it answers a question rightly."""
        return blake2b(question.encode()).digest()[0] % 10 < self._tenths


class Pair:
    """Two variants of one comparison, and their agents."""

    def __init__(self, made: Callable[..., Any], old: int, new: int, rule: str = "always-valid") -> None:
        self.specs = [
            Spec(dataclasses.replace(made("python", "m:f", concurrency=8), labels={"variant": name})) for name in NAMES
        ]
        self.agents = [Agent(old), Agent(new)]
        self.dataset = records_dataset(RECORDS)
        self.info = check_variants(self.specs, self.dataset)
        self.stopping = plan_stopping(rule, self.specs, self.info, ComparisonSettings(seed=7))

    async def start(self, client: Client, group: str = "group-1", *, stops: bool = True) -> list[Run]:
        """Create both runs."""
        stopping = self.stopping if stops else None
        with EncodedCases() as cases:
            self.dataset.check(cases.add)
            return await start_variants(client, self.specs, cases, self.info, group, stopping)

    async def drive(self, client: Client, runs: Sequence[Run]) -> list[Run]:
        """Answer until both have ended."""
        async with asyncio.timeout(120):
            return await drive_variants(
                client, runs, [UserCode(AgentCaller(agent)) for agent in self.agents], hidden=True
            )

    def expected(self) -> Stop | None:
        """Return the decision from the answers of both agents to all cases."""
        order = shuffled([record["id"] for record in RECORDS], self.stopping.seed)
        pairs = [tuple(float(agent.knows(f"q{place}")) for agent in self.agents) for place in order]
        return first_stop(plan_of(self.stopping, 1), [(a, b) for a, b in pairs])


@pytest.mark.parametrize("rule", ["always-valid", "five-looks"])
async def test_the_decision_is_that_of_the_stored_rows(
    serve: Callable[..., Any], settings_of: Callable[..., Any], tmp_path: Path, rule: str
) -> None:
    """Both runs end with the rule's decision on their rows in order, ask few cases more, and say so.

    Rows are stored in the order of asking, and reported in that of the dataset.
    """
    pair = Pair(settings_of, 4, 9, rule)
    expected = pair.expected()
    assert expected is not None
    async with serve() as client:
        ended = await pair.drive(client, await pair.start(client))
        compared, _ = await compare_on_server(client, [run.run_id for run in ended], ComparisonSettings())
        again = await resume_variants(client, pair.specs, "group-1")
        rows = [row async for row in client.list_rows(ended[0].run_id)]
        listed = client.list_rows(ended[0].run_id)
        async with report_of_run(ended[0], None, listed, tmp_path) as report:
            reported = [row["case_id"] for row in report.rows()]
            notes = report.head["summary"]["notes"]
    for run, agent in zip(ended, pair.agents, strict=True):
        assert run.state is RunState.COMPLETED
        assert run.summary is not None
        found = run.summary.stopped_early
        assert found is not None
        decided = (expected.cases, expected.n_pairs, expected.look, expected.z, expected.p)
        assert (found.case_count, found.pair_count, found.look, found.z, found.p) == decided
        assert (found.winner, found.metric, found.planned_count) == ("new", "exact_match", CASES)
        assert (
            found.asked_count
            == len(agent.asked)
            == len(set(agent.asked))
            == run.counts.total_count
            == run.counts.finished_count
        )
        assert expected.cases <= found.asked_count <= expected.cases + 40, "a few shards beyond the decision"
        assert found.saved_call_count == CASES - found.asked_count
        assert "stopped early" in run.state_message
    assert [run.state for run in again] == [RunState.COMPLETED] * 2
    assert compared.stopping is not None
    assert compared.stopping.verdict is ComparisonVerdict.B_BETTER
    assert compared.pairs[0].metric("exact_match").verdict is ComparisonVerdict.B_BETTER
    order = shuffled([record["id"] for record in RECORDS], 7)
    assert [row.case_id for row in rows[:5]] == [RECORDS[place]["id"] for place in order[:5]]
    assert [row.place for row in rows[:5]] == order[:5]
    assert reported == [record["id"] for record in RECORDS if record["id"] in {row.case_id for row in rows}]
    assert notes[0].startswith(f"stopped early by {rule}: new is better on exact_match")


async def test_an_equal_pair_asks_all(serve: Callable[..., Any], settings_of: Callable[..., Any]) -> None:
    """Where both answer alike, no rule stops: every case is asked, and the comparison is inconclusive by the rule."""
    pair = Pair(settings_of, 6, 6)
    async with serve() as client:
        ended = await pair.drive(client, await pair.start(client))
        compared, _ = await compare_on_server(client, [run.run_id for run in ended], ComparisonSettings())
    assert [(run.counts.finished_count, run.counts.total_count) for run in ended] == [(CASES, CASES)] * 2
    assert [run.summary.stopped_early for run in ended if run.summary is not None] == [None, None]
    assert compared.stopping is not None
    assert compared.stopping.verdict is ComparisonVerdict.INCONCLUSIVE
    assert compared.pairs[0].metric("exact_match").verdict is ComparisonVerdict.INCONCLUSIVE


async def test_refusals_at_creation(serve: Callable[..., Any], settings_of: Callable[..., Any]) -> None:
    """All problems of the settings come at once; a run joins its group only with the group's rule and dataset."""
    pair = Pair(settings_of, 4, 9)
    settings = [
        dataclasses.replace(spec.settings, group_id="g", stopping=pair.stopping, labels={"variant": name})
        for spec, name in zip(pair.specs, NAMES, strict=True)
    ]
    wrong = dataclasses.replace(pair.stopping, variants=("old",), alpha=0.7, metric="exact", cases=3, seed=2**53)
    async with serve() as client:
        dataset = await client.upload_dataset(pair.dataset, name="d")

        async def refused(**changes: Any) -> str:
            with pytest.raises(SpecError) as refusal:
                await client.create_run(dataclasses.replace(settings[0], **changes), dataset.dataset_id)
            return str(refusal.value)

        said = await refused(stopping=wrong, group_id="")
        for problem in (
            "needs a group",
            "two names",
            "0.7",
            "did you mean 'exact_match'",
            f"seed: must be at most {2**53 - 1}",
        ):
            assert problem in said
        assert "stopping.cases: must be 300" in await refused(stopping=dataclasses.replace(pair.stopping, cases=299))
        unbounded = dataclasses.replace(pair.stopping, low=None, high=None)
        assert "must be those of exact_match" in await refused(stopping=unbounded)
        first = await client.create_run(settings[0], dataset.dataset_id)
        assert f"differs from that of run {first.run_id}" in await refused(stopping=None)
        other = dataclasses.replace(pair.stopping, seed=8)
        assert "differs" in await refused(stopping=other, labels={"variant": "new"})
        assert f"labels.variant: is also used by run {first.run_id}" in await refused()
        fewer = await client.upload_dataset(records_dataset([*RECORDS[1:], {**RECORDS[0], "input": "other"}]), name="d")
        with pytest.raises(SpecError, match="dataset_id: differs from the dataset of run"):
            await client.create_run(settings[1], fewer.dataset_id)
        second = await client.create_run(settings[1], dataset.dataset_id)
        assert second.spec.stopping == pair.stopping
        for run in (first, second):
            await client.cancel_run(run.run_id)


def test_what_a_client_refuses(settings_of: Callable[..., Any]) -> None:
    """A comparison that cannot hold its level is refused before anything is uploaded; every problem at once."""
    pair = Pair(settings_of, 4, 9)
    settings = ComparisonSettings(primary="latency", cluster="category", where="failed", alpha=0.01)
    with pytest.raises(InvalidInputError) as refusal:
        plan_stopping("always-valid", [*pair.specs, pair.specs[0]], pair.info, settings)
    said = str(refusal.value)
    for problem in ("two variants, not 3", "--cluster", "--where", "a metric with bounds"):
        assert problem in said
    with pytest.raises(InvalidInputError, match=r"made for --alpha 0\.05, not 0\.01"):
        plan_stopping("five-looks", pair.specs, pair.info, ComparisonSettings(alpha=0.01))
    few = dataclasses.replace(pair.info, case_count=19)
    with pytest.raises(InvalidInputError, match="needs at least 20 cases, not 19"):
        plan_stopping("five-looks", pair.specs, few, ComparisonSettings())
    with pytest.raises(InvalidInputError, match="unknown rule 'often'"):
        plan_stopping("often", pair.specs, pair.info, ComparisonSettings())


async def test_a_rule_is_not_added_later(serve: Callable[..., Any], settings_of: Callable[..., Any]) -> None:
    """A group that was started without a rule, or with another one, is not resumed with it."""
    pair = Pair(settings_of, 4, 9)
    async with serve() as client:
        runs = await pair.start(client)
        with pytest.raises(SpecError, match="was started with --stop-early always-valid"):
            await resume_variants(client, pair.specs, "group-1", "five-looks")
        assert len(await resume_variants(client, pair.specs, "group-1", "always-valid")) == 2
        for run in runs:
            await client.cancel_run(run.run_id)
        plain = await pair.start(client, "group-2", stops=False)
        with pytest.raises(SpecError, match="was started without --stop-early"):
            await resume_variants(client, pair.specs, "group-2", "five-looks")
        for run in plain:
            await client.cancel_run(run.run_id)


async def test_retried_rows_move_no_stop(serve: Callable[..., Any], settings_of: Callable[..., Any]) -> None:
    """Rows with errors of a run that has stopped are asked again, and no others; the stop stays as it was."""
    pair = Pair(settings_of, 4, 9)
    is_broken = True

    async def answer(request: AgentRequest) -> str:
        said = await pair.agents[1](request)
        if is_broken and request.case_id.endswith("7"):
            raise RuntimeError("out of order")
        return said

    codes = [UserCode(AgentCaller(pair.agents[0])), UserCode(AgentCaller(answer))]
    async with serve() as client, asyncio.timeout(120):
        ended = await drive_variants(client, await pair.start(client), codes, hidden=True)
        failed = ended[1].counts.agent_error_count
        assert failed > 0
        is_broken, before = False, len(pair.agents[1].asked)
        resumed = await client.retry_run(ended[1].run_id)
        (again,) = await drive_variants(client, [resumed], codes[1:], hidden=True)
    assert len(pair.agents[1].asked) == before + failed
    assert (again.state, again.counts.agent_error_count) == (RunState.COMPLETED, 0)
    assert again.counts.finished_count == again.counts.total_count == ended[1].counts.total_count
    stopped = [run.summary.stopped_early for run in (ended[1], again) if run.summary is not None]
    assert stopped[0] is not None
    assert stopped[1] is not None
    assert (stopped[1].case_count, stopped[1].p) == (stopped[0].case_count, stopped[0].p)
