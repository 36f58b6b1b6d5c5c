"""Metrics in Python code through the real wire and store: computed by attached clients, stored with the row."""

from __future__ import annotations

import asyncio
import dataclasses
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.processes.waiting import until

from assay.agent_host.caller import AgentCaller
from assay.agent_host.metric_functions import load_metric_functions
from assay.errors import InvalidInputError, WrongStateError
from assay.metrics import complete_parameters
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.metric_call import MetricResult
from assay.model.run import MetricSpec, PauseCause, Run, RunState, ScoreStatus
from assay.v1 import host_pb2 as pb
from assay.v1 import host_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.answers.agent_request import AgentRequest
    from assay.model.run import MetricSummary, RowResult, RunSpec, Score

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSpec]
    Functions = dict[str, Callable[..., Any]]

CASES = [
    Case(f"c{n}", (Turn(f"q{n}", references=(f"a{n}",)),), recordings=((AgentResponse(text=f"a{n}"),),))
    for n in range(6)
]
AT_REST = (RunState.COMPLETED, RunState.PAUSED, RunState.FAILED)


def function(name: str, **parameters: Any) -> MetricSpec:
    """Return the settings of a metric in Python code."""
    return MetricSpec(name, complete_parameters("python", {"function": f"m:{name}", **parameters}, where=""), "python")


async def create(
    client: Client, settings: RunSpec, *metrics: MetricSpec, cases: list[Case] | None = None, **changes: Any
) -> Run:
    """Return a new run that computes exact match, latency and some metrics in Python code."""
    dataset = await client.upload_dataset(cases or CASES, name="d")
    wanted = dataclasses.replace(settings, metrics=(*settings.metrics, *metrics), **changes)
    return await client.create_run(wanted, dataset.dataset_id)


@asynccontextmanager
async def hosting(
    client: Client, run: Run, functions: Functions, agent: Callable[..., Any] | None = None
) -> AsyncIterator[asyncio.Future[None]]:
    """Answer a run's questions with an agent and functions, until the end of the block."""
    metrics = load_metric_functions(run.spec.metrics, Path(), functions)
    caller = AgentCaller(agent) if agent is not None else None
    task = asyncio.ensure_future(client.host_agent(run.run_id, caller, concurrency=2, metrics=metrics))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def ended(client: Client, run: Run) -> Run:
    """Return a run once it is at rest."""
    found: Run = await until(lambda: client.get_run(run.run_id), lambda seen: seen.state in AT_REST)
    return found


async def rows_of(client: Client, run: Run) -> list[RowResult]:
    """Return the stored rows of a run in the order of the dataset."""
    return sorted([row async for row in client.list_rows(run.run_id)], key=lambda row: row.case_id)


def counting(called: list[str]) -> Callable[..., Any]:
    """Return a metric that notes for which cases it is called."""

    def count(case: Case) -> float:
        called.append(case.case_id)
        return 1.0

    return count


def score_of(row: RowResult, name: str) -> Score:
    """Return a row's score by a metric."""
    return next(score for score in row.scores if score.metric == name)


def summary_of(run: Run, name: str) -> MetricSummary:
    """Return the summary of a metric of a finished run."""
    assert run.summary is not None
    return next(metric for metric in run.summary.metrics if metric.metric == name)


async def test_functions_score_the_answers_of_an_agent_that_no_client_hosts(
    serve: Serve, settings_of: SettingsOf
) -> None:
    """The client attaches for the metrics alone; values, reasons, verdicts and gates are those of any metric."""

    def share(answer: str, reference: str | None, case: Case) -> MetricResult | None:
        assert reference == case.references[0]
        return None if answer == "a5" else MetricResult(int(answer[1:]) / 10, f"of {case.case_id}")

    async def even(answer: str) -> bool:
        return int(answer[1:]) % 2 == 0

    def size(response: AgentResponse) -> float:
        return float(len(response.text))

    async with serve() as client:
        run = await create(
            client,
            settings_of(),
            function("share", threshold=0.1),
            function("even"),
            function("size", threshold=1, higher_is_better=False),
            gates=("share >= 0.2", "even.pass_rate > 0.4", "size <= 2"),
        )
        async with hosting(client, run, {"share": share, "even": even, "size": size}) as task:
            run = await ended(client, run)
            await task  # the run asks no more, so that the client is released
        rows = await rows_of(client, run)
    shares = [score_of(row, "share") for row in rows]
    assert [score.value for score in shares] == [0.0, 0.1, 0.2, 0.3, 0.4, None]
    assert [score.passed for score in shares] == [False, True, True, True, True, None]
    assert (shares[5].status, shares[5].reason) == (ScoreStatus.SKIPPED, "not_applicable")
    assert shares[1].detail["reasoning"] == "of c1"
    assert [score_of(row, "even").passed for row in rows] == [True, False] * 3
    assert rows[1].message == "even: the function returned false, expected true; size: 2 is above the threshold of 1"
    assert run.summary is not None
    assert (summary_of(run, "share").value, summary_of(run, "share").skipped_count) == (0.2, 1)
    assert (summary_of(run, "size").rule, summary_of(run, "size").meets_threshold) == ("at_most", False)
    assert [gate.outcome.value for gate in run.summary.gates] == ["pass", "pass", "pass"]


