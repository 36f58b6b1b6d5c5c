"""One hostile row, schema, pattern or reply: an error of that row; health, other rows and other runs are unharmed."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from tests.support.processes.waiting import wait_until
from tests.support.services.ended_runs import await_end

from assay.errors import DatasetError, SpecError
from assay.metrics import complete_parameters
from assay.model.answers.agent_response import AgentResponse, Source, ToolCall
from assay.model.case import Assertion, Case, ExpectedTool, Turn
from assay.model.run import AgentSpec, MetricSpec, RowResult, RunSpec, RunState, ScoreStatus
from assay.rpc.channel import open_channel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from assay.client.client import Client

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSpec]

CONSTANTS = {"contains": {"anyOf": [{"const": f"x{index}"} for index in range(1000)]}}
RECURSIVE = {"properties": {"a": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}}}
ALTERNATIVES = "(" + "|".join(f"a{{{index}}}b" for index in range(1, 200)) + ")"


def _nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


HOSTILE: dict[str, tuple[tuple[str, dict[str, Any]], Case]] = {
    "a schema of 1,000 constants on 20,000 numbers": (
        ("json_schema", {"schema": CONSTANTS}),
        Case("hostile", (Turn("q"),), recordings=((AgentResponse(output=list(range(20_000))),),)),
    ),
    "a recursive schema that doubles on each level": (
        ("json_schema", {"schema": RECURSIVE}),
        Case("hostile", (Turn("q"),), recordings=((AgentResponse(output=_nested(60)),),)),
    ),
    "a pattern that leaves RE2 without its automaton": (
        ("regex", {"pattern": ALTERNATIVES}),
        Case("hostile", (Turn("q"),), recordings=((AgentResponse(text="a" * 900_000),),)),
    ),
    "a check of the case with such a pattern": (
        ("assertions", {}),
        Case(
            "hostile", (Turn("q"),), assertions=(Assertion("regex", ALTERNATIVES),),
            recordings=((AgentResponse(text="a" * 900_000),),),
        ),
    ),
    "a check of the case with such a schema": (
        ("assertions", {}),
        Case(
            "hostile", (Turn("q"),), assertions=(Assertion("is-json", CONSTANTS),),
            recordings=((AgentResponse(output=list(range(20_000))),),),
        ),
    ),
}  # fmt: skip


@pytest.fixture
def database_url() -> str:
    """Scoring does not know which database there is: a file does."""
    return ""


def plain(case_id: str) -> Case:
    """Return a case with a right answer."""
    checks = (Assertion("contains", "right"),)
    return Case(
        case_id, (Turn("q", references=("right",)),), assertions=checks, recordings=((AgentResponse(text="right"),),)
    )


def settings_with(*metrics: tuple[str, dict[str, Any]]) -> RunSpec:
    """Return settings of a run over recorded answers with some metrics."""
    built = [MetricSpec(kind, complete_parameters(kind, given, where="m")) for kind, given in metrics]
    return RunSpec("test", AgentSpec("replay"), tuple(built))


async def rows_of(client: Client, run_id: str) -> dict[str, RowResult]:
    """Return the rows of a run so far, by case."""
    return {row.case_id: row async for row in client.list_rows(run_id)}


def wait_for_scorer() -> None:
    """Wait until this process has a scorer at work."""

    def look() -> bool:
        for child in psutil.Process().children():
            with contextlib.suppress(psutil.Error):
                if "assay_orchestrator.scorers.worker" in child.cmdline():
                    return True
        return False

    wait_until(look)


async def started(client: Client, settings: RunSpec, cases: Sequence[Case]) -> str:
    """Upload cases and start a run over them."""
    dataset = await client.upload_dataset(cases, name="d")
    return (await client.create_run(settings, dataset.dataset_id)).run_id


@pytest.mark.timeout(120)
@pytest.mark.parametrize("hostile", HOSTILE)
async def test_a_hostile_row_delays_nothing_else(hostile: str, serve: Serve, tmp_path: Path) -> None:
    """While a row is scored that takes hours, health answers, another run ends, and its run can be cancelled."""
    metric, case = HOSTILE[hostile]
    async with serve(scoring_timeout_s=3600.0) as client:
        run_id = await started(client, settings_with(metric), [case])
        await asyncio.to_thread(wait_for_scorer)
        async with open_channel(f"unix:{tmp_path}/o.sock") as channel:
            health: Any = health_pb2_grpc.HealthStub(channel)
            answer = await health.Check(health_pb2.HealthCheckRequest(service="assay.v1.RunService"), timeout=60)
        other = await await_end(client, await started(client, settings_with(("exact_match", {})), [plain("c")]))
        rows = await rows_of(client, run_id)
        run = await client.cancel_run(run_id)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    assert other.summary is not None
    assert (other.state, other.summary.passed_count) == (RunState.COMPLETED, 1)
    assert not rows, "the hostile row is still being scored"
    assert run.state is RunState.CANCELLED


@pytest.mark.timeout(120)
@pytest.mark.parametrize("hostile", HOSTILE)
async def test_a_hostile_row_is_an_error_of_that_row(hostile: str, serve: Serve) -> None:
    """Over the limit each metric of the row says scoring_timeout; the run succeeds, its other rows are right."""
    metric, case = HOSTILE[hostile]
    async with serve(scoring_timeout_s=0.5) as client:
        settings = settings_with(metric, ("exact_match", {}))
        run = await await_end(client, await started(client, settings, [plain("a"), case, plain("b")]))
        rows = await rows_of(client, run.run_id)
    assert run.state is RunState.COMPLETED
    scores = rows["hostile"].scores
    assert [(score.status, score.value, score.passed, score.reason) for score in scores] == [
        (ScoreStatus.ERROR, None, None, "scoring_timeout")
    ] * 2
    assert rows["hostile"].passed is None
    assert f"{metric[0]} could not be computed: scoring this row takes more than 0.5 s" in rows["hostile"].message
    assert [rows[name].scores[1].value for name in ("a", "b")] == [1.0, 1.0]
    assert run.summary is not None
    assert [summary.own_error_count for summary in run.summary.metrics] == [1, 1]


async def test_a_row_over_the_limit_is_scored_again_on_demand(serve: Serve) -> None:
    """With a higher limit, `retry_errors` scores the stored answer: the agent is not asked again."""
    case = Case(
        "slow", (Turn("q", references=("word " * 20_000,)),), recordings=((AgentResponse(text="word " * 20_000),),)
    )
    settings = settings_with(("rouge", {}))
    async with serve(scoring_timeout_s=0.01) as client:
        run = await await_end(client, await started(client, settings, [case]))
        assert (await rows_of(client, run.run_id))["slow"].scores[0].reason == "scoring_timeout"
    async with serve(scoring_timeout_s=600.0) as client:
        await client.retry_run(run.run_id)
        run = await await_end(client, run.run_id)
        assert (await rows_of(client, run.run_id))["slow"].scores[0].value == 1.0


@pytest.mark.timeout(120)
async def test_long_lists_and_texts_are_scored_right(serve: Serve) -> None:
    """The longest lists that are accepted, and 60,000 words, have their scores: nothing here takes quadratic time."""
    sources = tuple(Source(title=f"other {index}") for index in range(9_999))
    turn = Turn(
        "q",
        references=("word " * 60_000,),
        expected_sources=tuple(f"source {index}" for index in range(1_000)),
        expected_tools=tuple(ExpectedTool("f", {"n": index % 7}, "subset") for index in range(1_000)),
    )
    answer = AgentResponse(
        text="word " * 60_000,
        sources=(*sources, Source(title="source 999")),
        tool_calls=tuple(ToolCall("f", arguments_json=f'{{"n": {index % 7}}}') for index in range(10_000)),
    )
    settings = settings_with(("hit_rate", {}), ("mrr", {}), ("tool_calls", {}), ("rouge", {}))
    async with serve(scoring_timeout_s=600.0) as client:
        case = Case("long", (turn,), recordings=((dataclasses.replace(answer, text=answer.text[:250_000]),),))
        run = await await_end(client, await started(client, settings, [case]))
        (row,) = (await rows_of(client, run.run_id)).values()
    values = [score.value for score in row.scores]
    assert values[:3] == [1.0, 1 / 10_000, 0.5]
    assert values[3] == pytest.approx(2 * 50_000 / 110_000)


@pytest.mark.parametrize(
    ("turn", "where"),
    [
        (Turn("q", expected_sources=("s",) * 15_000), "expected_sources"),
        (Turn("q", expected_tools=(ExpectedTool("f"),) * 8_000), "expected_tools"),
    ],
)
async def test_lists_that_are_too_long_are_refused(turn: Turn, where: str, serve: Serve) -> None:
    """An upload says which list of which case has too many entries, and how many it may have."""
    async with serve() as client:
        with pytest.raises(DatasetError, match=rf"cases\[0\].turns\[0\].{where}.*more than 1,000"):
            await client.upload_dataset([Case("c", (turn,))], name="d")


async def test_schemas_that_stand_for_too_much_are_refused(serve: Serve) -> None:
    """Forty levels of two references each are refused before anything is asked."""
    definitions = {f"l{index}": {"allOf": [{"$ref": f"#/$defs/l{index + 1}"}] * 2} for index in range(40)}
    schema = {"$ref": "#/$defs/l0", "$defs": {**definitions, "l40": {"type": "object"}}}
    settings = RunSpec("test", AgentSpec("replay"), (MetricSpec("json_schema", {"schema": schema}),))
    async with serve() as client:
        dataset = await client.upload_dataset([plain("a")], name="d")
        with pytest.raises(SpecError, match="once its references are written out, more than 10,000"):
            await client.create_run(settings, dataset.dataset_id)


@asynccontextmanager
async def replying(body: bytes) -> AsyncIterator[str]:
    """Serve the same JSON to every request; give the URL."""

    async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        size = next(int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        await reader.readexactly(size)
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(reply, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


def http_settings(url: str, **options: Any) -> RunSpec:
    """Return settings of a run over an HTTP agent."""
    settings = settings_with(("exact_match", {}))
    return dataclasses.replace(settings, agent=AgentSpec("http", url, options=options))


@pytest.mark.timeout(120)
async def test_an_expression_that_doubles_costs_its_rows_alone(serve: Serve) -> None:
    """Thirty doublings of a reply were half an hour and 8 GB: the row is the agent's error, another run is done."""
    doubling = "|".join(["@", *["[@,@][]"] * 30, "length(@)"])
    async with (
        replying(json.dumps({"text": "right", "items": list(range(100))}).encode()) as url,
        serve(scoring_timeout_s=0.5, scoring_memory_mib=256) as client,
    ):
        hostile = await started(client, http_settings(url, response={"text": "text", "output": doubling}), [plain("a")])
        other = await await_end(client, await started(client, http_settings(url), [plain("b")]))
        run = await await_end(client, hostile)
        (row,) = (await rows_of(client, hostile)).values()
    assert run.state is RunState.COMPLETED
    assert row.response is not None
    assert row.response.error is not None
    assert row.response.error.type in ("scoring_timeout", "scoring_memory")
    assert row.passed is False
    assert other.summary is not None
    assert other.summary.passed_count == 1


