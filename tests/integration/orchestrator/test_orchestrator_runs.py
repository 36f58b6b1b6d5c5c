"""Runs through the real wire and a real database."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from tests.support.processes.waiting import until
from tests.support.services.ended_runs import await_end

from assay.agent_host.caller import AgentCaller
from assay.errors import ConflictError, DatasetError, InvalidInputError, NotFoundError, SpecError, WrongStateError
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import GateOutcome, MetricSpec, RowResult, Run, RunState, StateChanged, WeightedSummary
from assay.model.views import RowView
from assay.rpc.status import translated
from assay.v1 import run_pb2 as pb
from assay.v1 import run_pb2_grpc
from assay.wire.run import SETTINGS
from assay_orchestrator.engine.worker import ShardWorker
from assay_orchestrator.runs.manager import RunManager
from assay_orchestrator.store import schema

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.answers.agent_response import AgentRequest
    from assay.model.run import RunSpec
    from assay_orchestrator.pipeline.run_context import RunContext

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSpec]


def recorded(count: int) -> list[Case]:
    """Return cases with recorded answers, every fifth of them wrong."""
    return [
        Case(
            f"c{i}",
            (Turn(f"q{i}", references=(f"a{i}",)),),
            recordings=((AgentResponse(text=f"a{i}" if i % 5 else "wrong", latency_ms=float(i)),),),
        )
        for i in range(count)
    ]


async def test_a_run_is_scored_stored_and_summarised(serve: Serve, settings_of: SettingsOf) -> None:
    """A run over recorded answers ends with a summary, gates and one row per case in dataset order."""
    async with serve() as client:
        dataset = await client.upload_dataset(recorded(25), name="d")
        run = await await_end(client, (await client.create_run(settings_of(), dataset.dataset_id)).run_id)
        rows = [row async for row in client.list_rows(run.run_id)]
    assert run.state is RunState.COMPLETED
    assert run.summary is not None
    assert (run.summary.passed_count, run.summary.decided_count, run.summary.pass_rate) == (20, 25, 0.8)
    assert [gate.outcome for gate in run.summary.gates] == [GateOutcome.PASS]
    assert run.summary.failed_criteria == ("exact_match",)
    assert [row.case_id for row in rows] == [f"c{i}" for i in range(25)]
    assert rows[5].response is not None
    assert (rows[5].passed, rows[5].response.text, rows[5].references) == (False, "wrong", ("a5",))


async def test_events_are_gap_free_and_a_watch_resumes_after_any_of_them(serve: Serve, settings_of: SettingsOf) -> None:
    """Sequence numbers run 1, 2, 3, ...; watching after number n gives exactly the events after n."""
    async with serve() as client:
        dataset = await client.upload_dataset(recorded(40), name="d")
        run = await client.create_run(settings_of(), dataset.dataset_id)
        events = [event async for event in client.watch_run(run.run_id) if not isinstance(event, Run)]
        assert [event.sequence for event in events] == list(range(1, 43))
        assert isinstance(events[0], StateChanged)
        assert isinstance(events[-1], StateChanged)
        assert events[-1].state is RunState.COMPLETED
        for after in (1, 17, 41):
            rest = [
                event
                async for event in client.watch_run(run.run_id, after_sequence=after)
                if not isinstance(event, Run)
            ]
            assert [event.sequence for event in rest] == list(range(after + 1, 43))


async def test_events_carry_answers_only_where_asked_for(serve: Serve, settings_of: SettingsOf) -> None:
    """An event holds the answer and its case with the view FULL, ids and scores without."""
    async with serve() as client:
        dataset = await client.upload_dataset(recorded(3), name="d")
        run = await await_end(client, (await client.create_run(settings_of(), dataset.dataset_id)).run_id)
        for wanted in (True, False):
            rows = [
                event
                async for event in client.watch_run(run.run_id, view=RowView.FULL if wanted else RowView.BASIC)
                if isinstance(event, RowResult)
            ]
            assert [row.response is not None for row in rows] == [wanted] * 3
            assert all(bool(row.input) is wanted and len(row.scores) == 2 for row in rows)


async def test_large_answers_travel_in_several_messages(serve: Serve, settings_of: SettingsOf) -> None:
    """Events and rows with large answers are cut into messages that fit."""
    cases = [Case(f"c{i}", (Turn("q"),), recordings=((AgentResponse(text="x" * 900_000),),)) for i in range(8)]
    async with serve() as client:
        dataset = await client.upload_dataset(cases, name="d")
        run = await await_end(client, (await client.create_run(settings_of(), dataset.dataset_id)).run_id)
        events = [event async for event in client.watch_run(run.run_id, view=RowView.FULL)]
        rows = [row async for row in client.list_rows(run.run_id)]
    assert sum(isinstance(event, RowResult) for event in events) == 8
    assert [row.response is not None and len(row.response.text) for row in rows] == [900_000] * 8


async def test_the_same_request_id_gives_the_same_run(serve: Serve, settings_of: SettingsOf) -> None:
    """CreateRun is idempotent by request id, whatever the order of parameters; other content is refused."""
    async with serve() as client:
        dataset = await client.upload_dataset(recorded(3), name="d")
        first, second = await asyncio.gather(
            *(client.create_run(settings_of(), dataset.dataset_id, request_id="r1") for _ in range(2))
        )
        assert first.run_id == second.run_id
        same = settings_of()
        exact, *others = same.metrics
        reordered = dataclasses.replace(exact, parameters=dict(reversed(list(exact.parameters.items()))))
        same = dataclasses.replace(same, metrics=(reordered, *others))
        assert (await client.create_run(same, dataset.dataset_id, request_id="r1")).run_id == first.run_id
        with pytest.raises(ConflictError, match="another spec") as refused:
            await client.create_run(settings_of(retries=3), dataset.dataset_id, request_id="r1")
        assert first.run_id not in refused.value.message, "the request id may be that of another client"
        for bad in ("x" * 101, "a\0b", "a\nb"):
            with pytest.raises(SpecError, match="request_id"):
                await client.create_run(settings_of(), dataset.dataset_id, request_id=bad)
        assert len(await client.list_runs()) == 1


async def test_the_same_cases_are_stored_once(serve: Serve) -> None:
    """Uploading equal cases again gives the same dataset id; other cases another."""
    async with serve() as client:
        first = await client.upload_dataset(recorded(5), name="d")
        again = await client.upload_dataset(recorded(5), name="d")
        other = await client.upload_dataset(recorded(6), name="d")
        named = await client.upload_dataset(recorded(5), name="another name")
    assert first.dataset_id == again.dataset_id == named.dataset_id
    assert other.dataset_id != first.dataset_id
    assert (first.name, again.name, named.name) == ("d", "d", "another name")


async def test_a_broken_upload_is_refused(serve: Serve) -> None:
    """Equal case ids, absurd weights, huge cases and empty datasets are refused with a sentence."""
    case = recorded(1)[0]
    async with serve() as client:
        with pytest.raises(DatasetError, match="c0"):
            await client.upload_dataset([case, case], name="d")
        with pytest.raises(DatasetError, match="from 0 to 1e"):
            await client.upload_dataset([Case("x", (Turn("a"),), weight=-1.0)], name="d")
        with pytest.raises(DatasetError, match="larger than 1 MiB"):
            await client.upload_dataset([Case("x", (Turn("a" * 1_100_000),))], name="d")
        with pytest.raises(DatasetError, match="at least one case"):
            await client.upload_dataset([], name="d")


async def test_every_problem_of_a_run_is_reported_at_once(serve: Serve, settings_of: SettingsOf) -> None:
    """The orchestrator checks what a client sends by itself and names every problem."""
    settings = settings_of(retries=11)
    broken = type(settings)(
        name="", agent=settings.agent, metrics=(MetricSpec("exact_mach", {}),), gates=("nope >= 1",)
    )
    async with serve() as client:
        with pytest.raises(SpecError) as caught:
            await client.create_run(broken, "none")
    text = str(caught.value)
    for word in ("name", "retries", "did you mean 'exact_match'", "gates[0]"):
        assert word in text


async def test_unknown_things_are_named(serve: Serve, settings_of: SettingsOf) -> None:
    """An unknown run or dataset is NOT_FOUND; a foreign page token is refused."""
    async with serve() as client:
        with pytest.raises(NotFoundError, match="no run"):
            await client.get_run("nope")
        with pytest.raises(NotFoundError, match="upload it first"):
            await client.create_run(settings_of(), "nope")
        stub = run_pb2_grpc.RunServiceStub(client._channel)
        with pytest.raises(InvalidInputError, match="page_token: does not belong to this query"), translated():
            await stub.ListRuns(pb.ListRunsRequest(page_token="bm9wZQ=="))


async def test_every_problem_of_a_spec_is_named_by_its_path_in_the_request(
    serve: Serve, settings_of: SettingsOf
) -> None:
    """Texts that cannot be read do not hide other problems; the client's own paths begin at its settings."""
    async with serve() as client:
        dataset = await client.upload_dataset(recorded(1), name="d")
        spec = SETTINGS.to_wire(settings_of())
        spec.repeats, spec.metrics[0].parameters_json, spec.agent.options_json = 1000, "{", "[]"
        spec.approvals.add(tool="t")
        request = pb.CreateRunRequest(spec=spec, dataset_id=dataset.dataset_id, request_id="r")
        with pytest.raises(SpecError) as refusal, translated():
            await run_pb2_grpc.RunServiceStub(client._channel).CreateRun(request)
        assert {problem.field for problem in refusal.value.problems} == {
            "spec.agent.options_json",
            "spec.approvals[0]",
            "spec.metrics[0].parameters_json",
            "spec.repeats",
        }
        with pytest.raises(SpecError) as refusal:
            await client.create_run(dataclasses.replace(settings_of(), repeats=1000), dataset.dataset_id)
        assert [problem.field for problem in refusal.value.problems] == ["repeats"]


