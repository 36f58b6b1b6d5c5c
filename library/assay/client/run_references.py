"""References to runs: an id, a unique prefix of one, the name of a baseline, or "latest"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.client.baselines import list_baselines, run_of
from assay.errors import InvalidInputError, NotFoundError, SetupError
from assay.filters.conditions import quoted
from assay.filters.row_filter import FAILING_ROWS
from assay.model.baseline import SPEC_BASELINE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assay.client.client import Client
    from assay.model.baseline import Baseline

LATEST = "latest"
"""Reference to the newest run."""

_MOST_NAMED = 5


async def find_run_id(client: Client, reference: str, *, baseline_name: str = "") -> str:
    """Return the id of the run that a reference means; an unknown reference is returned unchanged.

    Args:
        client: Client of the orchestrator.
        reference: An id, a unique prefix of one, the name of a baseline, "latest" for the newest run, or "baseline" for
            the baseline of a spec.
        baseline_name: Name of that spec's baseline; empty if no spec is known.

    Raises:
        InvalidInputError: Several ids have the prefix, or several baselines may be meant; names them.
        NotFoundError: No run is stored, the spec has no baseline, or the baseline's run was deleted.
    """
    if reference == LATEST:
        newest = await client.list_runs(1)
        if not newest:
            raise NotFoundError("no runs yet: start one with `assay run SPEC`", reason="RUN_NOT_FOUND")
        return newest[0].run_id
    listed = await client.list_runs(_MOST_NAMED + 1, where=f"run:{quoted(reference)}") if reference else []
    matches = [run.run_id for run in listed]
    if reference in matches:
        return reference
    baselines = await _baselines(client)
    if reference == SPEC_BASELINE and (baselines or not matches):
        return run_of(_baseline_of_spec(baselines, baseline_name))
    if (named := _named(baselines, reference)) is not None:
        return run_of(named)
    if len(matches) < 2:
        return matches[0] if matches else reference
    more = ", ..." if len(matches) > _MOST_NAMED else ""
    raise InvalidInputError(f"{reference!r} begins the ids of several runs: {', '.join(matches[:_MOST_NAMED])}{more}")


def _named(baselines: Sequence[Baseline], name: str) -> Baseline | None:
    return next((baseline for baseline in baselines if baseline.name == name), None)


def _baseline_of_spec(baselines: Sequence[Baseline], name: str) -> Baseline:
    """Return the baseline that "baseline" means: the spec's, one of that name, or the only one."""
    baseline = _named(baselines, name) or _named(baselines, SPEC_BASELINE)
    if baseline is not None:
        return baseline
    names = ", ".join(known.name for known in baselines[:_MOST_NAMED])
    if baselines and not name:
        if len(baselines) == 1:
            return baselines[0]
        raise InvalidInputError(f"{SPEC_BASELINE!r} may mean several baselines: name one of {names}")
    of = f" of the spec {name!r}" if name else ""
    existing = f" (there is {names})" if names else ""
    raise NotFoundError(
        f"there is no baseline{of}{existing}: name a run of it with `assay baseline set RUN`",
        reason="BASELINE_NOT_FOUND",
    )


async def _baselines(client: Client) -> list[Baseline]:
    """Return the baselines; empty if the orchestrator does not support them."""
    try:
        return await list_baselines(client)
    except SetupError as error:
        if error.reason != "SERVER_TOO_OLD":
            raise
        return []


async def failed_cases(client: Client, run_id: str) -> frozenset[str]:
    """Return the ids of the cases with a failed row or an error in a run.

    Raises:
        NotFoundError: The run does not exist.
        InvalidInputError: No row failed.
    """
    found = frozenset([row.case_id async for row in client.list_rows(run_id, where=FAILING_ROWS)])
    if not found:
        raise InvalidInputError(f"no row of run {run_id} failed or has an error: nothing to run again")
    return found
