"""One trace over command, orchestrator, embedder, judge and agent, received as a collector would receive it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.services.collector import collecting

from assay.errors import NotFoundError
from assay.model.run import AgentSpec, DatasetRef, Run, RunCounts, RunSpec, RunState
from assay.telemetry.tracing import is_tracing, parent_context, span, trace_id, traceparent, tracing, unsampled
from assay_orchestrator.pipeline.case_traces import CaseTraces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.services.collector import Collector


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """Return a collector to which exporters of this process send."""
    with collecting() as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        yield server


async def test_a_run_is_one_connected_trace(installed: Callable[..., Any], collector: Collector) -> None:
    """Each span has its parent in the trace; the agent gets that of its call, and no span holds a text of the user."""
    with tracing("test"):
        async with installed() as installation:
            with span("assay run") as root:
                root.set("assay.test", 1)
                expected = trace_id()
                run = await installation.run(3)
            headers = [one["traceparent"] for one in installation.agent.headers]
    spans = collector.spans
    assert {one.trace_id for one in spans} == {expected}
    known = {one.span_id for one in spans}
    assert [one.name for one in spans if one.parent_id not in known] == ["assay run"]
    found = collector.by_name()
    assert Counter({name: len(found[name]) for name in ("case", "agent call", "judge call")}) == Counter(
        {"case": 3, "agent call": 3, "judge call": 4}  # the run's preflight call is one
    )
    (created,) = found["RunService/CreateRun"]
    assert {one.parent_id for one in found["case"]} == {created.span_id}
    cases = {one.span_id for one in found["case"]}
    assert {one.parent_id for one in found["agent call"]} == cases
    # The preflight check asks the judge, too.
    assert {one.parent_id for one in found["JudgeService/Grade"]} == {*cases, created.span_id}
    graded = {one.span_id for one in found["JudgeService/Grade"] if one.parent_id in cases}
    assert (
        graded < {one.parent_id for one in found["judge call"]} <= {one.span_id for one in found["JudgeService/Grade"]}
    )
    assert {one.parent_id for one in found["EmbedderService/SimilarityStream"]} <= cases
    # What the agent got is the span of its own call, sampled.
    assert sorted(headers) == sorted(f"00-{expected}-{one.span_id}-01" for one in found["agent call"])
    assert {one.attributes["assay.run"] for one in found["case"]} == {run.run_id}
    values = [str(value) for one in spans for value in one.attributes.values()]
    assert not any(text in value for value in values for text in ("how much", "four", "It is right"))
    assert "c0" not in values  # a run's id may hold these two
    assert not any(one.is_error for one in spans)


async def test_a_share_of_the_cases_is_traced(installed: Callable[..., Any], collector: Collector) -> None:
    """The agents of the others get a traceparent that says not to record, of the same trace."""
    with tracing("test"):
        async with installed(traced_cases=0.0) as installation:
            with span("assay run"):
                expected = trace_id()
                await installation.run(2)
            headers = {one["traceparent"] for one in installation.agent.headers}
    found = collector.by_name()
    assert {"case", "agent call", "EmbedderService/SimilarityStream"} & set(found) == set()
    (created,) = found["RunService/CreateRun"]
    # Those of the preflight check, which asks for one token.
    assert {one.parent_id for one in found["JudgeService/Grade"]} == {created.span_id}
    assert len(found["judge call"]) == 1
    assert all(one.startswith(f"00-{expected}-") and one.endswith("-00") for one in headers)


async def test_reads_without_a_trace_are_recorded_now_and_then(
    installed: Callable[..., Any], collector: Collector
) -> None:
    """Of 1,500 some, but few; what changes something always, and what belongs to a trace as that says."""
    traces = [f"00-{number:032x}-{1:016x}-{flags}" for number, flags in ((1, "00"), (2, "01"))]
    with tracing("test"):
        async with installed() as installation:
            client = installation.client
            for _ in range(30):
                await asyncio.gather(*(client.list_runs() for _ in range(50)))
            for _ in range(3):
                with pytest.raises(NotFoundError):
                    await client.cancel_run("none")
            for trace in traces:
                with unsampled(trace) if trace.endswith("00") else span("work", parent=trace):
                    await asyncio.gather(*(client.list_runs() for _ in range(5)))
    found = collector.by_name()
    in_trace = [one for one in found["RunService/ListRuns"] if one.trace_id == f"{2:032x}"]
    assert len(in_trace) == 5
    assert 0 < len(found["RunService/ListRuns"]) - 5 < 100
    assert {one.trace_id for one in collector.spans} & {f"{1:032x}"} == set()
    assert [one.is_error for one in found["RunService/CancelRun"]] == [True] * 3


async def test_a_sampler_of_the_operator_decides(
    installed: Callable[..., Any], collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether a call only reads or not, and whatever its caller wishes."""
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
    with tracing("test"):
        async with installed() as installation:
            await installation.client.list_runs()
            with unsampled(""):
                await installation.client.list_runs()
    assert len(collector.by_name()["RunService/ListRuns"]) == 2


