"""Baselines, and calibrations of judges, in the store and over the wire, on both databases."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.services.ended_runs import await_end
from tests.support.services.shared_installation import shared_installation

from assay.client.baselines import delete_baseline, find_baseline, list_baselines, set_baseline
from assay.client.calibrations import delete_calibration, list_calibrations, set_calibration
from assay.client.comparison.join import read_reports
from assay.client.run_references import find_run_id
from assay.errors import InvalidInputError, NotFoundError, PermissionDeniedError, WrongStateError
from assay.identity.rights import Role
from assay.model.answers.agent_response import AgentResponse
from assay.model.case import Case, Turn
from assay.model.interval import Interval
from assay.model.judge_calibration import JudgeCalibration
from assay.model.scope import Scope
from assay.v1 import calibration_pb2, comparison_pb2, comparison_pb2_grpc
from assay.v1.calibration_pb2_grpc import CalibrationServiceStub
from assay_orchestrator.store.teams import calibrations

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from assay.client.client import Client
    from assay.model.run import RunSpec

    Serve = Callable[..., AbstractAsyncContextManager[Client]]
    SettingsOf = Callable[..., RunSpec]
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from assay.client.client import Client
    from assay.storage.database import Database


async def finished_run(client: Client, settings: RunSpec) -> str:
    """Return the id of a run over one case that has ended."""
    cases = [Case("c0", (Turn("q", references=("yes",)),), recordings=((AgentResponse(text="yes"),),))]
    dataset = await client.upload_dataset(cases, name="d")
    run_id = (await client.create_run(settings, dataset.dataset_id)).run_id
    await await_end(client, run_id)
    return run_id


async def test_a_baseline_is_a_name_that_moves(serve: Serve, settings_of: SettingsOf) -> None:
    """It is set, found in place of an id, given to another run, and forgotten; its run stays."""
    async with serve() as client:
        first, second = [await finished_run(client, settings_of()) for _ in range(2)]
        assert await list_baselines(client) == []
        assert (await set_baseline(client, "main", first)).run_id == first
        assert await find_run_id(client, "main") == first
        await set_baseline(client, "main", second)
        await set_baseline(client, "release 1", first)
        assert [(each.name, each.run_id) for each in await list_baselines(client)] == [
            ("main", second),
            ("release 1", first),
        ]
        await delete_baseline(client, "main")
        assert await find_baseline(client, "main") is None
        assert (await client.get_run(second)).run_id == second


async def test_baselines_are_listed_in_pages_by_code_points(serve: Serve, settings_of: SettingsOf) -> None:
    """Each page follows the name that the page before it ends with, in the same order on every database."""
    names = ["Zoo", "a", "a b", "\u00e9", "\u65e5\u672c", "_"]
    async with serve() as client:
        run_id = await finished_run(client, settings_of())
        for name in names:
            await set_baseline(client, name, run_id)
        stub = comparison_pb2_grpc.ComparisonServiceStub(client._channel)
        listed, token = list[str](), ""
        for _ in range(3):
            request = comparison_pb2.ListBaselinesRequest(page_size=2, page_token=token)
            page = await stub.ListBaselines(request)
            listed += [baseline.name for baseline in page.baselines]
            token = page.next_page_token
        assert (listed, token) == (sorted(names), "")
        assert [baseline.name for baseline in await list_baselines(client)] == sorted(names)


async def test_the_run_of_a_baseline_is_deleted_on_request_alone(serve: Serve, settings_of: SettingsOf) -> None:
    """Otherwise it is kept; afterwards the list says so, and the error names the command that sets another run."""
    async with serve() as client:
        run_id = await finished_run(client, settings_of())
        await set_baseline(client, "main", run_id)
        assert (await client.delete_run(run_id, validate_only=True)).baselines == ("main",)
        with pytest.raises(WrongStateError, match="is baseline 'main': it is kept") as refusal:
            await client.delete_run(run_id)
        assert refusal.value.reason == "RUN_IS_BASELINE"
        assert (await client.get_run(run_id)).run_id == run_id
        await client.delete_run(run_id, with_baselines=True)
        assert [each.exists for each in await list_baselines(client)] == [False]
        with pytest.raises(NotFoundError, match="name another run with `assay baseline set RUN --name main`"):
            await find_run_id(client, "main")


async def test_baseline_means_that_of_the_spec(serve: Serve, settings_of: SettingsOf) -> None:
    """A run finds the baseline of its own spec, whatever the run is called, and never that of another one."""
    async with serve() as client:
        first = await finished_run(client, replace(settings_of(), name="one"))
        second = await finished_run(client, replace(settings_of(), name="nightly 7", spec_name="two"))
        with pytest.raises(NotFoundError, match="there is no baseline: name a run of it with `assay baseline set RUN`"):
            await find_run_id(client, "baseline")
        for run_id in (first, second):
            await set_baseline(client, (await client.get_run(run_id)).spec.baseline_name, run_id)
        assert await find_run_id(client, "baseline", baseline_name="one") == first
        assert await find_run_id(client, "baseline", baseline_name="two") == second
        with pytest.raises(NotFoundError, match=r"no baseline of the spec 'three' \(there is one, two\)"):
            await find_run_id(client, "baseline", baseline_name="three")
        with pytest.raises(InvalidInputError, match="may mean several baselines: name one of one, two"):
            await find_run_id(client, "baseline")
        async with read_reports(["baseline", second], client) as (found, _):
            assert found.run_id == second


async def test_what_is_refused(serve: Serve, settings_of: SettingsOf) -> None:
    """A name that cannot be written, a run that is not there, a baseline that is not there."""
    async with serve() as client:
        run_id = await finished_run(client, settings_of())
        for name in ("", "a" * 101, "a\nb"):
            with pytest.raises(InvalidInputError, match="name"):
                await set_baseline(client, name, run_id)
        with pytest.raises(NotFoundError):
            await set_baseline(client, "main", "missing")
        with pytest.raises(NotFoundError, match="there is no baseline 'main'"):
            await delete_baseline(client, "main")


GOOD = JudgeCalibration(
    "quality", fingerprints=("sha256:b", "sha256:a"), judge="openai:m", answer_count=60,
    measure="alpha_interval", alpha=0.86, interval=Interval(0.79, 0.91),
    trust="trusted", threshold=4.0, rule="at_least",
    sensitivity=0.9, passed_count=40, specificity=0.8, failed_count=20, drawing="random",
)  # fmt: skip


async def test_a_calibration_is_found_by_the_fingerprints_of_its_judge(open_store: Callable[[], Database]) -> None:
    """Those of a jury are all needed; a newer one of the same replaces it; teams do not see each other's."""
    search, other = Scope("search"), Scope("other")
    with closing(open_store()) as store:

        async def found(team: str, *fingerprints: str) -> list[JudgeCalibration]:
            return list(await store.read(lambda c: calibrations.calibrations_of(c, team, fingerprints)))

        await store.write(lambda c: calibrations.set_calibration(c, search, GOOD))
        (stored,) = await found("search", "sha256:a", "sha256:b", "sha256:c")
        at, name = stored.calibrated_at, stored.calibration_id
        assert stored == replace(GOOD, fingerprints=("sha256:a", "sha256:b"), calibrated_at=at, calibration_id=name)
        assert all((at, name))
        assert await found("search", "sha256:a") == []
        assert await found("other", "sha256:a", "sha256:b") == []
        await store.write(lambda c: calibrations.set_calibration(c, search, replace(GOOD, alpha=0.5)))
        await store.write(lambda c: calibrations.set_calibration(c, search, replace(GOOD, criterion="tone")))
        await store.write(lambda c: calibrations.set_calibration(c, other, GOOD))
        both = await found("search", "sha256:a", "sha256:b")
        assert {calibration.criterion: calibration.alpha for calibration in both} == {"tone": 0.86, "": 0.5}