async def test_an_error_of_a_function_is_one_of_its_row(serve: Serve, settings_of: SettingsOf) -> None:
    """Exceptions, time-outs and wrong results leave rows undecided, and say why; other metrics have their values."""

    def flawed(answer: str) -> float:
        if answer == "a0":
            raise LookupError("no such thing")
        return float("nan") if answer == "a1" else 1.0

    async def slow(answer: str) -> float:
        if answer == "a2":
            await asyncio.Event().wait()
        return 1.0

    async with serve() as client:
        run = await create(client, settings_of(), function("flawed"), function("slow", timeout_s=2.0))
        async with hosting(client, run, {"flawed": flawed, "slow": slow}):
            run = await ended(client, run)
        rows = await rows_of(client, run)
    assert [score_of(row, "flawed").reason for row in rows[:3]] == ["function_raised", "function_malformed", ""]
    assert [score_of(row, "slow").reason for row in rows[:3]] == ["", "", "function_timeout"]
    score = score_of(rows[0], "flawed")
    assert score.message == "LookupError: no such thing"
    assert 'raise LookupError("no such thing")' in score.detail["traceback"]
    assert [row.passed for row in rows] == [None, None, None, True, True, True]
    assert score_of(rows[0], "exact_match").value == 1.0
    assert run.summary is not None
    assert (summary_of(run, "flawed").own_error_count, summary_of(run, "slow").own_error_count) == (2, 1)


async def test_a_failed_answer_is_not_scored(serve: Serve, settings_of: SettingsOf) -> None:
    """No function is called for the row of an agent that failed."""
    called: list[str] = []

    def agent(request: AgentRequest) -> str:
        if request.case_id == "c1":
            raise ValueError("no luck")
        return request.input.replace("q", "a")

    async with serve() as client:
        run = await create(client, settings_of("python", "m:f", retries=0), function("m", threshold=1))
        async with hosting(client, run, {"m": counting(called)}, agent):
            await ended(client, run)
        rows = await rows_of(client, run)
    assert sorted(called) == ["c0", "c2", "c3", "c4", "c5"]
    assert (score_of(rows[1], "m").reason, score_of(rows[1], "m").passed) == ("agent_error", False)


async def test_a_client_that_computes_no_metrics_is_refused(serve: Serve, settings_of: SettingsOf) -> None:
    """A client that does not say that it does gets no question that it could answer wrongly."""
    async with serve() as client:
        run = await create(client, settings_of("python", "m:f"), function("helpful"))
        with pytest.raises(WrongStateError, match="helpful") as refused:
            await client.host_agent(run.run_id, AgentCaller(lambda _: "a"), concurrency=1)
        assert refused.value.reason == "METRICS_NOT_HOSTED"
        plain = await create(client, settings_of())
        with pytest.raises(InvalidInputError, match="which no client hosts"):
            await client.host_agent(plain.run_id, AgentCaller(lambda _: "a"), concurrency=1)


