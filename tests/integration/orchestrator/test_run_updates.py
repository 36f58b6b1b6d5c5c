"""Checking a run before it is created, and changing labels, note and weight of a stored run."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from tests.support.services.ended_runs import await_end

from assay.errors import InvalidInputError, NotFoundError
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import RunState
from assay.rpc.status import translated
from assay.v1 import run_pb2
from assay.wire.run import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.run import RunSpec

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSpec]

CASES = [Case("c", (Turn("q", references=("a",)),), recordings=((AgentResponse(text="a"),),))]


async def test_values_of_a_run_are_changed_in_any_state(serve: Serve, settings_of: SettingsOf) -> None:
    """Values that are not named keep their value; a changed label is found, and nothing is resumed."""
    async with serve() as client:
        dataset = await client.upload_dataset(CASES, name="d")
        waiting = await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)
        ended = (await client.create_run(settings_of(), dataset.dataset_id)).run_id
        await await_end(client, ended)
        for run_id in (waiting.run_id, ended):
            await client.update_run(run_id, labels={"pr": "12"}, note="half", weight=2.5)
            changed = await client.update_run(run_id, note="")
            assert (changed.spec.labels, changed.spec.note, changed.spec.weight) == ({"pr": "12"}, "", 2.5)
            assert (changed.state is RunState.COMPLETED) is (run_id == ended)
        found = await client.list_runs(where="label:pr=12")
        assert {run.run_id for run in found} == {waiting.run_id, ended}
        assert (await client.update_run(ended, labels={})).spec.labels == {}


async def test_a_wrong_change_is_refused_with_every_problem(serve: Serve, settings_of: SettingsOf) -> None:
    """Nothing is changed; a request whose mask names no field, or one that cannot change, is refused."""
    async with serve() as client:
        dataset = await client.upload_dataset(CASES, name="d")
        run_id = (await client.create_run(settings_of("python", "m:f"), dataset.dataset_id)).run_id
        with pytest.raises(InvalidInputError) as refusal:
            await client.update_run(run_id, labels={"-": ""}, note="n" * 2001, weight=0.0)
        assert [problem.field for problem in refusal.value.problems] == ["labels", "note", "weight"]
        for paths, field in (([], "update_mask"), (["state"], "update_mask.paths[0]")):
            request = run_pb2.UpdateRunRequest(run_id=run_id, update_mask=FieldMask(paths=paths))
            with pytest.raises(InvalidInputError, match=field.replace("[", r"\[")), translated():
                await client._stub.UpdateRun(request)
        assert (await client.get_run(run_id)).spec.note == ""
        with pytest.raises(NotFoundError):
            await client.update_run("nobody-20261121-075547-8e0354", note="n")


async def test_a_checked_run_is_returned_as_it_would_be(serve: Serve, settings_of: SettingsOf) -> None:
    """It equals the run that is then created, without id and times; nothing is stored, and a dataset must exist."""
    async with serve() as client:
        dataset = await client.upload_dataset([*CASES, Case("d", (Turn("q"),))], name="d")
        spec = SETTINGS.to_wire(dataclasses.replace(settings_of("python", "m:f"), repeats=3))
        request = run_pb2.CreateRunRequest(spec=spec, validate_only=True)
        assert not (await client._stub.CreateRun(request)).run.counts.total_count
        request.dataset_id = dataset.dataset_id
        checked = (await client._stub.CreateRun(request)).run
        assert (checked.run_id, checked.counts.total_count) == ("", 6)
        assert await client.list_runs() == []
        request.validate_only, request.request_id = False, "q"
        created = (await client._stub.CreateRun(request)).run
        assert (created.spec, created.dataset, created.counts) == (checked.spec, checked.dataset, checked.counts)
        request.validate_only, request.dataset_id = True, "none"
        with pytest.raises(NotFoundError), translated():
            await client._stub.CreateRun(request)