async def test_runs_are_listed_newest_first_in_pages(serve: Serve, settings_of: SettingsOf) -> None:
    """ListRuns pages through all runs without repeating or leaving one out."""
    async with serve() as client:
        dataset = await client.upload_dataset(recorded(1), name="d")
        made = [(await client.create_run(settings_of(), dataset.dataset_id)).run_id for _ in range(5)]
        stub = run_pb2_grpc.RunServiceStub(client._channel)
        found, token = [], ""
        while True:
            page = await stub.ListRuns(pb.ListRunsRequest(page_size=2, page_token=token))
            found += [run.run_id for run in page.runs]
            token = page.next_page_token
            if not token:
                break
    assert sorted(found) == sorted(made)
    assert len(found) == 5


async def host(client: Client, run: Run, agent: Any) -> Run:
    """Answer a run's questions with `agent` until it ends, and return it."""
    hosting = asyncio.ensure_future(
        client.host_agent(run.run_id, AgentCaller(agent), concurrency=run.spec.agent.concurrency)
    )
    done = await await_end(client, run.run_id)
    await hosting
    return done


async def test_a_hosted_agent_is_asked_on_the_clients_side(serve: Serve, settings_of: SettingsOf) -> None:
    """The python adapter asks through HostService; the references never travel to the agent."""
    seen: list[AgentRequest] = []

    async def agent(request: AgentRequest) -> str:
        seen.append(request)
        return "a" + request.input[1:]

    async with serve() as client:
        dataset = await client.upload_dataset(recorded(30), name="d")
        run = await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)
        run = await host(client, run, agent)
    assert run.counts.passed_count == 30
    assert sorted(request.case_id for request in seen) == sorted(f"c{i}" for i in range(30))
    assert not any("'a1'" in repr(request) for request in seen)


