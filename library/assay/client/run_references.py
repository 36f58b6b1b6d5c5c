"""Which run a user means: an id, a unique beginning of one, the name of a baseline, or "latest"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.client.baselines import list_baselines, run_of
from assay.errors import InvalidInputError, NotFoundError, SetupError
from assay.model.baseline import SPEC_BASELINE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.client.client import Client
    from assay.model.baseline import Baseline

LATEST = "latest"
"""What stands for the run that was created last."""

_MOST_NAMED = 5


async def find_run_id(client: Client, given: str, *, baseline_name: str = "") -> str:
    """Return the id of the run that a text means; a text that begins no id as it is.

    Args:
        client: To the orchestrator whose runs are meant.
        given: An id, a unique beginning of one, the name of a baseline, "latest" for the run that was created last, or
            "baseline" for the baseline of a spec.
        baseline_name: The name of that spec's baseline; empty where no spec is known.

    Raises:
        InvalidInputError: Several ids begin so, or several baselines may be meant; names them.
        NotFoundError: There is no run at all, no baseline of the spec, or the baseline's run was deleted.
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
    baselines = await _baselines(client)
    if given == SPEC_BASELINE and (baselines or not found):
        return run_of(_baseline_of_spec(baselines, baseline_name))
    if (named := _named(baselines, given)) is not None:
        return run_of(named)
    if len(found) < 2:
        return found[0] if found else given
    more = ", ..." if len(found) > _MOST_NAMED else ""
    raise InvalidInputError(f"{given!r} begins the ids of several runs: {', '.join(found[:_MOST_NAMED])}{more}")


def _named(baselines: Sequence[Baseline], name: str) -> Baseline | None:
    return next((each for each in baselines if each.name == name), None)


def _baseline_of_spec(baselines: Sequence[Baseline], name: str) -> Baseline:
    """Return the baseline that "baseline" means: that of the spec, one of that name, or the only one there is."""
    found = _named(baselines, name) or _named(baselines, SPEC_BASELINE)
    if found is not None:
        return found
    names = ", ".join(each.name for each in baselines[:_MOST_NAMED])
    if baselines and not name:
        if len(baselines) == 1:
            return baselines[0]
        raise InvalidInputError(f"{SPEC_BASELINE!r} may mean several baselines: name one of {names}")
    of = f" of the spec {name!r}" if name else ""
    others = f" (there is {names})" if names else ""
    raise NotFoundError(
        f"there is no baseline{of}{others}: name a run of it with `assay baseline set RUN`", reason="BASELINE_NOT_FOUND"
    )


async def _baselines(client: Client) -> list[Baseline]:
    """Return the baselines; none where the orchestrator knows of none."""
    try:
        return await list_baselines(client)
    except SetupError as error:
        if error.reason != "SERVER_TOO_OLD":
            raise
        return []


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