@pytest.mark.parametrize(("total", "share"), [(0, 1.0), (50, 1.0), (1_000, 0.05)])
def test_fifty_rows_of_a_run_are_traced(total: int, share: float) -> None:
    """Of larger runs about as many, spread over all cases, where the operator sets no share."""
    run = Run(
        "r",
        RunSpec("r", AgentSpec("http", "x"), ()),
        DatasetRef("d", "d", total),
        RunState.RUNNING,
        "",
        RunCounts(total_count=total),
    )
    assert CaseTraces.of_run(run, "t", "", None).share == share
    assert CaseTraces.of_run(run, "t", "", 0.5).share == 0.5


async def test_without_tracing_nothing_is_sent(installed: Callable[..., Any], collector: Collector) -> None:
    """No header for the agent, no span, no field of a log line."""
    async with installed() as installation:
        with span("assay run"):
            assert (traceparent(), trace_id(), is_tracing()) == ("", "", False)
            await installation.run(1)
        assert not any("traceparent" in one for one in installation.agent.headers)
    assert collector.spans == []


def test_a_failed_block_has_failed_by_the_name_of_its_exception(collector: Collector) -> None:
    """The text of an exception may hold anything, and stays in the process."""
    with tracing("test"):
        with pytest.raises(ValueError, match="secret"), span("work"):
            raise ValueError("the secret")
        with span("refused") as refused:
            refused.fail("http_429")
    assert [(one.name, one.is_error) for one in collector.spans] == [("work", True), ("refused", True)]
    assert "secret" not in repr(collector.spans)


async def test_a_task_may_record_what_the_call_that_began_it_does_not(collector: Collector) -> None:
    """A worker's task keeps the context of the call that started it, and works on runs of other traces later."""
    calling, run = f"00-{1:032x}-{1:016x}-00", f"00-{2:032x}-{2:016x}-01"

    async def work() -> None:
        with span("case", parent=run), span("agent call"):
            assert traceparent().startswith(run[:36])
        assert traceparent() == calling

    with tracing("test"):
        with unsampled(calling):
            working = asyncio.create_task(work())
        await working
    assert {one.name for one in collector.spans} == {"case", "agent call"}


MALFORMED = [
    "", "00", "00-" + "0" * 32 + "-" + "1" * 16 + "-01", "00-" + "1" * 32 + "-" + "0" * 16 + "-01",
    "00-" + "A" * 32 + "-" + "1" * 16 + "-01", "ff-" + "1" * 32 + "-" + "1" * 16 + "-01", "x" * 10_000,
    "00-" + "1" * 32 + "-" + "1" * 16 + "-01-more", "00-" + "1" * 32 + "-" + "1" * 16 + "-01\n",
]  # fmt: skip


@pytest.mark.parametrize("text", MALFORMED, ids=range(len(MALFORMED)))
def test_a_malformed_parent_is_none(text: str, collector: Collector) -> None:
    """A client's header is not trusted: the span begins a trace of its own."""
    with tracing("test"):
        with span("work", parent=text):
            assert traceparent().endswith("-01")
        with unsampled(text):
            assert traceparent().endswith("-00")
            with span("nothing"):
                pass
        assert traceparent() == ""
    (only,) = collector.spans
    assert (only.name, only.parent_id) == ("work", "")
    assert parent_context(text) is not None
