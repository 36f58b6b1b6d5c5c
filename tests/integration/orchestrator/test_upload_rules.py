"""What a dataset may hold is checked when it is uploaded; checks that this orchestrator cannot make are counted."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import random
import threading
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import sqlalchemy as sa
from tests.support.services.ended_runs import await_end, run_cases

from assay.agent.v1 import agent_pb2
from assay.client.client import Client
from assay.client.encoded_cases import EncodedCases
from assay.metrics import complete_parameters
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Assertion, Case, Turn
from assay.model.run import MetricSpec, RunState
from assay.v1 import case_pb2, dataset_pb2, dataset_pb2_grpc
from assay_orchestrator.service import dataset_service
from assay_orchestrator.store import schema
from assay_orchestrator.store.runs import datasets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from google.protobuf.message import Message

    from assay.model.run import RunSpec

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSpec]
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from assay.model.run import Run, RunSpec

    ServeAt = Callable[..., AbstractAsyncContextManager[Client]]


DEEP = "[" * 900 + "]" * 900
TOO_LARGE = 2**53


async def upload(client: Client, cases: Sequence[case_pb2.Case], name: str = "d") -> str:
    """Upload messages as they are; return the dataset's id."""
    header = dataset_pb2.UploadDatasetRequest(header=dataset_pb2.DatasetHeader(name=name))
    parts = [header, dataset_pb2.UploadDatasetRequest(cases=dataset_pb2.CaseBatch(cases=cases))]
    response = await dataset_pb2_grpc.DatasetServiceStub(client._channel).UploadDataset(iter(parts), timeout=60)
    return str(response.dataset.dataset_id)


