"""Calibrations of judges in the store, on both databases, and over the wire."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.services.shared_installation import shared_installation

from assay.client.calibrations import delete_calibration, list_calibrations, set_calibration
from assay.errors import InvalidInputError, NotFoundError, PermissionDeniedError
from assay.identity.rights import Role
from assay.model.judge_calibration import JudgeCalibration
from assay.model.scope import Scope
from assay_orchestrator.store.teams import calibrations

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

    from assay.client.client import Client
    from assay.storage.database import Database

GOOD = JudgeCalibration(
    "quality", fingerprints=("sha256:b", "sha256:a"), judge="openai:m", n=60, measure="alpha_interval", alpha=0.86,
    low=0.79, high=0.91, trust="trusted", threshold=4.0, rule="at_least", sensitivity=0.9, n_passed=40,
    specificity=0.8, n_failed=20, drawn="random",
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
        assert [(one.criterion, one.alpha) for one in await found("search", "sha256:a", "sha256:b")] == [
            ("tone", 0.86),
            ("", 0.5),
        ]


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
        "rubric": "", "fingerprints": (), "n": 0, "alpha": float("nan"), "sensitivity": 1.5, "trust": "yes",
    }  # fmt: skip
    async with serve() as client:
        assert (await set_calibration(client, GOOD)).fingerprints == ("sha256:a", "sha256:b")
        with pytest.raises(InvalidInputError) as refused:
            await set_calibration(client, replace(GOOD, **wrong))
    assert {problem.field for problem in refused.value.problems} == {f"calibration.{name}" for name in wrong}


async def test_a_large_one_is_refused(serve: Callable[..., AbstractAsyncContextManager[Client]]) -> None:
    """All calibrations of a team travel in one message."""
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
        assert await list_calibrations(viewer) == [tone, again]
        with pytest.raises(PermissionDeniedError):
            await set_calibration(viewer, GOOD)
        with pytest.raises(PermissionDeniedError):
            await delete_calibration(viewer, tone.calibration_id)
        assert await list_calibrations(other) == []
        with pytest.raises(NotFoundError, match="there is no calibration"):
            await delete_calibration(other, tone.calibration_id)
        assert await delete_calibration(member, tone.calibration_id) == tone
        assert await list_calibrations(member) == [again]
