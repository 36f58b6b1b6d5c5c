"""Listing runs by the beginning of their id, name, labels and state, page by page, over both databases."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from assay.client.run_references import find_run_id
from assay.errors import InvalidInputError, NotFoundError, SpecError
from assay.model.case import Case, Turn
from assay.model.run import CaseSelection, RunSettings, RunState
from assay_orchestrator.runs import catalogue
from assay_orchestrator.runs.catalogue import RunFilter

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from assay.client.client import Client


async def test_runs_are_found_by_all_conditions_page_by_page(
    serve_at: Callable[..., AbstractAsyncContextManager[Client]],
    tmp_path: Path,
    settings_of: Callable[..., RunSettings],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each page holds as many runs as were asked for while there are more, however few of those read match."""
    monkeypatch.setattr(catalogue, "_FILTERED_PAGE", 2)
    async with serve_at(tmp_path) as client:
        dataset = await client.upload_dataset([Case("c", (Turn("q", references=("a",)),))], name="d")
        ids = []
        for index in range(12):
            marked = dataclasses.replace(
                settings_of("python", "m:f"),
                name="third" if index % 3 == 0 else "A%_",
                labels={"even": str(index % 2 == 0), "all": ""},
            )
            ids.append((await client.create_run(marked, dataset.dataset_id)).run_id)
        await client.cancel_run(ids[6])

        async def found(limit: int = 50, **conditions: Any) -> list[int]:
            return [ids.index(run.run_id) for run in await client.list_runs(limit, **conditions)]

        assert await found(name="third") == [9, 6, 3, 0]
        assert await found(3, name="third") == [9, 6, 3]
        assert await found(labels={"even": "True", "all": ""}, name="third") == [6, 0]
        assert await found(labels={"all": "x"}) == await found(labels={"none": ""}) == []
        assert await found(states=[RunState.CANCELLED]) == [6]
        assert await found(run_id_prefix=ids[4][:-1]) == [4]
        assert await found(run_id_prefix="A%") == await found(run_id_prefix="THIRD") == []
        assert await found() == list(range(11, -1, -1))

        assert await find_run_id(client, "latest") == ids[11]
        assert await find_run_id(client, ids[3][:-2]) == await find_run_id(client, ids[3]) == ids[3]
        assert await find_run_id(client, "zzz") == "zzz"
        assert await find_run_id(client, "") == ""
        with pytest.raises(InvalidInputError, match=rf"^'third' begins the ids of several runs: {ids[9]}, {ids[6]}, "):
            await find_run_id(client, "third")


async def test_latest_of_no_runs_is_a_sentence(
    serve_at: Callable[..., AbstractAsyncContextManager[Client]], tmp_path: Path
) -> None:
    """Before the first run there is no latest one."""
    async with serve_at(tmp_path) as client:
        with pytest.raises(NotFoundError, match="there is no run yet"):
            await find_run_id(client, "latest")


async def test_labels_notes_and_selections_are_bounded(
    serve_at: Callable[..., AbstractAsyncContextManager[Client]],
    tmp_path: Path,
    settings_of: Callable[..., RunSettings],
) -> None:
    """The orchestrator checks what any client sends, and says all of it at once."""
    async with serve_at(tmp_path) as client:
        dataset = await client.upload_dataset([Case("c", (Turn("q", references=("a",)),))], name="d")
        wrong = dataclasses.replace(
            settings_of("python", "m:f"),
            labels={"-k": "", "k": "x\x1b"},
            note="n" * 2001,
            selection=CaseSelection(cases=["c" * 200] * 3000),
        )
        with pytest.raises(SpecError) as refusal:
            await client.create_run(wrong, dataset.dataset_id)
        assert sorted(problem.field for problem in refusal.value.problems) == [
            "labels",
            "labels.k",
            "note",
            "selection",
        ]


@pytest.mark.parametrize("settings", [None, [], {}, {"labels": 3}, {"labels": {"k": ["v"]}}])
def test_damaged_settings_break_no_search(settings: object) -> None:
    """Stored settings that cannot be read have neither name nor labels."""
    assert not RunFilter(labels={"k": "v"}).accepts_settings(settings)
    assert not RunFilter(name="n").accepts_settings(settings)
    assert RunFilter().accepts_settings(settings)