async def test_the_turns_of_a_conversation_are_asked_in_order(serve: Serve, settings_of: SettingsOf) -> None:
    """Each turn is asked once, in the same session, with what was said before; the last answer is scored."""
    seen: list[AgentRequest] = []

    async def agent(request: AgentRequest) -> str:
        seen.append(request)
        return f"{request.input}!"

    talk = Case("talk", (Turn("one"), Turn("two"), Turn("three", references=("three!",))))
    async with serve() as client:
        dataset = await client.upload_dataset([talk], name="d")
        run = await host(client, await client.create_run(settings_of("python", "m:f"), dataset.dataset_id), agent)
        rows = [row async for row in client.list_rows(run.run_id)]
    assert [(row.passed, row.response.text) for row in rows if row.response] == [(True, "three!")]
    assert [(request.turn_index, request.input) for request in seen] == [(0, "one"), (1, "two"), (2, "three")]
    assert len({request.session_id for request in seen}) == 1
    assert len({request.idempotency_key for request in seen}) == 3
    said = [(message.role, message.content) for message in seen[2].history]
    assert said == [("user", "one"), ("assistant", "one!"), ("user", "two"), ("assistant", "two!")]


async def test_an_error_ends_a_conversation(serve: Serve, settings_of: SettingsOf) -> None:
    """A turn that fails is the case's answer; later turns are not asked."""
    seen: list[str] = []

    async def agent(request: AgentRequest) -> str:
        seen.append(request.input)
        if request.input == "two":
            raise ValueError("no")
        return "yes"

    talk = Case("talk", (Turn("one"), Turn("two"), Turn("three")))
    async with serve() as client:
        dataset = await client.upload_dataset([talk], name="d")
        settings = settings_of("python", "m:f", retries=0)
        run = await host(client, await client.create_run(settings, dataset.dataset_id), agent)
    assert seen == ["one", "two"]
    assert run.counts.agent_error_count == 1