async def test_the_oldest_go_first(open_store: Callable[[], Database], monkeypatch: pytest.MonkeyPatch) -> None:
    """A team keeps no more than its most."""
    monkeypatch.setattr(calibrations, "MOST_CALIBRATIONS", 3)
    moments = iter(f"2026-11-28T10:00:0{second}Z" for second in range(9))
    monkeypatch.setattr(calibrations, "now", lambda: next(moments))
    with closing(open_store()) as store:
        for name in "abcde":
            given = replace(GOOD, criterion=name)
            await store.write(lambda c, given=given: calibrations.set_calibration(c, Scope("search"), given))  # type: ignore[misc]
        kept = await store.read(lambda c: calibrations.calibrations_of(c, "search", GOOD.fingerprints))
    assert [each.criterion for each in kept] == ["e", "d", "c"]


async def test_what_no_judge_can_have_is_refused(
    serve: Callable[..., AbstractAsyncContextManager[Client]],
) -> None:
    """With every problem at once."""
    wrong: dict[str, Any] = {
        "rubric": "", "fingerprints": (), "answer_count": 0, "alpha": float("nan"), "sensitivity": 1.5, "trust": "",
    }  # fmt: skip
    async with serve() as client:
        assert (await set_calibration(client, GOOD)).fingerprints == ("sha256:a", "sha256:b")
        with pytest.raises(InvalidInputError) as refused:
            await set_calibration(client, replace(GOOD, **wrong))
    assert {problem.field for problem in refused.value.problems} == {f"calibration.{name}" for name in wrong}


