"""Which run a user means: an id, a unique beginning of one, the name of a baseline, or "latest"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.client.baselines import find_baseline
from assay.errors import InvalidInputError, NotFoundError, SetupError

if TYPE_CHECKING:
    from assay.client.client import Client

LATEST = "latest"
"""What stands for the run that was created last."""

_MOST_NAMED = 5


async def find_run_id(client: Client, given: str) -> str:
    """Return the id of the run that a text means; a text that begins no id as it is.

    Args:
        client: To the orchestrator whose runs are meant.
        given: An id, a unique beginning of one, the name of a baseline, or "latest" for the run that was created last.

    Raises:
        InvalidInputError: Several ids begin so; names the newest of them.
        NotFoundError: There is no run at all, or the baseline's was deleted.
    """
    if given == LATEST:
        newest = await client.list_runs(1)
        if not newest:
            raise NotFoundError("there is no run yet: start one with `assay run SPEC`", reason="RUN_NOT_FOUND")
        return newest[0].run_id
    listed = await client.list_runs(_MOST_NAMED + 1, run_id_prefix=given) if given else []
    found = [run.run_id for run in listed]
    if given in found:
        return given
    if (named := await _baseline(client, given)) is not None:
        return named
    if len(found) < 2:
        return found[0] if found else given
    more = ", ..." if len(found) > _MOST_NAMED else ""
    raise InvalidInputError(f"{given!r} begins the ids of several runs: {', '.join(found[:_MOST_NAMED])}{more}")


async def _baseline(client: Client, name: str) -> str | None:
    """Return the run of a baseline; None where there is none of that name, or the orchestrator knows of none."""
    try:
        return await find_baseline(client, name)
    except SetupError as error:
        if error.reason != "SERVER_TOO_OLD":
            raise
        return None


async def failed_cases(client: Client, run_id: str) -> frozenset[str]:
    """Return the ids of the cases that have a row in a run that failed or has an error.

    Raises:
        NotFoundError: There is no such run.
        InvalidInputError: No row of it failed.
    """
    found = frozenset([row.case_id async for row in client.list_results(run_id, failed_only=True)])
    if not found:
        raise InvalidInputError(f"no row of run {run_id} failed or has an error: there is nothing to run again")
    return found