async def test_rows_are_summed_up_by_category_tag_and_weight(serve: Serve, settings_of: SettingsOf) -> None:
    """A summary has one entry per category and tag, and weighted means where weights differ."""

    def case(name: str, right: bool, **more: Any) -> Case:
        answer = AgentResponse(text="a" if right else "b")
        return Case(name, (Turn("q", references=("a",)),), recordings=((answer,),), **more)

    cases = [
        case("1", True, category="x", tags=("smoke", "smoke", "slow")),
        case("2", False, category="x", weight=3.0),
        case("3", True, category="y", tags=("smoke",), weight=0.0),
        case("4", True),
    ]
    async with serve() as client:
        dataset = await client.upload_dataset(cases, name="d")
        run = await await_end(client, (await client.create_run(settings_of(), dataset.dataset_id)).run_id)
        rows = [row async for row in client.list_rows(run.run_id)]
    assert run.summary is not None
    groups = [
        (group.name, group.row_count, group.passed_count, group.failed_count, group.pass_rate)
        for group in run.summary.categories
    ]
    assert groups == [("x", 2, 1, 1, 0.5), ("y", 1, 1, 0, 1.0)]
    assert run.summary.categories[0].metrics == {"exact_match": 0.5, "latency": None}
    assert [(group.name, group.row_count) for group in run.summary.tags] == [("slow", 1), ("smoke", 2)]
    assert run.summary.weighted == WeightedSummary(0.4, {"exact_match": 0.4})
    assert run.summary.pass_rate == 0.75
    assert [(row.tags, row.weight) for row in rows] == [(case.tags, case.weight) for case in cases]


async def test_one_bad_case_harms_no_other(serve: Serve, settings_of: SettingsOf) -> None:
    """An agent that raises, hangs, returns garbage or 20 MB fails its own case only."""
    never = asyncio.Event()

    async def agent(request: AgentRequest) -> object:
        match request.case_id:
            case "c0":
                raise RuntimeError("boom")
            case "c1":
                await never.wait()
            case "c2":
                return {"text": {1, 2}}
            case "c3":
                return "x" * 20_000_000
        return "a" + request.input[1:]

    async with serve() as client:
        dataset = await client.upload_dataset(recorded(10), name="d")
        # All cases have the same limit, of which the good ones need a hundredth where the machine is idle.
        settings = settings_of("python", "m:f", retries=0, timeout_s=5.0)
        run = await host(client, await client.create_run(settings, dataset.dataset_id), agent)
        rows = [row async for row in client.list_rows(run.run_id)]
    assert run.state is RunState.COMPLETED
    assert (run.counts.agent_error_count, run.counts.passed_count) == (4, 6)
    kinds = [row.response.error.kind.value for row in rows[:4] if row.response and row.response.error]
    assert kinds == ["raised", "timeout", "malformed", "too_large"]


async def test_a_failed_attempt_is_tried_again_and_recorded(serve: Serve, settings_of: SettingsOf) -> None:
    """A case whose agent fails once is asked again under the same idempotency key."""
    keys: dict[str, list[str]] = {}

    async def agent(request: AgentRequest) -> str:
        keys.setdefault(request.idempotency_key, []).append(request.request_id)
        if len(keys[request.idempotency_key]) == 1:
            raise ConnectionError("flaky")
        return "a" + request.input[1:]

    async with serve() as client:
        dataset = await client.upload_dataset(recorded(2), name="d")
        run = await host(client, await client.create_run(settings_of("python", "m:f"), dataset.dataset_id), agent)
        rows = [row async for row in client.list_rows(run.run_id)]
    assert run.counts.passed_count == 2
    assert [len(set(attempts)) for attempts in keys.values()] == [2, 2]
    assert [row.response is not None and len(row.response.attempts) for row in rows] == [1, 1]


