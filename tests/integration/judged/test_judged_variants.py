"""Variants run in one group: over one dataset, with agents on this side, sharing cached verdicts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from assay.agent_host.caller import AgentCaller
from assay.agent_host.user_code import UserCode
from assay.client.encoded_cases import EncodedCases
from assay.client.variants import check_variants, drive_variants, resume_variants, start_variants
from assay.datasets import records_dataset
from assay.errors import NotFoundError, SpecError
from assay.model.run import RunState
from assay.specs.model import Spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.judged.conftest import Stage

    from assay.client.client import Client
    from assay.model.answers.agent_response import AgentRequest
    from assay.model.run import Run

    SetUp = Callable[..., Stage]

CASES = [{"input": f"q{number}", "expected_output": f"a{number}"} for number in range(8)]
NAMES = ("plain", "polite")


def specs_of(stage: Stage) -> list[Spec]:
    """Return a judged spec for each variant."""
    return [Spec(replace(stage.settings("quality"), labels={"variant": name})) for name in NAMES]


def polite(request: AgentRequest) -> str:
    """Answer as the plain agent does, but for the first two cases."""
    greeting = "Dear reader, " if request.input in ("q0", "q1") else ""
    return f"{greeting}a{request.input[1:]}"


async def start(client: Client, specs: list[Spec]) -> list[Run]:
    """Start the variants in one group."""
    with EncodedCases() as cases:
        info = check_variants(specs, records_dataset(CASES), cases.add)
        return await start_variants(client, specs, cases, info, "group-1")


async def test_variants_share_dataset_group_and_verdicts(set_up: SetUp, capsys: pytest.CaptureFixture[str]) -> None:
    """Both runs are found by their group and have one order of cases; an answer that was judged is not again."""
    stage = set_up()
    specs = specs_of(stage)
    async with stage.judge(), stage.orchestrator() as client:
        runs = await start(client, specs)
        # One after the other: each of two runs that ask at the same moment pays for its own call.
        codes = [UserCode(AgentCaller(stage.agent)), UserCode(AgentCaller(polite))]
        await drive_variants(client, runs[:1], codes[:1], hidden=True)
        ended = await drive_variants(client, [await client.get_run(run.run_id) for run in runs], codes)
        assert [run.state for run in ended] == [RunState.COMPLETED] * 2
        assert {run.dataset.dataset_id for run in ended} == {runs[0].dataset.dataset_id}
        found = await client.list_runs(where="group:group-1")
        assert [run.spec.labels["variant"] for run in found] == ["polite", "plain"]
        assert await client.list_runs(where="group:group-2") == []
        rows = [await stage.rows(client, run) for run in ended]
        assert [row.case_id for row in rows[0]] == [row.case_id for row in rows[1]]
        assert len(stage.provider.requests) == len(CASES) + 2
        again = await resume_variants(client, specs, "group-1")
        assert [run.run_id for run in again] == [run.run_id for run in runs]
        with pytest.raises(NotFoundError, match="no run belongs to the group group-2"):
            await resume_variants(client, specs, "group-2")
        with pytest.raises(SpecError, match="has the variants plain, polite, and plain are given"):
            await resume_variants(client, specs[:1], "group-1")
    shown = capsys.readouterr().err
    assert shown.startswith(f"2 variants: plain (run {runs[0].run_id}), polite (run {runs[1].run_id})\n")
    assert "plain 8/8  polite 8/8" in shown


async def test_a_refused_variant_leaves_no_run(set_up: SetUp) -> None:
    """Where the second run of a group is refused, the first is cancelled."""
    stage = set_up()
    specs = specs_of(stage)
    specs[1] = replace(specs[1], settings=replace(specs[1].settings, repeats=1000))
    async with stage.orchestrator() as client:
        with pytest.raises(SpecError, match="repeats"):
            await start(client, specs)
        assert [run.state for run in await client.list_runs(where="group:group-1")] == [RunState.CANCELLED]
