"""Changing labels, note and weight of a stored run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.support.services.ended_runs import await_end

from assay.errors import InvalidInputError, NotFoundError
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.run import RunState
from assay.rpc.status import translated
from assay.v1 import run_pb2

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
            request = run_pb2.UpdateRunRequest(run_id=run_id, update_mask={"paths": paths})
            with pytest.raises(InvalidInputError, match=field.replace("[", r"\[")), translated():
                await client._stub.UpdateRun(request)
        assert (await client.get_run(run_id)).spec.note == ""
        with pytest.raises(NotFoundError):
            await client.update_run("nobody-20261121-075547-8e0354", note="n")