async def test_a_host_that_leaves_has_its_questions_asked_elsewhere(serve: Serve, settings_of: SettingsOf) -> None:
    """Questions that a client took with it go to the next one, under the same idempotency key."""
    taken = asyncio.Event()
    keys: list[str] = []

    async def hangs(request: AgentRequest) -> str:
        keys.append(request.idempotency_key)
        taken.set()
        await asyncio.Event().wait()
        return ""

    async def answers(request: AgentRequest) -> str:
        keys.append(request.idempotency_key)
        return "a" + request.input[1:]

    async with serve() as client:
        dataset = await client.upload_dataset(recorded(1), name="d")
        run = await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)
        leaving = asyncio.ensure_future(client.host_agent(run.run_id, AgentCaller(hangs), concurrency=1))
        await taken.wait()
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        run = await host(client, run, answers)
    assert run.counts.passed_count == 1
    assert len(keys) == 2
    assert len(set(keys)) == 1


async def test_cancelling_keeps_what_is_stored(serve: Serve, settings_of: SettingsOf) -> None:
    """A cancelled run ends as CANCELLED, twice cancelling is once, and a finished run refuses it."""
    async with serve() as client:
        dataset = await client.upload_dataset(recorded(5), name="d")
        run = await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)
        assert (await client.cancel_run(run.run_id)).state is RunState.CANCELLED
        assert (await client.cancel_run(run.run_id)).state is RunState.CANCELLED
        with pytest.raises(WrongStateError, match="cancelled"):
            await client.resume_run(run.run_id)
        done = await await_end(client, (await client.create_run(settings_of(), dataset.dataset_id)).run_id)
        with pytest.raises(WrongStateError, match="completed"):
            await client.cancel_run(done.run_id)


async def test_a_cancel_before_a_worker_has_its_session_is_not_lost(
    serve: Serve, settings_of: SettingsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job has begun and is still finding its agent: the run asks nothing, and leaves its place to others."""
    begun, may_go_on, ended = (asyncio.Event() for _ in range(3))
    context_of, work = RunManager.context_of, ShardWorker.work

    async def slowly(manager: RunManager, run_id: str) -> RunContext:
        begun.set()
        await may_go_on.wait()
        return await context_of(manager, run_id)

    async def noted(worker: ShardWorker, *job: Any) -> None:
        await work(worker, *job)
        assert worker.sessions.all() == []
        ended.set()

    monkeypatch.setattr(RunManager, "context_of", slowly)
    monkeypatch.setattr(ShardWorker, "work", noted)
    async with serve() as client:
        dataset = await client.upload_dataset(recorded(5), name="d")
        run = await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)
        hosting = asyncio.ensure_future(client.host_agent(run.run_id, AgentCaller(str), concurrency=1))
        await begun.wait()
        assert (await client.cancel_run(run.run_id)).state is RunState.CANCELLED
        await hosting
        may_go_on.set()
        await until(ended.is_set)


async def test_a_client_that_is_attached_after_its_run_was_cancelled_is_let_go(
    serve: Serve, settings_of: SettingsOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run was active when the client asked for it: a run that has ended must not keep it for ever."""
    asked, may_go_on = asyncio.Event(), asyncio.Event()
    attach = RunManager.attach

    async def slowly(manager: RunManager, *arguments: Any) -> Any:
        asked.set()
        await may_go_on.wait()
        return await attach(manager, *arguments)

    monkeypatch.setattr(RunManager, "attach", slowly)
    async with serve() as client:
        dataset = await client.upload_dataset(recorded(5), name="d")
        run = await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)
        hosting = asyncio.ensure_future(client.host_agent(run.run_id, AgentCaller(str), concurrency=1))
        await asked.wait()
        await client.cancel_run(run.run_id)
        may_go_on.set()
        await hosting


async def test_a_stored_answer_is_never_asked_for_again(serve: Serve, settings_of: SettingsOf) -> None:
    """After a stop in the middle, the next start finishes the run and asks only what has no answer yet."""
    asked: list[str] = []
    enough = asyncio.Event()

    async def agent(request: AgentRequest) -> str:
        asked.append(request.case_id)
        if len(asked) == 20:
            enough.set()
        if len(asked) >= 20:
            await asyncio.Event().wait()
        return "a" + request.input[1:]

    async with serve() as client:
        dataset = await client.upload_dataset(recorded(50), name="d")
        run = await client.create_run(settings_of("python", "m:f", concurrency=4), dataset.dataset_id)
        hosting = asyncio.ensure_future(client.host_agent(run.run_id, AgentCaller(agent), concurrency=4))
        await enough.wait()
        results = 0
        async for event in client.watch_run(run.run_id):
            results += isinstance(event, RowResult)
            if results == 16:
                break
        hosting.cancel()
        await asyncio.gather(hosting, return_exceptions=True)
        stored = [row.case_id async for row in client.list_rows(run.run_id)]
    first = list(asked)
    asked.clear()
    assert len(stored) >= 16

    async def again(request: AgentRequest) -> str:
        asked.append(request.case_id)
        return "a" + request.input[1:]

    async with serve() as client:
        run = await host(client, await client.get_run(run.run_id), again)
    assert run.state is RunState.COMPLETED
    assert run.counts.finished_count == 50
    assert not set(stored) & set(asked)
    assert len(first) + len(asked) <= 50 + 4


