"""Baselines on an orchestrator: set, listed, deleted, and found by name."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from assay.errors import NotFoundError
from assay.v1 import orchestrator_pb2 as pb
from assay.wire.run import BASELINE

if TYPE_CHECKING:
    from assay.client.client import Client
    from assay.model.baseline import Baseline


async def set_baseline(client: Client, name: str, run_id: str) -> Baseline:
    """Give a run a name, taking it from the run that had it.

    Raises:
        NotFoundError: There is no such run.
        WrongStateError: It has not ended, or has no row.
        InvalidInputError: The name is empty, too long or has control characters.
    """
    request = pb.SetBaselineRequest(name=name, run_id=run_id)
    return BASELINE.from_wire((await client.call(lambda stub: stub.SetBaseline(request))).baseline)


async def list_baselines(client: Client) -> list[Baseline]:
    """Return all baselines, by name."""
    found = await client.call(lambda stub: stub.ListBaselines(pb.ListBaselinesRequest()))
    return [BASELINE.from_wire(each) for each in found.baselines]


async def delete_baseline(client: Client, name: str) -> None:
    """Forget a name; the run stays.

    Raises:
        NotFoundError: There is no such name.
    """
    await client.call(lambda stub: stub.DeleteBaseline(pb.DeleteBaselineRequest(name=name)))


def run_of(baseline: Baseline) -> str:
    """Return the id of a baseline's run.

    Raises:
        NotFoundError: It was deleted.
    """
    if not baseline.exists:
        raise NotFoundError(
            f"baseline {baseline.name!r} is run {baseline.run_id}, which was deleted: name another run with "
            f"`assay baseline set RUN --name {shlex.quote(baseline.name)}`",
            reason="RUN_NOT_FOUND",
        )
    return baseline.run_id


async def find_baseline(client: Client, name: str) -> Baseline | None:
    """Return a baseline; None where there is no such name."""
    return next((each for each in await list_baselines(client) if each.name == name), None)