async def test_a_client_that_says_nothing_of_a_metric_harms_its_row_alone(
    serve: Serve, settings_of: SettingsOf
) -> None:
    """An answer in place of values, values of other metrics, or none: errors of the rows, and the run ends."""
    async with serve() as client:
        run = await create(client, settings_of(), function("m"), cases=CASES[:3])
        call = host_pb2_grpc.HostServiceStub(client._channel).Host()
        attach = pb.AttachAgent(run_id=run.run_id, concurrency=1, computes_metrics=True)
        await call.write(pb.HostRequest(attach=attach))
        for number in range(3):
            message = pb.HostResponse()
            while not message.metric_requests.requests:
                read = await call.read()
                assert isinstance(read, pb.HostResponse)
                message = read
            (request,) = message.metric_requests.requests
            assert request.case.turns[0].references
            if number == 0:
                answer = pb.AgentResponses()
                answer.responses.add(request_id=request.request_id, text="1")
                await call.write(pb.HostRequest(responses=answer))
                continue
            outcomes = [pb.MetricOutcome(metric="other", value=1)] if number == 1 else []
            response = pb.MetricResponse(request_id=request.request_id, outcomes=outcomes)
            await call.write(pb.HostRequest(metric_responses=pb.MetricResponses(responses=[response])))
        await ended(client, run)
        call.cancel()
        rows = await rows_of(client, run)
    assert {score_of(row, "m").reason for row in rows} == {"function_malformed"}
    assert {score_of(row, "m").message for row in rows} == {"the client sent no value of this metric"}


async def test_a_run_whose_metrics_no_client_computes_pauses_and_resumes(serve: Serve, settings_of: SettingsOf) -> None:
    """The cause names the metrics; the next client continues the run, and no row that was stored is computed again."""
    called: list[str] = []
    third = asyncio.Event()

    async def waits(case: Case) -> float:
        called.append(case.case_id)
        if len(called) > 2:
            third.set()
            await asyncio.Event().wait()
        return 1.0

    async with serve(unattended_pause_s=5.0) as client:
        run = await create(client, settings_of(), function("helpful"), function("polite"))
        async with hosting(client, run, {"helpful": waits, "polite": lambda answer: 1}):
            await third.wait()
            await until(lambda: client.get_run(run.run_id), lambda seen: seen.counts.finished_count == 2)
        paused = await ended(client, run)
        assert (paused.state, paused.pause_cause) == (RunState.PAUSED, PauseCause.UNATTENDED)
        assert "hosted its metrics in Python code (helpful, polite) for" in paused.state_message
        stored = {row.case_id for row in await rows_of(client, run)}
        again: list[str] = []
        functions: Functions = {"helpful": counting(again), "polite": lambda answer: 1}
        async with hosting(client, run, functions):
            done: Run = await until(lambda: client.get_run(run.run_id), lambda seen: seen.state is RunState.COMPLETED)
    assert done.counts.passed_count == 6
    assert sorted({*again}) == sorted(again) == sorted({case.case_id for case in CASES} - stored)


async def test_a_restarted_orchestrator_asks_no_answer_and_no_stored_value_again(
    serve: Serve, settings_of: SettingsOf
) -> None:
    """Answers are stored before functions see them: after a restart only the functions of open rows are called."""
    asked: list[str] = []
    called: list[str] = []
    all_in = asyncio.Event()

    def agent(request: AgentRequest) -> str:
        asked.append(request.case_id)
        return request.input.replace("q", "a")

    async def waits(case: Case) -> float:
        called.append(case.case_id)
        if len(called) > 3:
            all_in.set()
            await asyncio.Event().wait()
        return 1.0

    async with serve() as client:
        run = await create(client, settings_of("python", "m:f"), function("m"))
        async with hosting(client, run, {"m": waits}, agent):
            await all_in.wait()
            await until(lambda: client.get_run(run.run_id), lambda seen: seen.counts.finished_count == 3)
            stored = {row.case_id for row in await rows_of(client, run)}
    before, again = list(asked), list[str]()
    async with serve() as client, hosting(client, run, {"m": counting(again)}, agent):
        done = await ended(client, run)
    assert done.counts.passed_count == 6
    assert sorted(again) == sorted({case.case_id for case in CASES} - stored)
    assert not set(asked[len(before) :]) & set(called)  # their answers were stored
    assert len(asked) == len(set(asked)) == 6


