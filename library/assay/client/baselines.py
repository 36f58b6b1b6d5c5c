"""Baselines on an orchestrator: set, list, delete and look up by name."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from assay.errors import NotFoundError
from assay.v1 import comparison_pb2 as pb
from assay.v1.comparison_pb2_grpc import ComparisonServiceStub
from assay.wire.run import BASELINE

if TYPE_CHECKING:
    from assay.client.client import Client
    from assay.model.baseline import Baseline

_PAGE = 1_000


async def set_baseline(client: Client, name: str, run_id: str) -> Baseline:
    """Name a run; the name moves from its previous run.

    Raises:
        NotFoundError: The run does not exist.
        WrongStateError: The run has not ended, or has no rows.
        InvalidInputError: The name is empty, too long or has control characters.
    """
    request = pb.SetBaselineRequest(name=name, run_id=run_id)
    return BASELINE.from_wire(
        (await client.call(ComparisonServiceStub, lambda stub: stub.SetBaseline(request))).baseline
    )


async def list_baselines(client: Client) -> list[Baseline]:
    """Return all baselines, sorted by name."""
    baselines: list[Baseline] = []
    request = pb.ListBaselinesRequest(page_size=_PAGE)
    while True:
        page = await client.call(ComparisonServiceStub, lambda stub: stub.ListBaselines(request))
        baselines += map(BASELINE.from_wire, page.baselines)
        if not page.next_page_token:
            return baselines
        request.page_token = page.next_page_token


async def delete_baseline(client: Client, name: str) -> None:
    """Delete a baseline; its run is kept.

    Raises:
        NotFoundError: No baseline has that name.
    """
    await client.call(ComparisonServiceStub, lambda stub: stub.DeleteBaseline(pb.DeleteBaselineRequest(name=name)))


def run_of(baseline: Baseline) -> str:
    """Return the id of a baseline's run.

    Raises:
        NotFoundError: The run was deleted.
    """
    if not baseline.exists:
        raise NotFoundError(
            f"baseline {baseline.name!r} is run {baseline.run_id}, which was deleted: name another run with "
            f"`assay baseline set RUN --name {shlex.quote(baseline.name)}`",
            reason="RUN_NOT_FOUND",
        )
    return baseline.run_id


async def find_baseline(client: Client, name: str) -> Baseline | None:
    """Return the baseline of a name, or None."""
    return next((baseline for baseline in await list_baselines(client) if baseline.name == name), None)