async def test_a_request_that_grows_beyond_bounds_is_not_built(serve: Serve) -> None:
    """Three thousand placeholders for 0.9 MB were 3 GB: the row is an error, the next one is asked."""
    large = Case("large", (Turn("x" * 900_000, references=("right",)),))
    async with replying(b'{"text": "right"}') as url, serve() as client:
        settings = http_settings(url, body={"a": "{{input}}" * 3000})
        run = await await_end(client, await started(client, settings, [large, plain("b")]))
        rows = await rows_of(client, run.run_id)
    response = rows["large"].response
    assert response is not None
    assert response.error is not None
    assert (response.error.kind, response.error.message[:34]) == ("too_large", "the request is larger than 4 MiB o")
    assert rows["b"].passed is True


async def test_health_answers_while_a_schema_is_checked(serve: Serve, tmp_path: Path) -> None:
    """A run whose schema takes long to check is refused after health has answered, not before."""
    part = {"properties": {f"p{index}": {"type": "string"} for index in range(990)}}
    # One schema: on a busy machine three take longer than the ten seconds that a client gives a call.
    metrics = (MetricSpec("m", {"schema": part}, "json_schema"), MetricSpec("nonsense"))
    wrong = RunSpec("test", AgentSpec("replay"), metrics)
    async with serve() as client, open_channel(f"unix:{tmp_path}/o.sock") as channel:
        dataset = await client.upload_dataset([plain("a")], name="d")
        health: Any = health_pb2_grpc.HealthStub(channel)
        creating = asyncio.create_task(client.create_run(wrong, dataset.dataset_id))
        answers = 0
        while not creating.done():
            await health.Check(health_pb2.HealthCheckRequest(), timeout=60)
            answers += not creating.done()
        with pytest.raises(SpecError, match="unknown metric 'nonsense'"):
            await creating
    assert answers > 2, "health answered while the schema was checked, not only just before"


async def test_the_stack_is_not_at_the_mercy_of_an_expression(serve: Serve) -> None:
    """Five thousand parentheses and an address that is none are sentences, not internal errors."""
    response = {"text": "(" * 5000 + "a" + ")" * 5000}
    schema = {"$id": "http://[", "$ref": "x"}
    async with serve() as client:
        dataset = await client.upload_dataset([plain("a")], name="d")
        for settings, sentence in (
            (http_settings("http://127.0.0.1:1/", response=response), "more than 1,000"),
            (
                RunSpec("t", AgentSpec("replay"), (MetricSpec("json_schema", {"schema": schema}),)),
                "cannot be read",
            ),
        ):
            with pytest.raises(SpecError, match=sentence):
                await client.create_run(settings, dataset.dataset_id)