async def refusal(client: Client, cases: Sequence[case_pb2.Case], name: str = "d") -> str:
    """Return why an upload is refused, which it must be."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await upload(client, cases, name)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT, refused.value
    return str(refused.value.details())


def case(**fields: Any) -> case_pb2.Case:
    """Return a good case with some fields changed."""
    return case_pb2.Case(**{"case_id": "c", "turns": [case_pb2.Turn(input="q", references=["a"])], **fields})


def recorded(**fields: Any) -> list[case_pb2.Recording]:
    """Return the recording of one answer."""
    answer = agent_pb2.AgentResponse(**{"status": agent_pb2.AGENT_STATUS_SUCCESS, "text": "a", **fields})
    return [case_pb2.Recording(turns=[answer])]


def check(**fields: Any) -> case_pb2.Assertion:
    """Return a check."""
    return case_pb2.Assertion(**{"type": "contains", "value_json": '"a"', **fields})


BAD = {
    "cases[1].case_id: must have 1 to 200": case(case_id=""),
    "cases[1].case_id: must not hold control characters: 'a\\\\nb'": case(case_id="a\nb"),
    "cases[1].case_id: must not hold control characters: 'a\\\\x00b'": case(case_id="a\0b"),
    "cases[1].case_id: must not hold control characters: '\\\\x9b'": case(case_id="\x9b"),
    "cases[1].turns: must be 1 to 100, not 0": case(turns=[]),
    "cases[1].weight: must be a number from 0": case(weight=math.nan),
    "cases[1].thresholds.latency: must be a number": case(thresholds={"latency": math.inf}),
    "cases[1].variables_json: cannot be read": case(variables_json="[1]"),
    "cases[1].expected_json: cannot be read": case(expected_json='{"a": 1e999}'),
    "cases[1].metadata: is nested": case(metadata_json=f'{{"a": {DEEP}}}'),
    "cases[1].turns[0].expected_tools[0].arguments: is nested": case(
        turns=[
            case_pb2.Turn(
                input="q", expected_tools=[case_pb2.ExpectedTool(name="t", arguments_json=f'{{"a": {DEEP}}}')]
            )
        ]
    ),
    "cases[1].assertions[0].threshold: must be a number": case(assertions=[check(threshold=math.nan)]),
    "cases[1].assertions[0].weight: must be a number": case(assertions=[check(weight=math.inf)]),
    "cases[1].assertions[0].value: is nested": case(assertions=[check(value_json=DEEP)]),
    "cases[1].assertions[0]: unknown check": case(assertions=[check(type="contians")]),
    "cases[1].recordings[0].turns[0]: is not a valid recorded answer: usage.input_tokens": case(
        recordings=recorded(usage=agent_pb2.Usage(input_tokens=TOO_LARGE))
    ),
    "cases[1].recordings[0].turns[0]: is not a valid recorded answer: usage.cost_usd": case(
        recordings=recorded(usage=agent_pb2.Usage(cost_usd=math.nan))
    ),
    "cases[1].recordings[0].turns[0]: is not a valid recorded answer: data_rows": case(
        recordings=recorded(data_rows=TOO_LARGE)
    ),
    "cases[1].recordings[0].turns[0]: is not a valid recorded answer: latency_ms": case(
        recordings=recorded(latency_ms=math.nan)
    ),
    "cases[1].recordings[0].turns[0]: is not a valid recorded answer: sources[0].score": case(
        recordings=recorded(sources=[agent_pb2.Source(id="s", score=math.inf)])
    ),
    "cases[1].recordings[0].turns[0]: is not a valid recorded answer: tool_calls[0].name": case(
        recordings=recorded(tool_calls=[{}])
    ),
    "cases[1].recordings[0].turns[0]: is not a valid recorded answer: it is nested": case(
        recordings=recorded(output_json=DEEP)
    ),
    "cases[1].recordings[0].turns[0]: cannot be read": case(recordings=recorded(output_json="[")),
    "cases[1].recordings[0].turns[0]: the answer is larger": case(
        recordings=recorded(text="x" * (2 * 1024 * 1024 + 1))
    ),
    "cases[1]: is larger than 1 MiB": case(metadata_json=json.dumps({"a": "\u0001" * 200_000})),
}


async def test_a_case_that_could_not_be_run_is_refused(serve: Serve) -> None:
    """Each with the position of the case, its field, and what is wrong with it."""
    async with serve() as client:
        for index, (says, bad) in enumerate(BAD.items()):
            said = await refusal(client, [case(case_id="good"), bad])
            assert says.replace("\\\\", "\\") in said, (index, said)


async def test_every_problem_of_an_upload_is_told_at_once(serve: Serve) -> None:
    """Of one case and of all."""
    twice = case(weight=-1.0, thresholds={"latency": math.nan}, recordings=recorded(latency_ms=math.inf))
    async with serve() as client:
        said = await refusal(client, [twice, *BAD.values()][:12])
        assert [line.split(":")[0] for line in said.splitlines()[:3]] == [
            "cases[0].weight",
            "cases[0].thresholds.latency",
            "cases[0].recordings[0].turns[0]",
        ]
        assert len(said.splitlines()) == 14


async def test_the_name_of_a_dataset_is_a_name(serve: Serve) -> None:
    """It is printed and logged like that of a case."""
    async with serve() as client:
        assert "header.name: must not hold control characters" in await refusal(client, [case()], name="a\x1b[2Jb")
        assert "header.name: must have 1 to 4096 characters" in await refusal(client, [case()], name="x" * 5000)


TEXTS = ["", "a", "ب" * 50, "a\0b", "\x1b]52;c;x\x07", "\u202e", "x" * 5000, "{", "[1]", "null", "true", "1e999", "NaN",
         '{"a": 1}', '"a"', "-5", DEEP, "[" * 90 + "]" * 90, '{"a": {"b": [1, 2, "\\ud800"]}}', "contains", "exact",
         "regex", '"(a+)+$"', "json-schema", '{"$ref": "#"}', "9" * 5000]  # fmt: skip
NUMBERS = [0.0, -0.0, 1.0, -1.0, 0.5, 1e300, 5e-324, math.nan, math.inf, -math.inf]
COUNTS = [0, 1, 2**31, 2**32 - 1, 2**53 - 1, 2**53, 2**64 - 1]


def fill(message: Message, rng: random.Random, depth: int = 0) -> None:
    """Set some fields of a message, known by its descriptor, to hostile values."""
    for field in message.DESCRIPTOR.fields:
        if rng.random() < 0.7 or depth > 4:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(message, field.name)[rng.choice(TEXTS)] = rng.choice(NUMBERS)
        elif field.is_repeated:
            for _ in range(rng.randrange(1, 3)):
                if field.message_type is not None:
                    fill(getattr(message, field.name).add(), rng, depth + 1)
                else:
                    getattr(message, field.name).append(value_of(field, rng))
        elif field.message_type is not None:
            getattr(message, field.name).SetInParent()
            fill(getattr(message, field.name), rng, depth + 1)
        else:
            setattr(message, field.name, value_of(field, rng))


def value_of(field: Any, rng: random.Random) -> Any:
    """Return a hostile value of a field's type."""
    if field.cpp_type == field.CPPTYPE_STRING:
        return rng.choice(TEXTS)
    if field.cpp_type == field.CPPTYPE_DOUBLE:
        return rng.choice(NUMBERS)
    if field.cpp_type == field.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if field.cpp_type == field.CPPTYPE_ENUM:
        return rng.choice([0, 1, 2, 3, 99])
    largest = 2**64 if field.cpp_type == field.CPPTYPE_UINT64 else 2**32
    return rng.choice([count for count in COUNTS if count < largest])


