"""Stored answers scored again: the agent is not asked, and nothing of an answer is lost or invented."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.processes import waiting

from assay.agent_host.caller import AgentCaller
from assay.client.rescoring import rescoring_spec
from assay.errors import InvalidInputError, NotFoundError, WrongStateError
from assay.model.answers.agent_response import AgentErrorKind, AgentResponse, AgentStatus
from assay.model.case import Case, Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.run import RowResult, Run, RunSpec

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSpec]

CASES = (
    Case("right", (Turn("a", references=("A",)),)),
    Case("fails", (Turn("bad", references=("B",)),)),
    Case("talk", (Turn("c", references=("C",)), Turn("d", references=("other",)))),
    Case("broken talk", (Turn("e", references=("E",)), Turn("bad", references=("F",)))),
)


async def finished(client: Client, run: Run, agent: Any = None) -> Run:
    """Return a run that has ended; `agent` answers its questions."""
    task = (
        asyncio.ensure_future(client.host_agent(run.run_id, AgentCaller(agent), concurrency=2))
        if agent is not None
        else None
    )
    try:
        seen = await waiting.until(lambda: client.get_run(run.run_id), lambda seen: seen.finished)
    finally:
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    return seen  # type: ignore[no-any-return]  # what the waiting returned


async def rows_of(client: Client, run_id: str) -> list[RowResult]:
    """Return the rows of a run."""
    return [row async for row in client.list_rows(run_id)]


async def rescored(client: Client, source: Run, metrics: Sequence[str], **settings: Any) -> Run:
    """Return a run over the answers of another one that has ended."""
    spec, _ = rescoring_spec(source, metrics=metrics)
    wanted = dataclasses.replace(spec.settings, **settings)
    return await finished(client, await client.create_run(wanted, source.dataset.dataset_id))


async def test_answers_are_scored_with_other_metrics(serve: Serve, settings_of: SettingsOf) -> None:
    """Answers of all repeats and turns are the same, with usage and latency; errors stay errors; nothing is asked."""
    asked: list[str] = []

    async def agent(request: Any) -> dict[str, Any]:
        asked.append(request.input)
        if request.input == "bad":
            raise TypeError("no such thing")
        return {"text": request.input.upper(), "usage": {"input_tokens": 7, "output_tokens": 3}}

    async with serve() as client:
        dataset = await client.upload_dataset(CASES, name="d")
        settings = dataclasses.replace(settings_of("python", "m:f", retries=0), repeats=2)
        source = await finished(client, await client.create_run(settings, dataset.dataset_id), agent)
        count = len(asked)
        again = await rescored(client, source, ["rouge", "exact_match"])
        twice = await rescored(client, again, ["rouge", "exact_match"])
        before, after, last = [await rows_of(client, run.run_id) for run in (source, again, twice)]
    assert len(asked) == count
    assert again.spec.source_run_id == source.run_id
    assert again.spec.baseline_name == source.spec.baseline_name
    assert [metric.metric for metric in again.summary.metrics] == ["rouge", "exact_match"]  # type: ignore[union-attr]  # ended
    for rows in (after, last):
        for one, other in zip(before, rows, strict=True):
            assert dataclasses.replace(other.response, cold=False) == dataclasses.replace(one.response, cold=False)  # type: ignore[type-var]  # answered
            assert [turn.response and turn.response.text for turn in other.turns] == [
                turn.response and turn.response.text for turn in one.turns
            ]
            assert (other.case_id, other.repeat, other.status) == (one.case_id, one.repeat, one.status)
            assert other.latency_ms == one.latency_ms
            assert other.scores[1].value == one.scores[0].value
    assert again.counts.agent_error_count == source.counts.agent_error_count == 4


async def test_an_answer_that_is_not_there_is_an_error(serve: Serve, settings_of: SettingsOf) -> None:
    """A run that was cancelled lacks answers: their rows count as failed, and no row is left out."""
    async with serve() as client:
        dataset = await client.upload_dataset(CASES[:2], name="d")
        run = await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)
        active = pytest.raises(WrongStateError, match="its answers can be scored when it has ended or is paused")
        with active as refusal:
            await rescored(client, run, ["exact_match"])
        assert refusal.value.reason == "RUN_ACTIVE"
        again = await rescored(client, await client.cancel_run(run.run_id), ["exact_match"])
        rows = await rows_of(client, again.run_id)
    assert again.summary is not None
    assert again.summary.verdict == "FAIL"
    assert [row.response.error.kind for row in rows if row.response and row.response.error] == [
        AgentErrorKind.NOT_RECORDED
    ] * 2


async def test_stand_ins_are_not_scored_as_answers(serve: Serve, settings_of: SettingsOf) -> None:
    """A conversation that recorded its last answer alone is scored by that alone, again."""
    talk = Case(
        "talk",
        (Turn("c", references=("C",)), Turn("d", references=("D",))),
        recordings=((AgentResponse(text="wrong"),),),
    )
    async with serve() as client:
        dataset = await client.upload_dataset([talk], name="d")
        source = await finished(client, await client.create_run(settings_of(), dataset.dataset_id))
        again = await rescored(client, source, ["exact_match"])
        (row,) = await rows_of(client, again.run_id)
    assert (row.status, row.scores[0].value) == (AgentStatus.SUCCESS, 0.0)


async def test_what_does_not_fit_is_refused(serve: Serve, settings_of: SettingsOf) -> None:
    """Another dataset, other repeats, an agent beside the answers, a run that is not there; a gate lacks its metric."""
    recorded = AgentResponse(text="A")
    async with serve() as client:
        cases = [dataclasses.replace(CASES[0], recordings=((recorded,),))]
        dataset = await client.upload_dataset(cases, name="d")
        other = await client.upload_dataset([dataclasses.replace(cases[0], case_id="x")], name="d")
        gated = dataclasses.replace(settings_of(), gates=("exact_match >= 0.5", "pass_rate >= 0.5"))
        source = await finished(client, await client.create_run(gated, dataset.dataset_id))
        spec, left_out = rescoring_spec(source, metrics=["rouge"])
        assert (spec.settings.gates, left_out) == (("pass_rate >= 0.5",), ("exact_match >= 0.5",))
        settings = spec.settings
        for changed, dataset_id, message in (
            (settings, other.dataset_id, "dataset_id: must be that of run"),
            (dataclasses.replace(settings, repeats=2), dataset.dataset_id, "repeats: must be 1, as in run"),
            (
                dataclasses.replace(settings, agent=settings_of("python", "m:f").agent),
                dataset.dataset_id,
                "must be replay",
            ),
        ):
            with pytest.raises(InvalidInputError, match=message):
                await client.create_run(changed, dataset_id)
        with pytest.raises(NotFoundError):
            await client.create_run(dataclasses.replace(settings, source_run_id="missing"), dataset.dataset_id)