@pytest.mark.parametrize("database_url", [""], ids=["sqlite"])
async def test_interrupted_runs_wait_where_the_policy_says_so(serve: Serve, settings_of: SettingsOf) -> None:
    """With recover="on-request" a run that was going on is paused with a reason until it is resumed.

    That is for one process alone: where several share the work, the others go on with it.
    """
    async with serve() as client:
        dataset = await client.upload_dataset(recorded(5), name="d")
        run = await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)
        async for event in client.watch_run(run.run_id):
            if isinstance(event, StateChanged):
                break
    async with serve(recover="on-request") as client:
        paused = await client.get_run(run.run_id)
        assert paused.state is RunState.PAUSED
        assert "stopped" in paused.state_message
        assert (await client.resume_run(run.run_id)).state is RunState.RUNNING
        run = await host(client, run, lambda request: "a" + request.input[1:])
    assert run.state is RunState.COMPLETED


async def test_a_damaged_run_breaks_no_list(serve: Serve, settings_of: SettingsOf, engine: sa.Engine) -> None:
    """Impossible counts are counted from the rows; settings and times that cannot be read are a reason in the list."""
    table = schema.runs
    async with serve() as client:
        dataset = await client.upload_dataset(recorded(3), name="d")
        made = [await client.create_run(settings_of(), dataset.dataset_id) for _ in range(4)]
        for run in made:
            await await_end(client, run.run_id)
        counts, spec, moment, whole = (run.run_id for run in made)
        damage: dict[str, dict[str, Any]] = {
            counts: {"finished_count": 2, "failed_count": -25, "agent_error_count": -169},
            spec: {"spec_json": '{"name": "later"}'},
            moment: {"created_at": "9999"},
        }
        with engine.begin() as connection:
            for run_id, values in damage.items():
                connection.execute(table.update().where(table.c.run_id == run_id).values(**values))
        listed = {run.run_id: run for run in await client.list_runs()}
        assert set(listed) == {counts, spec, moment, whole}
        for found in (listed[counts], await client.get_run(counts)):
            assert found.counts == (await client.get_run(whole)).counts
        for found in (listed[spec], await client.get_run(spec)):
            assert f"the stored settings of run {spec} cannot be read" in found.state_message
        await client.delete_run(spec)
        assert "cannot be shown" in listed[moment].state_message
        assert [event async for event in client.watch_run(counts)]


async def test_a_stored_case_that_cannot_be_read_is_one_error_row(
    serve: Serve, settings_of: SettingsOf, engine: sa.Engine
) -> None:
    """It costs neither its run, whose other rows have results, nor those who read the run or its rows."""
    table = schema.dataset_cases
    damage = {
        1: '{"case_id": "c1", "turns": [{"input": "q"}], "recordings": [[{"status": "success", "tool_calls": [{}]}]]}',
        3: '{"case_id": "c3"',
        5: '{"case_id": "c5", "turns": []}',
        7: '{"case_id": "c7", "turns": [{}], "expected": ' + "[" * 100_000 + "]" * 100_000 + "}",
    }
    async with serve() as client:
        dataset = await client.upload_dataset(recorded(12), name="d")
        with engine.begin() as connection:
            for index, text in damage.items():
                connection.execute(table.update().where(table.c.case_index == index).values(case_json=text))
        run = await await_end(client, (await client.create_run(settings_of(), dataset.dataset_id)).run_id)
        rows = [row async for row in client.list_rows(run.run_id)]
    assert (run.state, run.counts.finished_count, run.counts.agent_error_count) == (RunState.COMPLETED, 12, 4)
    errors = [row for row in rows if row.response is not None and row.response.error is not None]
    assert [row.case_id for row in errors] == ["c1", "c3", "c5", "c7"]
    for row in errors:
        assert row.response is not None
        assert row.response.error is not None
        assert "the stored case cannot be read" in row.response.error.message