async def test_what_is_accepted_can_be_read_and_run(serve: Serve, settings_of: SettingsOf) -> None:
    """900 hostile cases: each is refused as the client's mistake, or its row ends a run that succeeds."""
    rng = random.Random(20)
    accepted = []
    names = [
        "exact_match",
        "assertions",
        "tool_calls",
        "hit_rate",
        "mrr",
        "contains",
        "rouge",
        "tokens",
        "cost",
        "latency",
    ]
    settings = dataclasses.replace(
        settings_of(),
        metrics=tuple(MetricSpec(name, {"values": ["a"]} if name == "contains" else {}) for name in names),
        gates=(),
    )
    async with serve() as client:
        for index in range(1_200):
            hostile = case(case_id=f"c{index}")
            fill(hostile, rng)
            if rng.random() < 0.9:
                hostile.case_id = f"c{index}"
            try:
                await upload(client, [hostile])
            except grpc.aio.AioRpcError as refused:
                if refused.code() is not grpc.StatusCode.INVALID_ARGUMENT:
                    raise
            else:
                hostile.case_id = f"c{index}"
                accepted.append(hostile)
        assert 30 <= len(accepted) <= 400
        dataset_id = await upload(client, accepted)
        run = await client.create_run(settings, dataset_id)
        async with asyncio.timeout(120):
            await await_end(client, run.run_id)
        run = await client.get_run(run.run_id)
        assert run.state is RunState.COMPLETED, run.state_message
        rows = [row async for row in client.list_rows(run.run_id)]
        assert [row.case_id for row in rows] == [each.case_id for each in accepted]


async def test_an_upload_that_begins_while_the_process_starts_is_whole(serve: Serve, settings_of: SettingsOf) -> None:
    """The start discards broken uploads: one that has begun before waits for it, and is stored once it is wanted."""
    cases = [Case(f"c{i}", (Turn(f"q{i}"),), recordings=((AgentResponse(text="a"),),)) for i in range(1_200)]
    wanted, uploads = asyncio.Event(), []

    async with AsyncExitStack() as stack:
        encoded = stack.enter_context(EncodedCases())
        for case_ in cases:
            encoded.add(case_)

        async def begin(address: str) -> None:
            client = await stack.enter_async_context(Client(address))
            uploads.append(asyncio.create_task(encoded.upload(client, name="early", wanted=wanted)))
            await asyncio.wait(uploads, timeout=0.2)  # however far it gets

        client = await stack.enter_async_context(serve(before_start=begin))
        assert not uploads[0].done()
        wanted.set()
        stored = await uploads[0]
        run = await client.create_run(settings_of(), stored.dataset_id)
        await await_end(client, run.run_id)
        assert (await client.get_run(run.run_id)).counts.finished_count == len(cases)