async def test_a_paused_run_ends_the_calls_in_flight_and_begins_none(serve: Serve, settings_of: SettingsOf) -> None:
    """What a function is computing is stored; the other rows keep their answers until the run is resumed."""
    called: list[str] = []
    began, go = asyncio.Event(), asyncio.Event()

    async def waits(case: Case) -> float:
        called.append(case.case_id)
        began.set()
        await go.wait()
        return 1.0

    async with serve() as client:
        run = await create(client, settings_of(), function("m"))
        async with hosting(client, run, {"m": waits}) as task:
            await began.wait()
            pausing = asyncio.ensure_future(client.pause_run(run.run_id))
            await until(lambda: client.get_run(run.run_id), lambda seen: seen.pause_cause is not None)
            in_flight = list(called)
            go.set()
            assert (await pausing).state is RunState.PAUSED
            await task
        assert called == in_flight
        assert sorted(row.case_id for row in await rows_of(client, run)) == sorted(in_flight)
        await client.resume_run(run.run_id)
        async with hosting(client, run, {"m": waits}):
            done = await ended(client, run)
    assert (done.counts.passed_count, len(called), len(set(called))) == (6, 6, 6)


async def test_errors_are_computed_again_from_the_stored_answer(serve: Serve, settings_of: SettingsOf) -> None:
    """A retry of errors calls the functions of the rows in error alone, and asks the agent nothing."""
    called: list[str] = []
    is_mended = False

    def flawed(case: Case) -> float:
        called.append(case.case_id)
        if not is_mended and case.case_id in ("c1", "c4"):
            raise RuntimeError("not yet")
        return 1.0

    def agent(request: AgentRequest) -> str:
        assert not is_mended
        return request.input.replace("q", "a")

    async with serve() as client:
        run = await create(client, settings_of("python", "m:f"), function("m"))
        async with hosting(client, run, {"m": flawed}, agent):
            await ended(client, run)
        is_mended = True
        called.clear()
        run = await client.retry_run(run.run_id)
        async with hosting(client, run, {"m": flawed}, agent):
            done = await ended(client, run)
    assert sorted(called) == ["c1", "c4"]
    assert done.counts.passed_count == 6


async def test_a_conversation_is_scored_where_it_expects_something(serve: Serve, settings_of: SettingsOf) -> None:
    """Turns with references and the last one: each with the case up to it, its question and what was said before."""
    seen: list[tuple[Any, ...]] = []

    def look(answer: str, case: Case, request: AgentRequest) -> float:
        seen.append((request.turn_index, answer, len(case.turns), request.input, len(request.history)))
        return float(len(seen))

    talk = Case("talk", (Turn("one", references=("one!",)), Turn("two"), Turn("three")))
    async with serve() as client:
        run = await create(client, settings_of("python", "m:f"), function("m"), cases=[talk])
        async with hosting(client, run, {"m": look}, lambda question: f"{question}!"):
            await ended(client, run)
        (row,) = await rows_of(client, run)
    assert seen == [(0, "one!", 1, "one", 0), (2, "three!", 3, "three", 4)]
    assert score_of(row, "m").value == 1.5
    assert [turn["turn_index"] for turn in score_of(row, "m").detail["turns"]] == [0, 2]


async def test_every_repeat_is_scored_by_itself(serve: Serve, settings_of: SettingsOf) -> None:
    """A function sees which repeat it looks at."""
    async with serve() as client:
        run = await create(client, settings_of(), function("m"), cases=CASES[:1], repeats=3)
        async with hosting(client, run, {"m": lambda request: request.repeat}):
            await ended(client, run)
        rows = await rows_of(client, run)
    assert sorted(score_of(row, "m").value or 0 for row in rows) == [1, 2, 3]


async def test_what_is_too_large_for_a_message_is_an_error(serve: Serve, settings_of: SettingsOf) -> None:
    """Neither the stream nor other rows suffer from a case and an answer that do not fit together."""
    big = Case("big", (Turn("q", references=("r" * 900_000,)),), contexts=("c" * 90_000,))
    long = Case("long", (Turn("h" * 900_000), Turn("q")))
    async with serve() as client:
        run = await create(client, settings_of("python", "m:f"), function("m"), cases=[big, long, CASES[0]])
        answers = {"q0": "a0"}
        async with hosting(client, run, {"m": lambda answer: 1}, lambda text: answers.get(text, "x" * 2_000_000)):
            await ended(client, run)
        rows = {row.case_id: row for row in await rows_of(client, run)}
    assert score_of(rows["c0"], "m").value == score_of(rows["big"], "m").value == 1.0  # 3 MB fit
    assert score_of(rows["long"], "m").reason == "function_malformed"
    said = "case, history and answer are larger than 3.5 MiB: shorten them"
    assert score_of(rows["long"], "m").message == said