async def test_a_large_one_is_refused(serve: Callable[..., AbstractAsyncContextManager[Client]]) -> None:
    """A page of calibrations fits in one message, since each is short."""
    async with serve() as client:
        with pytest.raises(InvalidInputError, match="is larger than 4,000 bytes"):
            await set_calibration(client, replace(GOOD, judge="\u0630" * 1_000))


async def test_only_those_who_may_run_may_store_or_delete_one(tmp_path: Path) -> None:
    """The orchestrator checks it, as it does for runs; all of the team may list them, and no other team."""
    async with shared_installation(tmp_path) as shared:
        member = await shared.member("search", Role.RUNNER)
        viewer = await shared.member("search", Role.VIEWER)
        other = await shared.member("other", Role.RUNNER)
        first = await set_calibration(member, GOOD)
        again = await set_calibration(member, replace(GOOD, alpha=0.5, fingerprints=GOOD.fingerprints[::-1]))
        assert again.calibration_id == first.calibration_id
        tone = await set_calibration(member, replace(GOOD, criterion="tone"))
        assert sorted(await list_calibrations(viewer), key=lambda shown: shown.criterion) == [again, tone]
        request = calibration_pb2.ListCalibrationsRequest(page_size=1)
        pages: list[calibration_pb2.ListCalibrationsResponse] = []
        stub = CalibrationServiceStub(viewer._channel)
        while not pages or request.page_token:
            pages.append(await stub.ListCalibrations(request))
            request.page_token = pages[-1].next_page_token
        ids = [[calibration.calibration_id for calibration in page.calibrations] for page in pages]
        assert sorted(ids) == sorted([[again.calibration_id], [tone.calibration_id]])
        with pytest.raises(PermissionDeniedError):
            await set_calibration(viewer, GOOD)
        with pytest.raises(PermissionDeniedError):
            await delete_calibration(viewer, tone.calibration_id)
        assert await list_calibrations(other) == []
        with pytest.raises(NotFoundError, match="there is no calibration"):
            await delete_calibration(other, tone.calibration_id)
        assert await delete_calibration(member, tone.calibration_id) == tone
        assert await list_calibrations(member) == [again]
