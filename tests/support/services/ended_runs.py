"""Runs that tests wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.client.client import Client
    from assay.model.case import Case
    from assay.model.run import Run, RunSpec


async def await_end(client: Client, run_id: str) -> Run:
    """Watch a run to its end, and return it."""
    async for _ in client.watch_run(run_id):
        pass
    return await client.get_run(run_id)


async def run_cases(client: Client, settings: RunSpec, cases: Sequence[Case]) -> Run:
    """Create a run over some cases, and return it once it has ended."""
    dataset = await client.upload_dataset(cases, name="d")
    run = await client.create_run(settings, dataset.dataset_id)
    return await await_end(client, run.run_id)