async def test_an_upload_that_is_cancelled_while_it_is_stored_leaves_nothing(
    serve: Serve, engine: sa.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database still stores its cases when nothing waits for them any more: they are discarded after that."""
    loop, storing, closing, closed = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event(), asyncio.Event()
    may_commit = threading.Event()
    add_cases, aclose = datasets.add_cases, dataset_service._Upload.aclose

    def slowly(*arguments: Any) -> None:
        add_cases(*arguments)
        loop.call_soon_threadsafe(storing.set)
        assert may_commit.wait(60)

    async def noted(upload: dataset_service._Upload) -> None:
        closing.set()
        await aclose(upload)
        closed.set()

    async def parts() -> AsyncIterator[dataset_pb2.UploadDatasetRequest]:
        yield dataset_pb2.UploadDatasetRequest(header=dataset_pb2.DatasetHeader(name="d"))
        yield dataset_pb2.UploadDatasetRequest(cases=dataset_pb2.CaseBatch(cases=[case()]))
        await asyncio.Event().wait()

    monkeypatch.setattr(datasets, "add_cases", slowly)
    monkeypatch.setattr(dataset_service._Upload, "aclose", noted)
    async with serve() as client:
        call = dataset_pb2_grpc.DatasetServiceStub(client._channel).UploadDataset(parts())
        await storing.wait()
        call.cancel()
        await closing.wait()
        may_commit.set()
        await closed.wait()
        await client.upload_dataset([Case("other", (Turn("q"),))], name="d")  # writes come one after the other
        with engine.connect() as connection:
            found = connection.execute(sa.select(schema.dataset_cases.c.case_id)).scalars().all()
    assert found == ["other"]


def checked_case(number: int, *checks: Assertion) -> Case:
    """Return a case with an answer and checks of it."""
    return Case(f"c{number}", (Turn("q"),), assertions=checks, recordings=((AgentResponse(text="It opens at nine."),),))


async def done(client: Client, settings: RunSpec, *kinds: str) -> Run:
    """Return a run of some metrics over two cases, of which one has a check by embeddings, once it has ended."""
    metrics = tuple(MetricSpec(kind, complete_parameters(kind, {}, where=kind)) for kind in kinds)
    similar = Assertion("similar", "It opens at 9.")
    cases = [checked_case(0, Assertion("contains", "nine")), checked_case(1, similar, Assertion("contains", "nine"))]
    return await run_cases(client, replace(settings, metrics=metrics, gates=()), cases)


async def test_a_check_by_embeddings_without_an_embedder(
    tmp_path: Path, serve_at: ServeAt, settings_of: SettingsOf
) -> None:
    """The run is taken, since only cases tell whether it needs vectors; the row is undecided and the run incomplete."""
    async with serve_at(tmp_path) as client:
        run = await done(client, settings_of(), "assertions")
        rows = [row async for row in client.list_rows(run.run_id)]
    assert run.state is RunState.COMPLETED
    assert run.summary is not None
    assert (run.summary.verdict, run.summary.reasons) == (
        "INCOMPLETE",
        ("1 of 3 checks are not made: similar 1 (no embedder)",),
    )
    assert [(row.passed, row.message) for row in rows] == [
        (True, ""),
        (None, "assertions is undecided: not made: similar (no embedder)"),
    ]


async def test_a_metric_that_needs_vectors_of_every_row_fails_the_run(
    tmp_path: Path, serve_at: ServeAt, settings_of: SettingsOf
) -> None:
    """Beside checks, too, and whatever model these have."""
    async with serve_at(tmp_path) as client:
        run = await done(client, settings_of(), "assertions", "semantic_similarity")
    assert run.state is RunState.FAILED
    assert "this orchestrator has none" in run.state_message
